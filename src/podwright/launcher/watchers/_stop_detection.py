"""Detects that this process stood still: it was stopped, as by `scontrol suspend`, or the machine
slept.

A process that stood still has read no messages. So the silence of others proves nothing, and they
may have stood still too. It therefore counts all of them as heard now. The devices are safe
meanwhile: the server itself fences those of an expired lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds beyond the planned pause. A busy machine may take some of them.
STILL_SECONDS = 4.0


def boottime() -> float:
    """Return seconds of a clock that also counts the time in which the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LoopTurns:
    """The turns of a loop. clock: one that goes on while the process stands still."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._last_turn = clock, clock()

    def stood_still(self, pause: float) -> bool:
        """Return whether this turn came far later than `pause` seconds after the one before."""
        previous_turn, self._last_turn = self._last_turn, self._clock()
        return self._last_turn - previous_turn > pause + STILL_SECONDS
