"""The interface of a ground, on which jobs are placed. Each way of scheduling has its own
ground.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod


class UnfitJob(Exception):
    """A job that a way refuses when it is submitted. reason: in words that are the same for many
    jobs.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StartAnswer(enum.Enum):
    """The result of an attempt to start a job."""

    TAKEN = "it has its devices"
    LICENCES = "no licences: Slurm passes it"
    NODES = "no nodes: Slurm's main scheduler stops at it"


#: Contiguous devices: the first, and their number.
DeviceSpan = tuple[int, int]


class Ground(ABC):
    """The devices of a site under one way. One simulation changes it in place.

    name: of the way, as the user typed it. size: the number of devices. occupied: the devices that
    jobs hold, rounded up as the way does. plans: whether a lack of nodes may stop the queue, so
    that backfill is needed. simpler: in which points it is simpler than the real way, in words.
    """

    name: str
    size: int
    occupied: int = 0
    plans: bool = False
    simpler: tuple[str, ...] = ()

    @abstractmethod
    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Return the kind of this job. Jobs of one kind fit together or not at all.

        Raises UnfitJob for a job that could never start.
        """

    @abstractmethod
    def devices_for(self, demand: int) -> int:
        """Return the devices that a job of this kind holds."""

    @abstractmethod
    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Start a job, if it fits now. end: when its time limit is over, infinite without a
        limit.
        """

    @abstractmethod
    def give(self, job: int) -> None:
        """Free everything that the job holds."""

    @abstractmethod
    def spans(self, job: int) -> list[DeviceSpan]:
        """Return the devices of a running job."""

    def units(self, demand: int) -> int:
        """Return the units that backfill counts for such a job."""
        return self.devices_for(demand)

    def free_units(self) -> int:
        """Return the number of free units."""
        return self.size - self.occupied - self.lost

    @property
    @abstractmethod
    def machines(self) -> int:
        """The number of machines that may fail."""

    @property
    @abstractmethod
    def lost(self) -> int:
        """The number of devices of the machines that are down."""

    @abstractmethod
    def fail(self, machine: int) -> list[int]:
        """Mark a machine as down. Returns the jobs that this ends, which still hold their
        devices.
        """

    @abstractmethod
    def repair(self, machine: int) -> None:
        """Mark the machine as present again."""


class MachinesGround(Ground):
    """A ground that keeps which of its machines are away. per_machine: devices of each."""

    def __init__(self, way_name: str, device_count: int, *, per_machine: int) -> None:
        self.name, self.size, self.per_machine = way_name, device_count, per_machine
        self._failed_machines: set[int] = set()

    @property
    def machines(self) -> int:
        """The number of machines that may fail."""
        return self.size // self.per_machine

    @property
    def lost(self) -> int:
        """The number of devices of the machines that are down."""
        return len(self._failed_machines) * self.per_machine

    def repair(self, machine: int) -> None:
        """Mark the machine as present again."""
        self._failed_machines.discard(machine)
