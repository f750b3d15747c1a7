"""A pod as native mode has it: aligned blocks on a line, chosen as the product chooses them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from podwright.fabric import IPU
from podwright.placement.buddy_blocks import Blocks, block, every, fit, soonest
from podwright.replay._ground import Ground, MachinesGround, Span, StartAnswer, Unfit

#: How a block is chosen. `best-fit` is native mode's own rule.
POLICIES = ("best-fit", "lowest", "moves", "trim", "no-shape")
_MACHINE = IPU.devices_per_machine


class PodGround(Ground):
    """So many devices behind a fabric. largest: devices of the largest partition there.

    closed: a block that is being emptied, closed_for: the job that it is for, or -1.
    """

    def __init__(self, name: str, size: int, *, policy: str = "best-fit", largest: int = 0) -> None:
        self.name, self.size, self.policy = name, size, policy
        if policy == "trim":
            self.simpler = (
                "trim takes a part of an aligned block: switched fabrics can, V-IPU's IPUs cannot.",
            )
        self.largest = largest or 1 << size.bit_length() - 1
        self.blocks = Blocks((1 << size) - 1)
        self.free = self.blocks.capacity
        self.away = 0
        self.closed, self.closed_for = 0, -1
        self.jobs: dict[int, tuple[int, float]] = {}
        self._leaving: dict[int, int] = {}  # devices that a job which moved still writes from
        self._grids = [every(order, size) for order in range(size.bit_length() + 1)]

    @property
    def machines(self) -> int:
        """How many may fail."""
        return self.size // _MACHINE

    @property
    def lost(self) -> int:
        """Devices of those that are away."""
        return self.away.bit_count()

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """The order of its block; trimmed, also how many of it are taken."""
        order = (devices - 1).bit_length()
        if 1 << order > self.largest:
            raise Unfit(f"more than {self.largest} devices")
        return devices << 8 | order if self.policy == "trim" else order

    def held(self, demand: int) -> int:
        """Devices."""
        return demand >> 8 if self.policy == "trim" else 1 << demand

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """A block for a job."""
        order = demand & 255
        start = self._find(order)
        if start is None:
            return StartAnswer.LICENCES
        count = self.held(demand)
        taken = ((1 << count) - 1) << start
        self.jobs[job] = taken, end
        self.taken += count
        self.free &= ~taken
        self.blocks.free &= ~taken
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """Its block can be had again."""
        taken, _ = self.jobs.pop(job)
        taken |= self._leaving.pop(job, 0)
        self.taken -= taken.bit_count()
        self.free |= taken & ~self.away
        self._count()

    def spans(self, job: int) -> list[Span]:
        """One block."""
        taken = self.jobs[job][0]
        return [((taken & -taken).bit_length() - 1, taken.bit_count())]

    def _find(self, order: int) -> int | None:
        if self.policy != "lowest":
            return self.blocks.find(order)
        starts = self.blocks.free
        for below in range(order):
            starts &= starts >> (1 << below)
        starts &= self._grids[order]
        return (starts & -starts).bit_length() - 1 if starts else None

    def _count(self) -> None:
        if not self.closed & ~self.free:
            self.closed, self.closed_for = 0, -1  # all of it is free: it is counted again
        self.blocks.free = self.free & ~self.closed

    # -- room ------------------------------------------------------------------------------------

    def fits(self, demand: int) -> bool:
        """Is there a block for it now?"""
        return fit(self.blocks, [demand & 255])

    def close(self, job: int, demand: int, ends: Mapping[int, float]) -> None:
        """Empty the block whose jobs end soonest, for a job that small ones would else pass."""
        order = demand & 255
        held = [(taken, ends[one]) for one, (taken, _) in self.jobs.items()]
        held += [(bits, -math.inf) for bits in self._leaving.values()]
        self.closed = soonest(self.blocks.capacity, self.away, held, [order], first=-math.inf)
        self.closed_for = job if self.closed else -1
        self._count()

    def open(self) -> None:
        """What was being emptied is counted again."""
        self.closed, self.closed_for = 0, -1
        self._count()

    # -- moves -----------------------------------------------------------------------------------

    def move(self, job: int, order: int) -> None:
        """A job's devices are others from here on; those that it leaves are held till `left`."""
        start = self.blocks.find(order)
        assert start is not None
        old, end = self.jobs[job]
        new = block(start, order)
        self.jobs[job] = new, end
        self._leaving[job] = old
        self.taken += new.bit_count()
        self.free &= ~new
        self.blocks.free &= ~new

    def left(self, job: int) -> None:
        """What a job that moved has left is free."""
        bits = self._leaving.pop(job, 0)
        self.taken -= bits.bit_count()
        self.free |= bits & ~self.away
        self._count()

    # -- machines that fail ----------------------------------------------------------------------

    def fail(self, machine: int) -> list[int]:
        """A machine's devices are away."""
        bits = ((1 << _MACHINE) - 1) << machine * _MACHINE
        self.away |= bits
        self.free &= ~bits
        self._count()
        return [job for job, (taken, _) in self.jobs.items() if taken & bits]

    def repair(self, machine: int) -> None:
        """They are there again."""
        bits = ((1 << _MACHINE) - 1) << machine * _MACHINE
        self.away &= ~bits
        held = 0
        for job, (taken, _) in self.jobs.items():
            held |= taken | self._leaving.get(job, 0)
        self.free |= bits & ~held
        self._count()


class Counted(MachinesGround):
    """Devices that have no shape: what a plain count would do. The others are held against it.

    closed: devices that are kept for `closed_for`, the first in the queue, as they come free.
    """

    policy = "no-shape"
    simpler = ("no-shape is a measure for the others: no pod can join any devices.",)

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size, per_machine=_MACHINE)
        self.closed, self.closed_for = 0, -1
        self._jobs: dict[int, int] = {}

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Its count."""
        if devices > self.size:
            raise Unfit(f"more than {self.size} devices")
        return devices

    def held(self, demand: int) -> int:
        """Devices."""
        return demand

    def fits(self, demand: int) -> bool:
        """Are so many free?"""
        return self.taken + demand <= self.size - self.lost

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """So many of them."""
        if not self.fits(demand) or (self.closed and job != self.closed_for):
            return StartAnswer.LICENCES
        if job == self.closed_for:
            self.open()
        self._jobs[job] = demand
        self.taken += demand
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """They are free."""
        self.taken -= self._jobs.pop(job)

    def close(self, job: int, demand: int, ends: Mapping[int, float]) -> None:
        """What is free, and comes free, is kept for a job until it is enough."""
        self.closed, self.closed_for = demand, job

    def open(self) -> None:
        """Anybody may have it again."""
        self.closed, self.closed_for = 0, -1

    def spans(self, job: int) -> list[Span]:
        """None: they are nowhere."""
        return []

    def fail(self, machine: int) -> list[int]:
        """Jobs have a machine's devices in the order in which they began."""
        self._away.add(machine)
        first, at, hit = machine * _MACHINE, 0, []
        for job, count in self._jobs.items():
            if at < first + _MACHINE and at + count > first:
                hit.append(job)
            at += count
        return hit
