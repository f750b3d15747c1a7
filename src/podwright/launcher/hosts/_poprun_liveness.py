"""Whether poprun lives, as its relay on another host can tell, and when the relay must speak."""

from __future__ import annotations

import time
from collections.abc import Callable

from podwright.launcher.watchers._stop_detection import LoopTurns, boottime

#: Seconds from one sign of life to the next, and the silence after which the other end counts as
#: gone.
HEARTBEAT_INTERVAL_S = 2.0
SILENCE = 12.0


class PeerLiveness:
    """What the other end of a connection was heard to do, turn by turn of a loop.

    clock: returns seconds and goes on while this process stands still. awake: returns seconds, for
    this end's own signs of life.

    A process that stood still (it was stopped, or the machine slept) has read nothing meanwhile, so
    the silence proves nothing. `begin_turn` therefore reads the clock first and only then asks
    whether this process stood still since the last turn. If it did, the other end counts as heard
    at a time that is not before the turn's. If it stands still later in the turn, `silent` does not
    see that, since it compares with the turn's time, and the next turn notices it. So no
    standstill, wherever it falls, is ever taken for a silence of the other end.
    """

    def __init__(
        self,
        clock: Callable[[], float] = boottime,
        awake: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._awake = clock, awake
        self._turns = LoopTurns(clock)
        self._turn_at = self._heard_at = clock()
        self._spoke_at = awake()
        self._silence_announced = False

    def begin_turn(self) -> None:
        """Begin a turn, at most HEARTBEAT_INTERVAL_S seconds after the one before."""
        self._turn_at = self._clock()
        if self._turns.stood_still(HEARTBEAT_INTERVAL_S):
            self._heard_at = self._clock()

    def heard(self) -> None:
        """The other end has sent something. A silence that it announced is over."""
        self._heard_at, self._silence_announced = self._clock(), False

    def announce_silence(self) -> None:
        """The other end will be silent until it says something more (poprun stops at Ctrl-Z)."""
        self._silence_announced = True

    @property
    def silent(self) -> bool:
        """Whether the other end has been silent for so long that it must be gone."""
        return not self._silence_announced and self._turn_at - self._heard_at > SILENCE

    def beat_due(self) -> bool:
        """Return whether to send a sign of life now. It counts as sent."""
        now = self._awake()
        if now - self._spoke_at <= HEARTBEAT_INTERVAL_S:
            return False
        self._spoke_at = now
        return True
