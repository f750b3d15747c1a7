"""How far the clock of another host is from ours, and within which error.

A question goes there and back over the launch's own line, as NTP's does: whoever answers says the
time there. That was somewhere between question and answer, so half of what they took bounds the
error, however the way there is and back; the quickest answer counts. Since clocks drift, an answer
counts for less as it gets older.
"""

from __future__ import annotations

from collections import deque

#: By how much two clocks drift apart: what a common oscillator may be off, twice.
DRIFT = 100e-6
_KEPT = 64


class HostClock:
    """The clock of one host. offset: nanoseconds to add to a time there for a time here.

    error: nanoseconds by which that may be wrong; None as long as nobody has answered.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.error: int | None = None
        self._answers: deque[tuple[int, int, int]] = deque(maxlen=_KEPT)

    def answered(self, asked: int, there: int, heard: int) -> None:
        """An answer: when it was asked for and heard here, and the time there; nanoseconds."""
        if heard < asked:
            return
        self._answers.append((heard, (asked + heard) // 2 - there, (heard - asked + 1) // 2))
        self.error, self.offset = min(
            (error + int((heard - at) * DRIFT), offset) for at, offset, error in self._answers
        )
