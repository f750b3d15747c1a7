"""The rig that a driver's own tests give to the fault kit: the driver, and a fabric with faults.

A rig stands for one fabric with a few machines, or for a fabric inside one machine. It answers the
driver as the real one would, except when a fault is injected. It tells the kit which devices are
really joined. A driver never sees that truth.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol, runtime_checkable

from podwright.agents import FabricDevice, FabricDriver, FabricJournal


class ContractBroken(AssertionError):
    """A driver broke the contract of fabric drivers. The text says where and how."""


class Killed(BaseException):
    """The process that runs the driver ends here. Nothing of it runs afterwards.

    This is a BaseException, so that no `except Exception` of a driver outlives its process.
    """


class FabricFault(enum.Enum):
    """The faults that a rig can inject. Each lasts until the rig is healed."""

    LIE = "lie"  #: the next change is reported as done, and nothing was done
    HALF_DONE = "half-done"  #: the next change appears in one of the fabric's two records only
    SLOW = "slow"  #: the next change takes effect long after the driver's patience
    NULL_FIELDS = "null-fields"  #: whatever may be null is null
    REORDERED = "reordered"  #: lists come in another order each time
    MISSING_MACHINE = "missing-machine"  #: a machine's devices are not listed
    DROPPED_ANSWER = "dropped-answer"  #: the next change is made, and its answer is lost
    REFUSED = "refused"  #: the next change fails, and the fabric says so
    FOREIGN_PARTITION = "foreign-partition"  #: somebody else takes free devices now
    OTHER_WRITER = "other-writer"  #: somebody else takes free devices during the next change
    STALE_TAG = "stale-tag"  #: the tag that the next change is made with is out of date
    KILL_BEFORE = "kill-before"  #: the driver's process ends before a request of the next change
    KILL_AFTER = "kill-after"  #: the process ends after such a request took effect


@dataclass(frozen=True)
class FabricTruth:
    """The devices that are really joined. ours: Podwright's partitions, by name. foreign: all
    others.
    """

    ours: Mapping[str, frozenset[FabricDevice]]
    foreign: Mapping[str, frozenset[FabricDevice]]


class RequestGate:
    """Stops one request of a driver until it is opened, like a network that delays the request."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def open(self) -> None:
        """Let the stopped request, and all later ones, pass."""
        self._open.set()
        self.reached.set()

    def pass_through(self) -> None:
        """Wait until the gate opens. The rig calls this in the driver's thread."""
        self.reached.set()
        self._open.wait(60)


class FabricRig(Protocol):
    """One fabric with its faults. All changes of the driver go through it."""

    @property
    def machines(self) -> Mapping[str, int]:
        """The number of devices of each machine: one machine or several, five devices or more."""
        ...

    def driver(self, journal: FabricJournal) -> FabricDriver:
        """Return a driver, as in a process of its own. It is called again after a kill."""
        ...

    def truth(self) -> FabricTruth:
        """Return the devices that are really joined."""
        ...

    def foreign(self) -> Mapping[str, frozenset[FabricDevice]]:
        """Return other parties' partitions exactly as these made them."""
        ...

    def violations(self) -> Sequence[str]:
        """Return the driver's forbidden actions, as the fabric saw them.

        An example is a change that was sent again while the first was under way.
        """
        ...

    def inject(self, fault: FabricFault, random: Random) -> bool:
        """Inject a fault. Returns False when this kind of fabric cannot have it."""
        ...

    def gate(self) -> RequestGate | None:
        """Stop the next changing request before it takes effect; None when that is impossible."""
        ...

    def heal(self) -> None:
        """End all faults. Slow changes end now."""
        ...


class FabricCondition(enum.Enum):
    """A state of a fabric that no call of the driver has caused. It lasts until the rig is healed,
    but for devices that are lost or put back.
    """

    UNHEALTHY = "unhealthy"  #: a partition of Podwright's must not be used
    UNKNOWN_MEMBER = "unknown-member"  #: such a partition has a member that is no known device
    NO_LINK = "no-link"  #: free devices that cannot be joined
    WRONG_IDENTITY = "wrong-identity"  #: free devices that the fabric knows as something else
    LOST_DEVICE = "lost-device"  #: somebody took devices out of a partition of Podwright's
    LATE_ARRIVAL = "late-arrival"  #: an old request put free devices into such a partition


class Affected(NamedTuple):
    """What a condition is about. partition: empty where it is about devices alone."""

    partition: str = ""
    devices: frozenset[FabricDevice] = frozenset()


@runtime_checkable
class Changeable(Protocol):
    """A rig whose fabric can change between two calls."""

    def change(self, condition: FabricCondition, random: Random) -> Affected | None:
        """Bring a condition about. Returns None when this fabric cannot have it now."""
        ...


@runtime_checkable
class DataPlane(Protocol):
    """A rig that knows which devices reach each other, beside the recorded partitions."""

    def reaches(self, device: FabricDevice, peer: FabricDevice) -> bool:
        """Return whether data that one device sends arrives at the other."""
        ...


@dataclass
class VirtualTime:
    """A clock that advances only by sleeping, for `FabricTiming`."""

    now: float = 0.0
    slept: int = field(default=0, repr=False)

    def clock(self) -> float:
        """Return the seconds that have passed."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let that many seconds pass."""
        self.now += seconds
        self.slept += 1
