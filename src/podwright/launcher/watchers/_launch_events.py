"""The events of a running launch, and the actions on it, as values.

`_watch` converts the input from descriptors and signals into these events, and has the actions
carried out. Everything between an event and an action is decided by `_launch_state_machine`,
without a process or a clock.
"""

from __future__ import annotations

from typing import NamedTuple

#: The parties on this host that answer whether they are alive. Other hosts answer by their names.
GUARDIAN, KEEPER = "guardian", "keeper"

# Events. A host is named as the plan names it; "" is the host of poprun.


class InstanceStarted(NamedTuple):
    """The script in front of an instance runs as process `pid`."""

    rank: int
    pid: int


class InstanceEnded(NamedTuple):
    """The script reported how its program ended. code: above 128 for a signal, as in shells."""

    rank: int
    code: int


class ScriptEnded(NamedTuple):
    """The script of an instance that a guardian started has ended. code: negative for a signal;
    None if it could not be started, for the reason `problem`.
    """

    rank: int
    code: int | None
    problem: str


class EngineStarted(NamedTuple):
    """mpirun runs as process `pid`."""

    pid: int


class EngineEnded(NamedTuple):
    """mpirun has ended. code: negative for a signal; None where it could not be started."""

    code: int | None
    problem: str


class EngineWrote(NamedTuple):
    """mpirun or a daemon of it wrote something."""

    data: bytes


class DaemonEnded(NamedTuple):
    """mpirun's daemon on another host has ended. code, problem: see EngineEnded."""

    host: str
    code: int | None
    problem: str


class WatcherGone(NamedTuple):
    """The line to a watcher on this host closed: GUARDIAN or KEEPER."""

    watcher: str


class GuardianFinished(NamedTuple):
    """The guardian of this host has ended all that it watched."""


class GuardianQuiet(NamedTuple):
    """Only mpirun is left below the guardian of this host."""


class KeeperCleared(NamedTuple):
    """The keeper confirms that nothing is left below a guardian that is gone."""


class BelowEnded(NamedTuple):
    """Nothing is left of what poprun ended itself (EndBelow)."""


class LivenessAnswered(NamedTuple):
    """A party answered a round of questions: it was alive when the question reached it."""

    party: str
    round: int


class HostHeard(NamedTuple):
    """A host gave a sign of life."""

    host: str


class HostQuiet(NamedTuple):
    """Only mpirun's daemon is left on a host."""

    host: str


class HostFinished(NamedTuple):
    """Nothing of the launch is left on a host."""

    host: str


class HostCut(NamedTuple):
    """The line to a host's relay closed."""

    host: str
    reason: str


class HostBroken(NamedTuple):
    """A relay reports that it cannot go on, for example because its guardian was killed."""

    host: str
    reason: str


class PoprunUnheard(NamedTuple):
    """A relay ends everything on its host because it heard nothing from poprun for too long."""

    host: str
    reason: str


class HostsUnheard(NamedTuple):
    """poprun stood still, or did not read, so the hosts' silence until now proves nothing.

    stood_still: the seconds for which poprun stood still; 0 if it only did not read.
    """

    stood_still: float = 0.0


class LeaseLost(NamedTuple):
    """The lease on the partition is over."""


class OutputUnread(NamedTuple):
    """Nobody reads what the instances write."""


class RelayFailed(NamedTuple):
    """The exchange with an instance or a host failed in a way that ends the launch."""

    code: int
    text: str


class EndSignal(NamedTuple):
    """A signal asks poprun to end."""

    number: int
    name: str


class ForwardSignal(NamedTuple):
    """A signal that is passed on to the instances."""

    number: int


class ListenersCounted(NamedTuple):
    """The number of a host's instances that catch the signal to move."""

    host: str
    number: int


class PartitionFaulty(NamedTuple):
    """The server says what is wrong with the partition; empty: nothing any more."""

    errors: str


class MoveRequested(NamedTuple):
    """The server asks the launch to move. word: names the request. within: seconds."""

    word: str
    within: float


