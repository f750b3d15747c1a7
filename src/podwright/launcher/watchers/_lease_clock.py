"""poprun's knowledge whether its lease is over, because nobody renewed it or because it was
lost.
"""

from __future__ import annotations

from collections.abc import Callable

from podwright.errors import Fenced
from podwright.launcher.watchers._stop_detection import LoopTurns

#: Seconds that the keeper has to renew a lease after poprun has stood still: two attempts, and the
#: time of a busy server's reply.
_RENEW_ALLOWANCE_SECONDS = 10.0


class LeaseClock:
    """Detects that a lease is over because nobody renewed it.

    seconds: how long it lasts without a renewal; 0: there is none, or it is over. lost: a function
    that is called once with the error's code and its text, when the lease is over. turns: those of
    the loop that asks.
    """

    def __init__(
        self,
        seconds: float,
        lost: Callable[[str, str], None],
        turns: LoopTurns,
    ) -> None:
        self.seconds, self._lost, self.turns = seconds, lost, turns
        self._renewed = turns.clock()

    def renewed(self) -> None:
        """Note that the keeper has renewed the lease."""
        self._renewed = self.turns.clock()

    def allow_late_renewal(self) -> None:
        """Allow time to renew, because this process stood still and read no renewal."""
        self._renewed = max(
            self._renewed, self.turns.clock() - self.seconds + _RENEW_ALLOWANCE_SECONDS
        )

    def ran_out(self) -> bool:
        """Return whether the lease has run out since the last call, because nobody renewed it
        before this turn began.
        """
        if not self.seconds or self.turns.began_at - self._renewed <= self.seconds:
            return False
        self.end(Fenced.code, "nobody renewed it in time")
        return True

    def end(self, code: str, text: str) -> None:
        """End the lease."""
        self.seconds = 0.0
        self._lost(code, text)
