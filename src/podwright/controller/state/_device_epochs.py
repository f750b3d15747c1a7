"""The numbers that tell an old claim to devices from a newer one."""

from __future__ import annotations

from typing import Final

EPOCH_SHIFT: Final = 28  #: device epochs per server epoch; below 2**53 for 32 million restarts


class DeviceEpochs:
    """Gives out device epochs, each higher than all before it. floor: see below.

    No counter is written down. An epoch is `(server epoch << EPOCH_SHIFT) + floor + n`, where n
    counts from the start of the server. Each opening of the store makes the server epoch durably
    higher, before anything is given out. So after a crash all epochs exceed those of the life
    before, however far its counter came.

    Devices that served another store may have seen higher epochs, and refuse all below. `floor` is
    the highest such epoch. It is the only number that is written down, in one commit with the
    machine that brought it. The order is: `exceeded_by` tells that a floor is needed, the commit
    makes it durable, and only then `raise_floor` counts from it. Other devices get epochs
    meanwhile, some of them without an intent that is written down. If these were counted from a
    floor that a crash forgets, the devices would refuse the epochs of the next start. The machine
    itself gets no epoch before the commit, and after a crash a later meeting finds the same floor.
    Whoever does this holds a lock, so there is one such commit at a time.
    """

    def __init__(self) -> None:
        self.floor = 0
        self._last = 0

    def begin(self, server_epoch: int) -> None:
        """Begin the counter of this start of the server. `floor` has been read before."""
        self._last = (server_epoch << EPOCH_SHIFT) + self.floor

    def exceeded_by(self, seen_epoch: int) -> bool:
        """Return whether devices that have seen this epoch would refuse the next one."""
        return seen_epoch >= self._last

    def raise_floor(self, seen_epoch: int) -> None:
        """Give out only epochs above this one, which is written down as the floor."""
        self._last += seen_epoch - self.floor
        self.floor = seen_epoch

    def next(self) -> int:
        """A device epoch higher than all before."""
        self._last += 1
        return self._last
