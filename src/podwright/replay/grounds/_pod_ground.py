"""A pod in native mode: aligned blocks on a line, chosen by the product's own rule."""

from __future__ import annotations

import math
from collections.abc import Mapping

from podwright.fabric import IPU
from podwright.placement.buddy_blocks import BuddyBlocks, block, every, fit, soonest
from podwright.replay.grounds._ground import Ground, MachinesGround, Span, StartAnswer, Unfit

#: How a block is chosen. `best-fit` is native mode's own rule.
POLICIES = ("best-fit", "lowest", "moves", "trim", "no-shape")
_MACHINE = IPU.devices_per_machine


class PodGround(Ground):
    """The devices of one pod. largest: devices of its largest partition.

    closed: the devices of a block that is being emptied, as a bit mask. closed_for: the job that it
    is for, or -1.
    """

    def __init__(self, name: str, size: int, *, policy: str = "best-fit", largest: int = 0) -> None:
        self.name, self.size, self.policy = name, size, policy
        if policy == "trim":
            self.simpler = (
                "trim takes a part of an aligned block: switched fabrics can, V-IPU's IPUs cannot.",
            )
        self.largest = largest or 1 << size.bit_length() - 1
        self.blocks = BuddyBlocks((1 << size) - 1)
        self.free = self.blocks.capacity
        self.unusable = 0
        self.closed, self.closed_for = 0, -1
        self.jobs: dict[int, tuple[int, float]] = {}
        self._leaving: dict[int, int] = {}  # devices that a moved job is still leaving
        self._grids = [every(order, size) for order in range(size.bit_length() + 1)]

    @property
    def machines(self) -> int:
        """The number of machines that may fail."""
        return self.size // _MACHINE

    @property
    def lost(self) -> int:
        """The number of devices of the machines that are down."""
        return self.unusable.bit_count()

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Return the order of the job's block; under `trim`, also the number of devices that it
        takes.
        """
        order = (devices - 1).bit_length()
        if 1 << order > self.largest:
            raise Unfit(f"more than {self.largest} devices")
        return devices << 8 | order if self.policy == "trim" else order

    def devices_for(self, demand: int) -> int:
        """Return the number of devices."""
        return demand >> 8 if self.policy == "trim" else 1 << demand

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Take a block for a job."""
        order = demand & 255
        start = self._find(order)
        if start is None:
            return StartAnswer.LICENCES
        count = self.devices_for(demand)
        mask = ((1 << count) - 1) << start
        self.jobs[job] = mask, end
        self.occupied += count
        self.free &= ~mask
        self.blocks.free &= ~mask
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """Free the job's block."""
        mask, _ = self.jobs.pop(job)
        mask |= self._leaving.pop(job, 0)
        self.occupied -= mask.bit_count()
        self.free |= mask & ~self.unusable
        self._count()

    def spans(self, job: int) -> list[Span]:
        """Return the job's block."""
        mask = self.jobs[job][0]
        return [((mask & -mask).bit_length() - 1, mask.bit_count())]

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
            self.closed, self.closed_for = 0, -1  # the whole block is free: it is available again
        self.blocks.free = self.free & ~self.closed

    # -- room ------------------------------------------------------------------------------------

    def fits(self, demand: int) -> bool:
        """Return whether a block of that size is free now."""
        return fit(self.blocks, [demand & 255])

    def close(self, job: int, demand: int, end_times: Mapping[int, float]) -> None:
        """Close the block whose jobs end soonest, for a job that small ones would pass
        otherwise.
        """
        order = demand & 255
        occupied = [(mask, end_times[number]) for number, (mask, _) in self.jobs.items()]
        occupied += [(bits, -math.inf) for bits in self._leaving.values()]
        self.closed = soonest(
            self.blocks.capacity, self.unusable, occupied, [order], first=-math.inf
        )
        self.closed_for = job if self.closed else -1
        self._count()

    def open(self) -> None:
        """Make the closed block available again."""
        self.closed, self.closed_for = 0, -1
        self._count()

    # -- moves -----------------------------------------------------------------------------------

    def move(self, job: int, order: int) -> None:
        """Give a job other devices. Its former devices are held until `left` is called."""
        start = self.blocks.find(order)
        assert start is not None
        old, end = self.jobs[job]
        new = block(start, order)
        self.jobs[job] = new, end
        self._leaving[job] = old
        self.occupied += new.bit_count()
        self.free &= ~new
        self.blocks.free &= ~new

    def left(self, job: int) -> None:
        """Free the former devices of a job that has moved."""
        bits = self._leaving.pop(job, 0)
        self.occupied -= bits.bit_count()
        self.free |= bits & ~self.unusable
        self._count()

    # -- machines that fail ----------------------------------------------------------------------

    def fail(self, machine: int) -> list[int]:
        """Mark a machine's devices as away. Returns the jobs on them."""
        bits = ((1 << _MACHINE) - 1) << machine * _MACHINE
        self.unusable |= bits
        self.free &= ~bits
        self._count()
        return [job for job, (mask, _) in self.jobs.items() if mask & bits]

    def repair(self, machine: int) -> None:
        """Mark the machine's devices as present again."""
        bits = ((1 << _MACHINE) - 1) << machine * _MACHINE
        self.unusable &= ~bits
        occupied = 0
        for job, (mask, _) in self.jobs.items():
            occupied |= mask | self._leaving.get(job, 0)
        self.free |= bits & ~occupied
        self._count()


class Counted(MachinesGround):
    """Devices without a shape, of which only the number counts. Other ways are compared with it.

    closed: the number of devices that are kept for the job `closed_for` as they become free.
    """

    policy = "no-shape"
    simpler = ("no-shape is a measure for the others: no pod can join any devices.",)

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size, per_machine=_MACHINE)
        self.closed, self.closed_for = 0, -1
        self._jobs: dict[int, int] = {}

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Return the job's number of devices."""
        if devices > self.size:
            raise Unfit(f"more than {self.size} devices")
        return devices

    def devices_for(self, demand: int) -> int:
        """Return the number of devices."""
        return demand

    def fits(self, demand: int) -> bool:
        """Return whether that many devices are free."""
        return self.occupied + demand <= self.size - self.lost

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Take that many devices."""
        if not self.fits(demand) or (self.closed and job != self.closed_for):
            return StartAnswer.LICENCES
        if job == self.closed_for:
            self.open()
        self._jobs[job] = demand
        self.occupied += demand
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """Free the job's devices."""
        self.occupied -= self._jobs.pop(job)

    def close(self, job: int, demand: int, end_times: Mapping[int, float]) -> None:
        """Keep devices, free ones and those that become free, for a job until they are enough."""
        self.closed, self.closed_for = demand, job

    def open(self) -> None:
        """Make the kept devices available to all jobs again."""
        self.closed, self.closed_for = 0, -1

    def spans(self, job: int) -> list[Span]:
        """Return nothing, since the devices have no position."""
        return []

    def fail(self, machine: int) -> list[int]:
        """Mark a machine as down. Returns its jobs, if jobs occupied devices in the order of their
        starts.
        """
        self._failed_machines.add(machine)
        first, start, hit = machine * _MACHINE, 0, []
        for job, count in self._jobs.items():
            if start < first + _MACHINE and start + count > first:
                hit.append(job)
            start += count
        return hit
