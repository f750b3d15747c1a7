"""A pod in native mode: aligned blocks on a line, chosen by the product's own rule."""

from __future__ import annotations

import math
from collections.abc import Mapping

from podwright.fabric import IPU
from podwright.ground.plural import counted
from podwright.placement.buddy_blocks import BuddyBlocks, block, every, fit, soonest
from podwright.replay.grounds._ground import (
    DeviceSpan,
    Ground,
    MachinesGround,
    StartAnswer,
    UnfitJob,
)

#: How a block is chosen. `best-fit` is native mode's own rule.
POLICIES = ("best-fit", "lowest", "moves", "trim", "no-shape")
_DEVICES_PER_MACHINE = IPU.devices_per_machine


class PodGround(Ground):
    """The devices of one pod. largest_partition: devices of its largest partition.

    closed: the devices of a block that is being emptied, as a bit mask. closed_for: the job that it
    is for, or -1.
    """

    def __init__(
        self,
        way_name: str,
        device_count: int,
        *,
        policy: str = "best-fit",
        largest_partition: int = 0,
    ) -> None:
        self.name, self.size, self.policy = way_name, device_count, policy
        if policy == "trim":
            self.simpler = (
                "trim takes a part of an aligned block: switched fabrics can, V-IPU's IPUs cannot.",
            )
        self.largest = largest_partition or 1 << device_count.bit_length() - 1
        self.blocks = BuddyBlocks((1 << device_count) - 1)
        self.free = self.blocks.capacity
        self.unusable = 0
        self.closed, self.closed_for = 0, -1
        self.jobs: dict[int, tuple[int, float]] = {}
        self._leaving_masks: dict[int, int] = {}  # devices that a moved job is still leaving
        self._aligned_starts = [
            every(order, device_count) for order in range(device_count.bit_length() + 1)
        ]

    @property
    def machines(self) -> int:
        """The number of machines that may fail."""
        return self.size // _DEVICES_PER_MACHINE

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
            raise UnfitJob(f"more than {counted(self.largest, 'device')}")
        return devices << 8 | order if self.policy == "trim" else order

    def devices_for(self, demand: int) -> int:
        """Return the number of devices."""
        return demand >> 8 if self.policy == "trim" else 1 << demand

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Take a block for a job."""
        order = demand & 255
        block_start = self._find_block(order)
        if block_start is None:
            return StartAnswer.LICENCES
        count = self.devices_for(demand)
        mask = ((1 << count) - 1) << block_start
        self.jobs[job] = mask, end
        self.occupied += count
        self.free &= ~mask
        self.blocks.free &= ~mask
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """Free the job's block."""
        mask, _ = self.jobs.pop(job)
        mask |= self._leaving_masks.pop(job, 0)
        self.occupied -= mask.bit_count()
        self.free |= mask & ~self.unusable
        self._refresh_open_blocks()

    def spans(self, job: int) -> list[DeviceSpan]:
        """Return the job's block."""
        mask = self.jobs[job][0]
        return [((mask & -mask).bit_length() - 1, mask.bit_count())]

    def _find_block(self, block_order: int) -> int | None:
        if self.policy != "lowest":
            return self.blocks.find(block_order)
        mask = self.blocks.free
        for lower_order in range(block_order):
            mask &= mask >> (1 << lower_order)
        mask &= self._aligned_starts[block_order]
        return (mask & -mask).bit_length() - 1 if mask else None

    def _refresh_open_blocks(self) -> None:
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
        block_order = demand & 255
        occupied_blocks = [
            (block_mask, end_times[running_job])
            for running_job, (block_mask, _) in self.jobs.items()
        ]
        occupied_blocks += [
            (leaving_mask, -math.inf) for leaving_mask in self._leaving_masks.values()
        ]
        self.closed = soonest(
            self.blocks.capacity, self.unusable, occupied_blocks, [block_order], first=-math.inf
        )
        self.closed_for = job if self.closed else -1
        self._refresh_open_blocks()

    def open(self) -> None:
        """Make the closed block available again."""
        self.closed, self.closed_for = 0, -1
        self._refresh_open_blocks()

    # -- moves -----------------------------------------------------------------------------------

    def move(self, job: int, block_order: int) -> None:
        """Give a job other devices. Its former devices are held until `left` is called."""
        block_start = self.blocks.find(block_order)
        assert block_start is not None
        old_mask, end_time = self.jobs[job]
        new_mask = block(block_start, block_order)
        self.jobs[job] = new_mask, end_time
        self._leaving_masks[job] = old_mask
        self.occupied += new_mask.bit_count()
        self.free &= ~new_mask
        self.blocks.free &= ~new_mask

    def left(self, job: int) -> None:
        """Free the former devices of a job that has moved."""
        mask = self._leaving_masks.pop(job, 0)
        self.occupied -= mask.bit_count()
        self.free |= mask & ~self.unusable
        self._refresh_open_blocks()

    # -- machines that fail ----------------------------------------------------------------------

    def fail(self, machine: int) -> list[int]:
        """Mark a machine's devices as away. Returns the jobs on them."""
        machine_mask = ((1 << _DEVICES_PER_MACHINE) - 1) << machine * _DEVICES_PER_MACHINE
        self.unusable |= machine_mask
        self.free &= ~machine_mask
        self._refresh_open_blocks()
        return [job for job, (job_mask, _) in self.jobs.items() if job_mask & machine_mask]

    def repair(self, machine: int) -> None:
        """Mark the machine's devices as present again."""
        machine_mask = ((1 << _DEVICES_PER_MACHINE) - 1) << machine * _DEVICES_PER_MACHINE
        self.unusable &= ~machine_mask
        occupied_mask = 0
        for job, (job_mask, _) in self.jobs.items():
            occupied_mask |= job_mask | self._leaving_masks.get(job, 0)
        self.free |= machine_mask & ~occupied_mask
        self._refresh_open_blocks()


class ShapelessGround(MachinesGround):
    """Devices without a shape, of which only the number counts. Other ways are compared with it.

    closed: the number of devices that are kept for the job `closed_for` as they become free.
    """

    policy = "no-shape"
    simpler = ("no-shape is a measure for the others: no pod can join any devices.",)

    def __init__(self, way_name: str, device_count: int) -> None:
        super().__init__(way_name, device_count, per_machine=_DEVICES_PER_MACHINE)
        self.closed, self.closed_for = 0, -1
        self._jobs: dict[int, int] = {}

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Return the job's number of devices."""
        if devices > self.size:
            raise UnfitJob(f"more than {counted(self.size, 'device')}")
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

    def spans(self, job: int) -> list[DeviceSpan]:
        """Return nothing, since the devices have no position."""
        return []

    def fail(self, machine: int) -> list[int]:
        """Mark a machine as down. Returns its jobs, if jobs occupied devices in the order of their
        starts.
        """
        self._failed_machines.add(machine)
        device, job_start, hit_jobs = machine * _DEVICES_PER_MACHINE, 0, []
        for job, device_count in self._jobs.items():
            if job_start < device + _DEVICES_PER_MACHINE and job_start + device_count > device:
                hit_jobs.append(job)
            job_start += device_count
        return hit_jobs
