"""Estimates the difference of another host's clock from this host's, and the error of the estimate.

As in NTP, a question travels to the host and back, over the launch's own connection, and the host
answers with its time. That time was read at some moment between question and answer. So half of the
round trip bounds the error, however its two directions share it. The quickest answer counts. An
answer counts for less as it gets older, since clocks drift.
"""

from __future__ import annotations

from collections import deque

#: The rate at which two clocks drift apart: twice the error of a common oscillator.
DRIFT_RATE = 100e-6
_KEPT = 64


class HostClock:
    """The clock of one host. offset: nanoseconds to add to a time there for a time here.

    error: the bound of the offset's error, in nanoseconds; None until the host has answered.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.error: int | None = None
        self._answers: deque[tuple[int, int, int]] = deque(maxlen=_KEPT)

    def answered(self, asked_at: int, remote_time: int, heard_at: int) -> None:
        """Note an answer: the times of question and answer here, and the time there; all in
        nanoseconds.
        """
        if heard_at < asked_at:
            return
        self._answers.append(
            (heard_at, (asked_at + heard_at) // 2 - remote_time, (heard_at - asked_at + 1) // 2)
        )
        self.error, self.offset = min(
            (error + int((heard_at - answered_at) * DRIFT_RATE), offset)
            for answered_at, offset, error in self._answers
        )
