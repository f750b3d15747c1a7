"""Whether poprun lives, as its relay on another host can tell, and when the relay must speak."""

from __future__ import annotations

from podwright.launcher.watchers._stop_detection import LoopTurns

#: Seconds from one sign of life to the next, and the silence after which the other end counts as
#: gone.
HEARTBEAT_INTERVAL_S = 2.0
SILENCE = 12.0


class PeerLiveness:
    """What the other end of a connection was heard to do, turn by turn of a loop.

    turns: the turns of the loop (LoopTurns). A process that stood still (it was stopped, or the
    machine slept) has read nothing meanwhile, so the silence proves nothing, and no standstill,
    wherever it falls, is taken for a silence of the other end.
    """

    def __init__(self, turns: LoopTurns | None = None) -> None:
        self._turns = turns or LoopTurns()
        self._heard_at, self._spoke_at = self._turns.began_at, self._turns.began_awake_at
        self._silence_announced = False

    def begin_turn(self) -> None:
        """Begin a turn, at most HEARTBEAT_INTERVAL_S seconds after the one before."""
        if self._turns.begin(HEARTBEAT_INTERVAL_S):
            self._heard_at = self._turns.clock()

    def heard(self) -> None:
        """The other end has sent something. A silence that it announced is over."""
        self._heard_at, self._silence_announced = self._turns.clock(), False

    def announce_silence(self) -> None:
        """The other end will be silent until it says something more (poprun stops at Ctrl-Z)."""
        self._silence_announced = True

    @property
    def silent(self) -> bool:
        """Whether the other end has been silent for so long that it must be gone."""
        return not self._silence_announced and self._turns.began_at - self._heard_at > SILENCE

    def beat_due(self) -> bool:
        """Return whether to send a sign of life now. It counts as sent."""
        now = self._turns.awake()
        if now - self._spoke_at <= HEARTBEAT_INTERVAL_S:
            return False
        self._spoke_at = now
        return True
