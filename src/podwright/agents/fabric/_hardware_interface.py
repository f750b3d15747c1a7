"""The calls that one kind of fabric must offer, so that `OrderedFabric` can drive it safely.

An implementation makes single requests and reports what there is. It decides nothing. The order of
calls, epochs, the journal, refusals and the reading back are the same for all kinds of fabrics, and
are in `_journaled_driver`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from podwright.agents._fabric_driver_interface import FabricDevice, FabricReading


class FabricHardware(Protocol):
    """One fabric, in calls that block. All raise PodwrightError.

    `add` and `remove` return when the fabric reports that the change is done. The caller believes
    it only after `read` shows it. Both send their request even when the partition already has the
    wanted devices, because the request also repairs disputed devices. `add` takes devices out of
    the default partition, and out of no other.
    """

    #: The name of the fabric for people.
    kind: str

    def settle(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """Wait until the fabric works on no request that concerns this partition or these devices.

        Whoever sent the request. partition: empty for a call that takes devices out of partitions.
        Raises Unavailable when that takes too long.
        """
        ...

    def read(
        self, devices: Iterable[FabricDevice], machines: Collection[str] = ()
    ) -> FabricReading:
        """Return the state of the fabric.

        devices: those that the caller must know about. machines: all of their devices are looked
        at; one that has no identity is not known to the fabric, and is no error.
        Raises Internal for a device whose identity contradicts the fabric's record of it.
        """
        ...

    def add(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """Put devices into a partition, which is created if it does not exist."""
        ...

    def remove(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """Take devices out of a partition. The partition is deleted with its last device."""
        ...


@dataclass(frozen=True)
class FabricTiming:
    """The time limits of a driver.

    patience: seconds for a change, and again for its reading back. clock, sleep: the time, which
    tests replace.
    """

    patience: float = 25.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def pauses(self) -> Iterable[None]:
        """Yield at once, then after growing pauses of up to a second, until the patience is used
        up.
        """
        deadline, seconds = self.clock() + self.patience, 0.05
        yield
        while self.clock() < deadline:
            self.sleep(seconds)
            seconds = min(2 * seconds, 1.0)
            yield
