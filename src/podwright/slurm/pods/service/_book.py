"""One pod's book: who holds which block, and what Slurm must not count as free.

The server's partitions are the durable truth; the book is that, in memory, with what is under
way. It is compared with the server's list every few seconds, so a machine that failed, a partition
that an administrator removed, and a life before this one all end up in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from podwright.placement.line import Blocks, block
from podwright.slurm.pods.service._job_start import Life, life
from podwright.slurm.pods.service._pods import Line, Pod
from podwright.slurm.pods.service._vipu_server import JobServer
from podwright.wire import PartitionInfo

_NAME: Final = re.compile(r"slurm_(\d+)")


@dataclass(slots=True)
class Holding:
    """A block that a job holds. restart: how often Slurm had restarted the job.

    leader: of the heterogeneous job that it is a component of; 0: an ordinary one, which holds
    block licences in Slurm. made: its partition is there. changed: the book's clock.
    moved: the devices that it has now, where a machine failed and the server moved it.
    uid: whose job it is, -1 while that is not known. cluster, submitted: as `Life` has them.
    """

    job: int
    restart: int
    leader: int
    start: int
    order: int
    made: bool = False
    changed: int = 0
    moved: int = 0
    uid: int = -1
    cluster: str = ""
    submitted: int = 0

    @property
    def size(self) -> int:
        """Devices."""
        return 1 << self.order

    @property
    def bits(self) -> int:
        """Its devices."""
        return self.moved or block(self.start, self.order)

    @property
    def name(self) -> str:
        """Its partition, named as the fork of Slurm named it."""
        return f"slurm_{self.job}"

    @property
    def words(self) -> str:
        """The start of the job, as the partition carries it."""
        return Life(self.job, self.restart, self.leader, self.cluster, self.submitted).words


class Book:
    """All holdings of one pod."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.holdings: dict[int, Holding] = {}
        self.line = Line([])
        self.blocks = Blocks(0)
        self.broken: set[int] = set()  #: jobs that hold devices of a machine that is down
        self.away = 0  #: devices that nobody can have now
        self.closed = 0  #: blocks that are being emptied for a large job
        self.closed_for = 0  #: that job
        self._alone = False  # is it the only one that may have them
        self._clock = 0
        self._released: dict[int, int] = {}

    # -- changes -----------------------------------------------------------------------------

    def take(self, job: int, order: int, *, restart: int = 0, leader: int = 0) -> Holding | None:
        """A block for a job; None where none of that size is free. What is closed for a
        heterogeneous job is free to its parts."""
        mine = leader and leader == self.closed_for
        if mine:
            self.blocks.free |= self.closed & ~self.away & ~self.held()
        start = self.blocks.find(order)
        holding = None
        if start is not None:
            holding = self._add(Holding(job, restart, leader, start, order))
        if mine:
            self.blocks.free &= ~self.closed
        return holding

    def release(self, job: int) -> None:
        """The job holds nothing."""
        if self.holdings.pop(job, None) is not None:
            self._released[job] = self.tick()
            self._count()

    def close(self, devices: int, job: int = 0, *, alone: bool = False) -> None:
        """Nobody gets these devices until all of them are free, then whoever comes; alone: only
        that job's parts. 0: none are closed."""
        self.closed, self.closed_for, self._alone = devices, job, alone
        self._count()

    def tick(self) -> int:
        """The book's clock, moved on."""
        self._clock += 1
        return self._clock

    def _add(self, holding: Holding) -> Holding:
        holding.changed = self.tick()
        self.holdings[holding.job] = holding
        self.blocks.take(holding.start, holding.order)
        return holding

    def _count(self) -> None:
        free = self.blocks.capacity & ~self.away & ~self.held()
        if not self.closed & ~free and not self._alone:
            self.closed = self.closed_for = 0  # all of it is free: Slurm may count it again
        self.blocks.free = free & ~self.closed

    def held(self) -> int:
        """Devices that jobs hold."""
        out = 0
        for holding in self.holdings.values():
            out |= holding.bits
        return out

    # -- what Slurm is told ------------------------------------------------------------------

    def used(self, order: int) -> int:
        """Devices that ordinary jobs of 2**order and more hold."""
        return sum(h.size for h in self.holdings.values() if h.order >= order and not h.leader)

    def hidden(self) -> dict[str, int]:
        """How many of each block licence Slurm must not give out.

        Slurm shows total - used - hidden as free. What it has started and we have not heard of
        stays subtracted, since only the jobs that we know are taken out here.
        """
        out: dict[str, int] = {}
        wholes = self.blocks.wholes()
        for order in range(self.pod.orders):
            whole = wholes[order] if order < len(wholes) else 0
            hidden = self.pod.devices - self.used(order) - whole
            out[self.pod.block_licence(order)] = max(0, hidden)
        return out

    def all_hidden(self) -> dict[str, int]:
        """Nothing may start."""
        return {self.pod.block_licence(k): self.pod.devices for k in range(self.pod.orders)}

    # -- what the server says ----------------------------------------------------------------

    async def refresh(self, server: JobServer) -> None:
        """Take over what the server has, but for what changed while it was asked."""
        began = self.tick()
        devices = await server.devices(self.pod.cluster, self.pod.allocation)
        line = Line(devices)
        seen: dict[str, int] = {}
        away = 0
        broken: set[int] = set()
        for device in devices:
            bit = 1 << line.place(device)
            if device.partition:
                seen[device.partition] = seen.get(device.partition, 0) | bit
                job = job_of(device.partition)
                if job is not None and device.state in ("DOWN", "DRAINED"):
                    broken.add(job)
            elif device.state != "FREE":
                away |= bit
        strangers = {}
        for name, bits in seen.items():
            job = job_of(name)
            if job in self.holdings or (job is not None and self._released.get(job, 0) > began):
                continue
            strangers[name] = bits
        if line.capacity != self.blocks.capacity:
            self.line, self.blocks = line, Blocks(line.capacity)
        if strangers:
            found = await server.partitions(self.pod.cluster, self.pod.allocation)
            for info in found:
                bits = strangers.get(info.name, 0)
                if bits and not self._adopt(info, bits, began):
                    away |= bits
        for holding in list(self.holdings.values()):
            if not holding.made or holding.changed >= began:
                continue
            if holding.name not in seen:
                del self.holdings[holding.job]
            else:
                at = seen[holding.name]
                holding.moved = at if at != block(holding.start, holding.order) else 0
        self._released = {job: at for job, at in self._released.items() if at > began}
        self.broken = broken & self.holdings.keys()
        self.away = away
        self._count()

    def _adopt(self, info: PartitionInfo, bits: int, began: int) -> bool:
        """Is a partition that we did not know one of a job's? Then it is in the book."""
        said = life(info.job)
        job = job_of(info.name)
        if said is None or job is None or said.job != job:
            return False
        if job in self.holdings or self._released.get(job, 0) > began:
            return True
        start, order = (bits & -bits).bit_length() - 1, bits.bit_count().bit_length() - 1
        if bits != block(start, order) or start % (1 << order):
            return False
        holding = Holding(job, said.restart, said.leader, start, order, made=True)
        holding.uid, holding.cluster, holding.submitted = (
            info.owner_uid,
            said.cluster,
            said.submitted,
        )
        self._add(holding)
        return True


def job_of(partition: str) -> int | None:
    """The job that a partition's name says; None for others."""
    found = _NAME.fullmatch(partition)
    return int(found[1]) if found else None
