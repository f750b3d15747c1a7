"""poprun's knowledge whether its lease is over, because nobody renewed it or because it was
lost.
"""

from __future__ import annotations

from collections.abc import Callable

from podwright.errors import Fenced
from podwright.launcher.watchers._stop_detection import LoopTurns, boottime

#: Seconds that the keeper has to renew a lease after poprun has stood still: two attempts, and the
#: time of a busy server's reply.
_RENEW_ALLOWANCE_SECONDS = 10.0


class LeaseClock:
    """Detects that a lease is over because nobody renewed it.

    seconds: how long it lasts without a renewal; 0: there is none, or it is over. lost: a function
    that is called once with the error's code and its text, when the lease is over.
    """

    def __init__(self, seconds: float, lost: Callable[[str, str], None]) -> None:
        self.seconds, self._lost = seconds, lost
        self._renewed = boottime()
        self._turns = LoopTurns(boottime)

    def renewed(self) -> None:
        """Note that the keeper has renewed the lease."""
        self._renewed = boottime()

    def stood_still(self, pause: float) -> bool:
        """Return whether this process stood still since the last turn. If so, allow time to
        renew.
        """
        if not self._turns.stood_still(pause):
            return False
        self._renewed = max(self._renewed, boottime() - self.seconds + _RENEW_ALLOWANCE_SECONDS)
        return True

    def ran_out(self) -> bool:
        """Return whether the lease has run out since the last call, because nobody renewed it in
        time.
        """
        if not self.seconds or boottime() - self._renewed <= self.seconds:
            return False
        self.end(Fenced.code, "nobody renewed it in time")
        return True

    def end(self, code: str, text: str) -> None:
        """End the lease."""
        self.seconds = 0.0
        self._lost(code, text)