Event = (
    InstanceStarted
    | InstanceEnded
    | ScriptEnded
    | EngineStarted
    | EngineEnded
    | EngineWrote
    | DaemonEnded
    | WatcherGone
    | GuardianFinished
    | GuardianQuiet
    | KeeperCleared
    | BelowEnded
    | LivenessAnswered
    | HostHeard
    | HostQuiet
    | HostFinished
    | HostCut
    | HostBroken
    | PoprunUnheard
    | HostsUnheard
    | LeaseLost
    | OutputUnread
    | RelayFailed
    | EndSignal
    | ForwardSignal
    | ListenersCounted
    | MoveRequested
    | PartitionFaulty
)

# Actions


class LivenessCheck(NamedTuple):
    """Ask guardian, keeper and all hosts to answer with `round`, after everything that they
    know.
    """

    round: int


class EndInstances(NamedTuple):
    """Let guardian, keeper and hosts end all instances.

    Each instance is asked to end `patience` seconds from now, and killed `grace` seconds later.
    keep_engine: mpirun and its daemons are left alone until ReleaseEngine. keeper_patience: when
    the keeper kills a guardian that is late.
    """

    patience: float
    grace: float
    keep_engine: bool
    keeper_patience: float


class EndBelow(NamedTuple):
    """End what is left below poprun itself, because guardian and keeper are gone. engine:
    mpirun.
    """

    grace: float
    engine: int


class HastenBelow(NamedTuple):
    """End sooner what EndBelow began to end."""

    patience: float
    grace: float


class ReleaseEngine(NamedTuple):
    """Permit to end mpirun and its daemons, because no instance is left."""


class KillWatchers(NamedTuple):
    """Kill guardian and keeper, which have not ended in time; they may have been stopped."""


class HangUp(NamedTuple):
    """Close the connection to a lost host."""

    host: str


class SendSignal(NamedTuple):
    """Pass a signal on to all instances."""

    number: int


class RecordStart(NamedTuple):
    """Record that an instance runs. last: all of them do now."""

    rank: int
    pid: int
    last: bool


class RecordEnd(NamedTuple):
    """Record that an instance has ended. failed: whether that is a failure of its own."""

    rank: int
    code: int
    failed: bool


class Log(NamedTuple):
    """Write text to the log. level: I, D, or W for a warning that is always shown."""

    level: str
    text: str


class Print(NamedTuple):
    """Show text to the user of poprun."""

    text: str


class CountListeners(NamedTuple):
    """Ask each guardian how many instances catch this signal."""

    number: int


class ReportMovable(NamedTuple):
    """Let the server know the seconds that a move would lose; 0: the launch cannot be moved any
    more.
    """

    seconds: float


class TellListeners(NamedTuple):
    """Tell the instances that catch the signal to move."""

    number: int
    within: float


Action = (
    LivenessCheck
    | EndInstances
    | EndBelow
    | HastenBelow
    | ReleaseEngine
    | KillWatchers
    | HangUp
    | SendSignal
    | RecordStart
    | RecordEnd
    | Log
    | Print
    | CountListeners
    | ReportMovable
    | TellListeners
)

#: The kinds of events in the order of what they can explain; all others come last.
_EVENT_KINDS_IN_ORDER: tuple[tuple[type, ...], ...] = (
    (EndSignal,),
    (WatcherGone,),
    (HostsUnheard,),
    (HostCut, HostBroken, PoprunUnheard),
    (EngineWrote,),
    (DaemonEnded,),
)
_PRECEDENCE_BY_EVENT_KIND = {
    kind: place for place, kinds in enumerate(_EVENT_KINDS_IN_ORDER) for kind in kinds
}


def event_precedence(event: Event) -> int:
    """Return the position of an event within a turn. A stable sort keeps the order of equal
    ones.
    """
    return _PRECEDENCE_BY_EVENT_KIND.get(type(event), len(_EVENT_KINDS_IN_ORDER))
