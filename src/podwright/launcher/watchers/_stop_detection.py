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
    """The turns of a loop, each with a time that a standstill cannot make misleading.

    clock: returns seconds, and goes on while the process stands still and while the machine sleeps;
    None: `boottime`.
    awake: returns seconds, and may pause while the machine sleeps.

    A loop that gives up those who were silent for too long compares its time of the turn with when
    it heard them. The process may stand still between any two lines, so the order matters. `begin`
    reads the time of the turn first and only then asks whether the process stood still since the
    last turn. If it did, the caller counts all others as heard now, and the time of the turn is
    read again. A standstill later in the turn does not move the time of the turn, and the next
    `begin` notices it.
    """

    def __init__(
        self,
        clock: Callable[[], float] | None = None,
        awake: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock, self.awake = clock or boottime, awake
        self._checked_at = self.clock()
        #: How long the process stood still before the last turn that noticed it.
        self.stood_still_s = 0.0
        #: The time of this turn by `clock`, and by `awake`.
        self.began_at, self.began_awake_at = self._checked_at, awake()

    def begin(self, pause: float) -> bool:
        """Begin a turn. Return whether the process stood still since the turn before began.

        pause: the seconds that the loop may have waited on purpose.
        """
        self._read_clocks()
        check, self._checked_at = self._checked_at, self.clock()
        if self._checked_at - check <= pause + STILL_SECONDS:
            return False
        self.stood_still_s = self._checked_at - check
        self._read_clocks()
        return True

    def _read_clocks(self) -> None:
        self.began_at, self.began_awake_at = self.clock(), self.awake()
