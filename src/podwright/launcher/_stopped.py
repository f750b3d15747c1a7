"""Whether this process stood still: it was stopped, as by `scontrol suspend`, or the machine slept.

Who stood still has heard nobody, and that says nothing about the others, who may have stood still
with it. It gives them as long again as if they had just been heard. Meanwhile devices are safe
without it: whose time is over is fenced there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds beyond what it wanted to wait; a busy machine may take some of them.
STILL = 4.0


def boottime() -> float:
    """Seconds, those included in which the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Turns:
    """The turns of a loop. clock: one that goes on while the process stands still."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._at = clock, clock()

    def stood_still(self, pause: float) -> bool:
        """Whether this turn came far later than `pause` seconds after the one before."""
        last, self._at = self._at, self._clock()
        return self._at - last > pause + STILL
