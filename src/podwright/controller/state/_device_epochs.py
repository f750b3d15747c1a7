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
    machine that brought it: a crash before that forgets both, and a later meeting finds the same.
    That commit begins without waiting after `raise_floor`, so every intent with a higher epoch is
    written down after it.
    """

    def __init__(self) -> None:
        self.floor = 0
        self._last = 0

    def begin(self, server_epoch: int) -> None:
        """Begin the counter of this start of the server. `floor` has been read before."""
        self._last = (server_epoch << EPOCH_SHIFT) + self.floor

    def raise_floor(self, seen: int) -> bool:
        """Devices that have seen this epoch come to us. Returns whether `floor` is another now,
        which must be written down."""
        if seen < self._last:
            return False
        self._last += seen - self.floor
        self.floor = seen
        return True

    def next(self) -> int:
        """A device epoch higher than all before."""
        self._last += 1
        return self._last
