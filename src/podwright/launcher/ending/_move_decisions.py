"""Decides how a launch moves: when instances are told, when the server is told, and when all must
end.

Pure: events in, actions out. The instances that catch the signal are counted every COUNT_INTERVAL_S
seconds until all catch it, and again once the server requests a move. If one instance ended while
another had no handler any more, the launch would end. So a request is passed on only when all
instances listen at that time.

On a busy host, a count may still be on its way when the request comes. It says how many instances
listened before, so it does not count: an instance may have taken its handler back since. Each host
answers all counts, in their order, which tells its older answers from those to later counts.
"""

from __future__ import annotations

import math

from podwright.launcher.options._move_notice import ALL_MOVED_SECONDS
from podwright.launcher.watchers._launch_events import (
    Action,
    CountListeners,
    ListenersCounted,
    Log,
    MoveRequested,
    ReportMovable,
    TellListeners,
)

#: Seconds from one count of the instances that catch the signal to the next.
COUNT_INTERVAL_S = 1.0
#: Seconds within which all instances must be listening after the server's request.
_LISTEN_TIMEOUT_S = 10.0


class Relocation:
    """The moves of one attempt.

    move: the number of the signal, and the seconds that a move loses; None: the launch cannot move.
    """

    def __init__(self, move: tuple[int, float] | None, instance_count: int) -> None:
        self._move, self._instances = move, instance_count
        self._listening: dict[str, int] = {}
        self._counts = 0  #: sent to each host
        self._answers: dict[str, int] = {}  #: received, by host
        self._outdated_counts = 0  #: so many counts were sent before the server's request
        self._counting = move is not None
        self._count_at = 0.0
        self._request: MoveRequested | None = None
        self._listen_deadline = math.inf
        #: The word of the last request that was passed on to the instances.
        self.word = ""
        #: When all must have ended, after one instance has ended in order to move.
        self.together_by = math.inf

    @property
    def pause(self) -> float:
        """The seconds until something is due."""
        return COUNT_INTERVAL_S if self._counting else math.inf

    def requested(self, move_request: MoveRequested, now: float) -> None:
        """Take the server's request to move. Each word counts once."""
        if move_request.word == self.word or not self._move:
            return
        if self._request is None:
            self._listening.clear()
            self._outdated_counts = self._counts
            self._counting, self._count_at = True, 0.0
            self._listen_deadline = now + _LISTEN_TIMEOUT_S
        self._request = move_request

    def counted(self, listeners: ListenersCounted, ended_instances: int) -> list[Action]:
        """Take a host's answer to CountListeners. ended_instances: the number of ended
        instances.
        """
        self._answers[listeners.host] = answers_from_host = self._answers.get(listeners.host, 0) + 1
        if answers_from_host <= self._outdated_counts:
            return []
        self._listening[listeners.host] = listeners.number
        ended_count = ended_instances if self._request else 0
        if not self._counting or sum(self._listening.values()) + ended_count < self._instances:
            return []
        assert self._move
        self._counting = False
        if not self._request:
            return [Log("I", "all instances can be moved"), ReportMovable(self._move[1])]
        move_request, self._request, self._listen_deadline = self._request, None, math.inf
        self.word = move_request.word
        return [TellListeners(self._move[0], move_request.within)]

    def tick(self, now: float, *, started: bool) -> list[Action]:
        """Return the actions that are due. started: whether all instances have started."""
        actions: list[Action] = []
        if not self._counting:
            return actions
        if self._request and now >= self._listen_deadline:
            self._request, self._listen_deadline = None, math.inf
            actions += [Log("I", "not all instances can be moved any more"), ReportMovable(0.0)]
        if now >= self._count_at and started:
            assert self._move
            self._count_at = now + COUNT_INTERVAL_S
            self._counts += 1
            actions.append(CountListeners(self._move[0]))
        return actions

    def instance_ended_to_move(self, now: float) -> None:
        """Take the end of an instance that ended in order to move. All others must follow."""
        self.together_by = min(self.together_by, now + ALL_MOVED_SECONDS)
