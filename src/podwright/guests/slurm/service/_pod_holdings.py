"""What Slurm's jobs hold of a pod, and what Slurm must not count as free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from podwright.guests.shared import Book, Holding
from podwright.guests.slurm.service._job_start_text import Life, life
from podwright.guests.slurm.service._pods_and_licences import SlurmPod, parse_licences
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.slurm.reader import SHOW_LICENCES, read_licences
from podwright.slurm.site.commands import Slurm
from podwright.wire import PartitionInfo

#: Seconds in which a job that Slurm has started must get its devices.
DEVICES_DEADLINE_S: Final = 60.0
_PARTITION_NAME_PATTERN: Final = re.compile(r"slurm_(\d+)")


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

    def __init__(self, slurm_pod: SlurmPod) -> None:
        super().__init__(slurm_pod.cluster, slurm_pod.allocation)
        self.pod = slurm_pod
        self.moves_end = ""  #: the latest end of those asked to move

    def take(self, job: int, order: int, *, restart: int = 0, leader: int = 0) -> JobHolding | None:
        """Take a free block for a job, or return None where no block of that size is free."""
        device = self.find(order, leader or None)
        if device is None:
            return None
        return self.add(
            JobHolding(job=job, start=device, order=order, restart=restart, leader=leader)
        )

    # -- what Slurm is told ------------------------------------------------------------------

    def used(self, order: int) -> int:
        """Return how many block licences of 2**order devices Slurm counts as used by the jobs in
        this book.

        These are the devices of ordinary jobs of that size or more, unless an administrator changed
        their licences.
        """
        name, count = self.pod.block_licence(order), 0
        for holding in self.holdings.values():
            if holding.counted is not None:
                count += holding.counted.get(name, 0)
            elif holding.order >= order and not holding.leader:
                count += holding.size
        return count

    def count_as_listed(self, listed_jobs: Mapping[int, Listed], asked_at: int) -> None:
        """Take over the licences that Slurm counts for each job that it listed as running.

        asked_at: when Slurm was asked, by the book's clock. A holding that changed later keeps the
        licences that it was given for.
        """
        for job_holding in self.holdings.values():
            listed_job = listed_jobs.get(job_holding.job)
            if (
                listed_job
                and listed_job.counts
                and listed_job.restart == job_holding.restart
                and job_holding.changed < asked_at
            ):
                job_holding.counted = parse_licences(listed_job.licences)

    def hidden(self) -> dict[str, int]:
        """Return how many of each block licence Slurm must not give out.

        Slurm shows total - used - hidden as free. Here hidden = devices - (used by the jobs in this
        book) - (devices in free blocks). So Slurm shows the devices in free blocks, less what it
        counts for jobs that this book does not know yet. Slurm has just started these jobs, and
        their devices are not given out again.
        """
        hidden_by_licence: dict[str, int] = {}
        free_by_order = self.blocks.whole_counts_by_order()
        for block_order in self.pod.orders:
            devices = free_by_order[block_order] if block_order < len(free_by_order) else 0
            count = self.pod.devices - self.used(block_order) - devices
            hidden_by_licence[self.pod.block_licence(block_order)] = max(0, count)
        return hidden_by_licence

    def all_licences_hidden(self) -> dict[str, int]:
        """Return the counts that let no job start."""
        return {self.pod.block_licence(order): self.pod.devices for order in self.pod.orders}

    # -- what the server says ----------------------------------------------------------------

    def job_of(self, partition: str) -> int | None:
        """Return the job in a partition's name, or None for other names."""
        return job_of(partition)

    def adopted(self, info: PartitionInfo, start: int, order: int) -> JobHolding | None:
        """Return the holding that a partition describes, or None if it is not a job's."""
        job_start = life(info.job)
        if job_start is None:
            return None
        return JobHolding(
            job=job_start.job,
            start=start,
            order=order,
            created=True,
            restart=job_start.restart,
            leader=job_start.leader,
            uid=info.owner_uid,
            cluster=job_start.cluster,
            submitted=job_start.submitted,
            movable=info.movable,
            began=info.created_at,
        )


async def settled(slurm: Slurm, pod_book: PodBook) -> bool:
    """Return whether every job that Slurm has started has its devices. Raises FieldNotKnown.

    Each ordinary job takes as many of the smallest block licence as it has devices. If Slurm counts
    more of them as used than the book does, it has started a job that the book does not know yet.
    """
    order = pod_book.pod.orders[0]
    licence = pod_book.pod.block_licence(order)
    reply = await slurm.run(*SHOW_LICENCES, licence)
    used_counts = [count.used for count in read_licences(reply.out) if count.name == licence]
    return bool(used_counts) and used_counts[0] <= pod_book.used(order)


def job_of(partition_name: str) -> int | None:
    """Return the job in a partition's name, or None for other names."""
    name_match = _PARTITION_NAME_PATTERN.fullmatch(partition_name)
    return int(name_match[1]) if name_match else None
