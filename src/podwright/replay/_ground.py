"""What jobs are placed on, each way of scheduling its own: who fits, who holds what."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod


class Unfit(Exception):
    """A job that a way refuses when it is submitted. reason: in words that many jobs share."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StartAnswer(enum.Enum):
    """What came of an attempt to start a job."""

    TAKEN = "it has its devices"
    LICENCES = "no licences: Slurm passes it"
    NODES = "no nodes: Slurm's main scheduler stops at it"


#: Devices side by side: the first, and how many.
Span = tuple[int, int]


class Ground(ABC):
    """The devices of a site under one way. Changed in place by one simulation.

    name: of the way, as it was asked for. size: devices. taken: those that jobs hold, rounded up
    as the way does. plans: may a lack of nodes stop the queue, so that backfill is needed?
    simpler: what of it is simpler than the real way, in words.
    """

    name: str
    size: int
    taken: int = 0
    plans: bool = False
    simpler: tuple[str, ...] = ()

    @abstractmethod
    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """The kind of job that this is: jobs of one kind fit together or not at all.

        Raises Unfit for one that could never start.
        """

    @abstractmethod
    def held(self, demand: int) -> int:
        """Devices that a job of this kind holds."""

    @abstractmethod
    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Start a job, if it fits now. end: when its time is over, infinite where it has none."""

    @abstractmethod
    def give(self, job: int) -> None:
        """The job holds nothing any more."""

    @abstractmethod
    def spans(self, job: int) -> list[Span]:
        """Where a running job's devices are."""

    def units(self, demand: int) -> int:
        """What backfill counts of such a job."""
        return self.held(demand)

    def free_units(self) -> int:
        """What is free of that."""
        return self.size - self.taken - self.lost

    @property
    @abstractmethod
    def machines(self) -> int:
        """How many may fail."""

    @property
    @abstractmethod
    def lost(self) -> int:
        """Devices of those that are away."""

    @abstractmethod
    def fail(self, machine: int) -> list[int]:
        """A machine is away. The jobs that it ends, which still hold what they held."""

    @abstractmethod
    def repair(self, machine: int) -> None:
        """It is there again."""


class MachinesGround(Ground):
    """A ground that keeps which of its machines are away. per_machine: devices of each."""

    def __init__(self, name: str, size: int, *, per_machine: int) -> None:
        self.name, self.size, self.per_machine = name, size, per_machine
        self._away: set[int] = set()

    @property
    def machines(self) -> int:
        """How many may fail."""
        return self.size // self.per_machine

    @property
    def lost(self) -> int:
        """Devices of those that are away."""
        return len(self._away) * self.per_machine

    def repair(self, machine: int) -> None:
        """It is there again."""
        self._away.discard(machine)
