"""What Slurm's jobs hold of a pod, and what Slurm must not count as free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from podwright.guests.shared import Book, Holding
from podwright.guests.slurm.service._job_start import Life, life
from podwright.guests.slurm.service._pods import SlurmPod, parse_licences
from podwright.guests.slurm.service._queue import Listed
from podwright.slurm.reader import SHOW_LICENCES, read_licences
from podwright.slurm.site.commands import Slurm
from podwright.wire import PartitionInfo

#: Seconds in which a job that Slurm has started must get its devices.
SETTLE_S: Final = 60.0
_NAME: Final = re.compile(r"slurm_(\d+)")


@dataclass(slots=True, kw_only=True)
class JobHolding(Holding[int]):
    """A block that a job holds.

    restart: how often Slurm had restarted the job. leader: the leader of its heterogeneous job; 0:
    it is an ordinary job, which holds block licences in Slurm. uid: the job's owner; -1: not known
    yet. cluster, submitted: as in `Life`. movable: the job agreed to move. began: when it got its
    devices, in seconds since 1970. counted: the licences that Slurm counts for it; None until
    Slurm's list has shown them.
    """

    restart: int = 0
    leader: int = 0
    uid: int = -1
    cluster: str = ""
    submitted: int = 0
    movable: bool = False
    began: float = 0.0
    counted: Mapping[str, int] | None = None

    @property
    def name(self) -> str:
        """The name of its partition. Graphcore's fork of Slurm used the same names."""
        return f"slurm_{self.job}"

    @property
    def words(self) -> str:
        """The start of the job, as the partition carries it."""
        return Life(self.job, self.restart, self.leader, self.cluster, self.submitted).words


class PodBook(Book[int, JobHolding]):
    """All holdings of one pod."""

    starts_by_counts = True

    def __init__(self, pod: SlurmPod) -> None:
        super().__init__(pod.cluster, pod.allocation)
        self.pod = pod
        self.moves_end = ""  #: the latest end of those asked to move

    def take(self, job: int, order: int, *, restart: int = 0, leader: int = 0) -> JobHolding | None:
        """Take a free block for a job, or return None where no block of that size is free."""
        start = self.find(order, leader or None)
        if start is None:
            return None
        return self.add(
            JobHolding(job=job, start=start, order=order, restart=restart, leader=leader)
        )

    # -- what Slurm is told ------------------------------------------------------------------

    def used(self, order: int) -> int:
        """Return how many block licences of 2**order devices Slurm counts as used by the jobs in
        this book.

        These are the devices of ordinary jobs of that size or more, unless an administrator changed
        their licences.
        """
        name, out = self.pod.block_licence(order), 0
        for holding in self.holdings.values():
            if holding.counted is not None:
                out += holding.counted.get(name, 0)
            elif holding.order >= order and not holding.leader:
                out += holding.size
        return out

    def count_as_listed(self, jobs: Mapping[int, Listed], since: int) -> None:
        """Take over the licences that Slurm counts for each job that it listed as running.

        since: when Slurm was asked, by the book's clock. A holding that changed later keeps the
        licences that it was given for.
        """
        for holding in self.holdings.values():
            job = jobs.get(holding.job)
            if job and job.counts and job.restart == holding.restart and holding.changed < since:
                holding.counted = parse_licences(job.licences)

    def hidden(self) -> dict[str, int]:
        """Return how many of each block licence Slurm must not give out.

        Slurm shows total - used - hidden as free. Here hidden = devices - (used by the jobs in this
        book) - (devices in free blocks). So Slurm shows the devices in free blocks, less what it
        counts for jobs that this book does not know yet. Slurm has just started these jobs, and
        their devices are not given out again.
        """
        out: dict[str, int] = {}
        wholes = self.blocks.wholes()
        for order in self.pod.orders:
            count = wholes[order] if order < len(wholes) else 0
            hidden = self.pod.devices - self.used(order) - count
            out[self.pod.block_licence(order)] = max(0, hidden)
        return out

    def all_hidden(self) -> dict[str, int]:
        """Return the counts that let no job start."""
        return {self.pod.block_licence(k): self.pod.devices for k in self.pod.orders}

    # -- what the server says ----------------------------------------------------------------

    def job_of(self, partition: str) -> int | None:
        """Return the job in a partition's name, or None for other names."""
        return job_of(partition)

    def adopted(self, info: PartitionInfo, start: int, order: int) -> JobHolding | None:
        """Return the holding that a partition describes, or None if it is not a job's."""
        start_record = life(info.job)
        if start_record is None:
            return None
        return JobHolding(
            job=start_record.job,
            start=start,
            order=order,
            created=True,
            restart=start_record.restart,
            leader=start_record.leader,
            uid=info.owner_uid,
            cluster=start_record.cluster,
            submitted=start_record.submitted,
            movable=info.movable,
            began=info.created_at,
        )


async def settled(slurm: Slurm, book: PodBook) -> bool:
    """Return whether every job that Slurm has started has its devices. Raises FieldNotKnown.

    Each ordinary job takes as many of the smallest block licence as it has devices. If Slurm counts
    more of them as used than the book does, it has started a job that the book does not know yet.
    """
    least = book.pod.orders[0]
    licence = book.pod.block_licence(least)
    reply = await slurm.run(*SHOW_LICENCES, licence)
    used = [
        licence_count.used
        for licence_count in read_licences(reply.out)
        if licence_count.name == licence
    ]
    return bool(used) and used[0] <= book.used(least)


def job_of(partition: str) -> int | None:
    """Return the job in a partition's name, or None for other names."""
    match = _NAME.fullmatch(partition)
    return int(match[1]) if match else None
