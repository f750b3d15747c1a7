"""The states of a launch's other hosts: last heard, finished, or lost.

A host is lost when its connection closes before its end, when it is silent for SILENCE seconds, or
when it does not end in time. Pure: times are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from podwright.launcher.hosts._poprun_liveness import HEARTBEAT_INTERVAL_S, SILENCE
from podwright.launcher.instances._exit_cause import TRY_AGAIN, Cause
from podwright.launcher.watchers._guardian import ORPHAN_GRACE_S

#: Seconds after the last message of a host, if it still runs, until it has ended its instances.
HOST_END_DELAY_S = HEARTBEAT_INTERVAL_S + SILENCE + ORPHAN_GRACE_S + 1.0


class HostState:
    """One other host. heard: the time of its last message. answered: its last round of
    questions.
    """

    def __init__(self, name: str, ranks: tuple[int, ...], heard: float) -> None:
        self.name, self.ranks, self.heard = name, ranks, heard
        self.answered = 0
        self.quiet = self.finished = self.lost = False

    @property
    def over(self) -> bool:
        """Whether nothing more will be heard of it."""
        return self.finished or self.lost

    def loss(self, reason: str) -> Cause:
        """Return the loss of this host as the cause of an end."""
        text = f"host {self.name} is lost ({self._instances_text}): {reason}"
        return Cause(TRY_AGAIN, text, restartable=True)

    def ended_unheard(self, reason: str, stood_still_s: float) -> Cause:
        """Return as the cause that this host ended its instances because poprun was silent.

        stood_still_s: the seconds for which poprun stood still; 0 if it did not.
        """
        what_happened = (
            f"poprun stood still for {stood_still_s:.0f} s (it was stopped, or its machine slept)"
            if stood_still_s
            else "the connection was cut on the way from poprun"
        )
        text = f"{what_happened}: host {self.name} ({self._instances_text}): {reason}"
        return Cause(TRY_AGAIN, text, restartable=True)

    @property
    def _instances_text(self) -> str:
        noun = "instance" if len(self.ranks) == 1 else "instances"
        return f"{noun} {', '.join(map(str, self.ranks))}"


class HostStates:
    """All other hosts. ranks: the instances of each, by its name."""

    def __init__(self, ranks: Mapping[str, Sequence[int]], now: float) -> None:
        self.by_name = {
            name: HostState(name, tuple(host_ranks), now) for name, host_ranks in ranks.items()
        }
        #: The time by which all must have ended.
        self.end_by = math.inf
        #: For how many seconds poprun stood still the last time, and when it went on.
        self._standstill_s, self._went_on_at = 0.0, -math.inf

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def get(self, name: str) -> HostState | None:
        """Return the state of a host from which more may come; None for any other."""
        state = self.by_name.get(name)
        return state if state and not state.over else None

    def host_of(self, rank: int) -> str:
        """Return the other host on which an instance runs; empty for an instance on poprun's
        host.
        """
        states = self.by_name.values()
        return next((state.name for state in states if rank in state.ranks), "")

    def heard_all(self, now: float) -> None:
        """Count all hosts as heard now, because poprun did not listen until now."""
        for state in self.by_name.values():
            state.heard = now

    def stood_still(self, seconds: float, now: float) -> None:
        """Record that poprun stood still for these seconds until now."""
        self._standstill_s, self._went_on_at = seconds, now

    def silence_of_poprun(self, now: float) -> float:
        """Return for how many seconds poprun stood still, if relays have ended because of that and
        may be gone since; else 0.
        """
        may_explain = self._standstill_s > SILENCE - HEARTBEAT_INTERVAL_S
        return self._standstill_s if may_explain and now - self._went_on_at < SILENCE else 0.0

    def overdue(self, now: float) -> list[tuple[HostState, str]]:
        """Return the hosts that have to be given up now, each with the reason."""
        hosts = []
        for state in self.by_name.values():
            if state.over:
                continue
            if now - state.heard > SILENCE:
                hosts.append((state, "it does not answer any more"))
            elif now > self.end_by:
                hosts.append((state, "it did not end in time"))
        return hosts

    def all_answered(self, sync_round: int) -> bool:
        """Return whether every host has answered this round of questions."""
        return all(state.over or state.answered >= sync_round for state in self.by_name.values())

    @property
    def quiet(self) -> bool:
        """Whether no instance is left on any of them."""
        return all(state.quiet or state.over for state in self.by_name.values())

    @property
    def over(self) -> bool:
        """Whether on each of them nothing of the launch is left, or the host is lost."""
        return all(state.over for state in self.by_name.values())
