"""What Slurm's jobs hold of a pod, and what Slurm must not count as free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from podwright.guests import Book, Holding
from podwright.slurm.pods.service._job_start import Life, life
from podwright.slurm.pods.service._pods import SlurmPod, parse_licences
from podwright.slurm.pods.service._queue import Listed
from podwright.slurm.site.commands import Slurm
from podwright.wire import PartitionInfo

#: Seconds in which what Slurm has started must have got its devices.
SETTLE_S: Final = 60.0
_NAME: Final = re.compile(r"slurm_(\d+)")


@dataclass(slots=True, kw_only=True)
class JobHolding(Holding[int]):
    """A block that a job holds. restart: how often Slurm had restarted the job.

    leader: of the heterogeneous job that it is a component of; 0: an ordinary one, which holds
    block licences in Slurm. uid: whose job it is, -1 while that is not known. cluster, submitted:
    as `Life` has them. movable: it asked for that. began: when it got its devices, since 1970.
    counted: the licences that Slurm counts for it, where its list has said so since.
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
        """Its partition, named as the fork of Slurm named it."""
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
        self.moves_end = ""  #: when those that are asked to move have ended at the latest

    def take(self, job: int, order: int, *, restart: int = 0, leader: int = 0) -> JobHolding | None:
        """A block for a job; None where none of that size is free."""
        start = self.find(order, leader or None)
        if start is None:
            return None
        return self.add(
            JobHolding(job=job, start=start, order=order, restart=restart, leader=leader)
        )

    # -- what Slurm is told ------------------------------------------------------------------

    def used(self, order: int) -> int:
        """What Slurm counts as used of blocks of 2**order, by the jobs here: the devices of
        ordinary jobs of that size and more, unless an administrator changed their licences."""
        name, out = self.pod.block_licence(order), 0
        for one in self.holdings.values():
            if one.counted is not None:
                out += one.counted.get(name, 0)
            elif one.order >= order and not one.leader:
                out += one.size
        return out

    def count_as_listed(self, jobs: Mapping[int, Listed], since: int) -> None:
        """Take over what Slurm counts for each job that it listed as running. since: by the
        book's clock, when it was asked; what changed later has what it was given for."""
        for one in self.holdings.values():
            job = jobs.get(one.job)
            if job and job.counts and job.restart == one.restart and one.changed < since:
                one.counted = parse_licences(job.licences)

    def hidden(self) -> dict[str, int]:
        """How many of each block licence Slurm must not give out.

        Slurm shows total - used - hidden as free. What it has started and we have not heard of
        stays subtracted, since only the jobs that we know are taken out here.
        """
        out: dict[str, int] = {}
        wholes = self.blocks.wholes()
        for order in self.pod.orders:
            whole = wholes[order] if order < len(wholes) else 0
            hidden = self.pod.devices - self.used(order) - whole
            out[self.pod.block_licence(order)] = max(0, hidden)
        return out

    def all_hidden(self) -> dict[str, int]:
        """Nothing may start."""
        return {self.pod.block_licence(k): self.pod.devices for k in self.pod.orders}

    # -- what the server says ----------------------------------------------------------------

    def job_of(self, partition: str) -> int | None:
        """The job that a partition's name says; None for others."""
        return job_of(partition)

    def adopted(self, info: PartitionInfo, start: int, order: int) -> JobHolding | None:
        """The holding that a partition says it is; None: it is no job's."""
        said = life(info.job)
        if said is None:
            return None
        return JobHolding(
            job=said.job,
            start=start,
            order=order,
            made=True,
            restart=said.restart,
            leader=said.leader,
            uid=info.owner_uid,
            cluster=said.cluster,
            submitted=said.submitted,
            movable=info.movable,
            began=info.created_at,
        )


async def settled(slurm: Slurm, book: PodBook) -> bool:
    """Has every job that Slurm started got its devices?"""
    least = book.pod.orders[0]
    licence = book.pod.block_licence(least)
    said = await slurm.run("scontrol", "-o", "show", "lic", licence)
    used = said.out.partition("Used=")[2].split()
    return bool(used) and used[0].isdecimal() and int(used[0]) <= book.used(least)


def job_of(partition: str) -> int | None:
    """The job that a partition's name says; None for others."""
    found = _NAME.fullmatch(partition)
    return int(found[1]) if found else None
