"""The blamed process is the killed one, in every order in which its death is reported.

Each row of the table lists what a death causes on the connections to poprun: on each connection, in
order. The connections are read in any order, all at once or one by one, so every interleaving of
them goes through the pure machine. No process is started.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from podwright.launcher.ending._launch_state_machine import LaunchMachine
from podwright.launcher.ending._launch_states import LaunchFacts
from podwright.launcher.hosts._host_states import HostStates
from podwright.launcher.hosts._poprun_liveness import SILENCE
from podwright.launcher.hosts._relay_connections import unheard_reason
from podwright.launcher.instances._exit_cause import Cause
from podwright.launcher.watchers import _launch_events as on
from podwright.launcher.watchers._launch_events import GUARDIAN, KEEPER, Action, Event

#: Instance 0 runs on the host of poprun, 1 on h2, 2 on h3.
FAR = {"h2": (1,), "h3": (2,)}
PLACES = {0: "h1", 1: "h2", 2: "h3"}
TERM, KILL = 128 + signal.SIGTERM, 128 + signal.SIGKILL
#: What a program ends with that lost its connection to another.
PEER = 14
ANSWER = "answer"

Line = tuple[Event | str, ...]


class Death(NamedTuple):
    """A process that is killed. lines: the reports on each connection, in their order.

    ANSWER stands for the answer of the connection's party to the questions so far. A connection
    without it is closed before the party answers. words: of the cause.
    """

    process: str
    launcher: str
    words: str
    lines: dict[str, Line]


def answering(party: str, *events: Event) -> Line:
    """The connection of a living party, which answers after what it had reported."""
    return (*events, ANSWER)


def others(code: int, *ranks: int) -> dict[str, Line]:
    """The connections of instances elsewhere, which end with this code."""
    parties = {0: GUARDIAN, 1: "h2", 2: "h3"}
    return {parties[rank]: answering(parties[rank], on.InstanceEnded(rank, code)) for rank in ranks}


ALIVE = {KEEPER: (ANSWER,)}
SSH = "host h2 is lost (instance 1): its ssh was ended by signal 9 (SIGKILL)"
CUT = "its relay process was ended, or the connection to it was cut"
RELAY = f"host h2 is lost (instance 1): {CUT}"


def _of_mpirun() -> Iterator[Death]:
    """The table for mpirun: it or its daemons end the instances whose peers are gone."""
    engine = on.EngineEnded
    for code in (TERM, KILL, PEER):
        here = on.InstanceEnded(0, code)
        yield Death(
            "relay",
            "mpirun",
            RELAY,
            {
                **ALIVE,
                GUARDIAN: answering(GUARDIAN, here, engine(1, "")),
                "h2": (on.HostCut("h2", CUT),),
                "h3": answering("h3", on.InstanceEnded(2, code), on.DaemonEnded("h3", 1, "")),
            },
        )
        yield Death(
            "ssh",
            "mpirun",
            SSH,
            {
                **ALIVE,
                GUARDIAN: answering(GUARDIAN, here, engine(1, "")),
                "h2": (on.HostCut("h2", "its ssh was ended by signal 9 (SIGKILL)"),),
                **others(code, 2),
            },
        )
        yield Death(
            "far guardian",
            "mpirun",
            "host h2: its guardian process was ended",
            {
                **ALIVE,
                GUARDIAN: answering(GUARDIAN, here, engine(1, "")),
                "h2": (on.HostBroken("h2", "its guardian process was ended"),),
                **others(code, 2),
            },
        )
        for end in (-signal.SIGKILL, KILL):
            yield Death(
                "daemon",
                "mpirun",
                "mpirun's daemon on h2 was ended by signal 9 (SIGKILL)",
                {
                    **ALIVE,
                    GUARDIAN: answering(GUARDIAN, here, engine(1, "")),
                    "h2": answering("h2", on.DaemonEnded("h2", end, "")),
                    **others(code, 2),
                },
            )
        yield Death(
            "mpirun",
            "mpirun",
            "mpirun was ended by signal 9 (SIGKILL)",
            {
                **ALIVE,
                GUARDIAN: answering(GUARDIAN, here, engine(-signal.SIGKILL, "")),
                "h2": answering("h2", on.InstanceEnded(1, code), on.DaemonEnded("h2", 1, "")),
                **others(code, 2),
            },
        )
        yield Death(
            "guardian",
            "mpirun",
            "poprun's guardian process was ended",
            {
                KEEPER: (ANSWER, on.KeeperCleared()),
                GUARDIAN: (on.WatcherGone(GUARDIAN),),
                "h2": answering("h2", on.InstanceEnded(1, code), on.DaemonEnded("h2", 1, "")),
                **others(code, 2),
            },
        )
        yield Death(
            "keeper",
            "mpirun",
            "poprun's keeper process was ended",
            {
                KEEPER: (on.WatcherGone(KEEPER),),
                GUARDIAN: answering(GUARDIAN, here, engine(0, "")),
                "h2": answering("h2", on.InstanceEnded(1, code), on.DaemonEnded("h2", 1, "")),
                **others(code, 2),
            },
        )
    for code in (TERM, PEER):
        yield Death(
            "script",
            "mpirun",
            "instance 1 on h2 was ended by signal 9 (SIGKILL)",
            {
                **ALIVE,
                GUARDIAN: answering(
                    GUARDIAN,
                    on.InstanceEnded(0, code),
                    on.EngineWrote(
                        b"prterun noticed that process rank 1 with PID 9 on node h2 exited on\n"
                        b"signal 9 (Killed).\n"
                    ),
                    engine(137, ""),
                ),
                "h2": ("answer",),
                **others(code, 2),
            },
        )
        yield Death(
            "instance",
            "mpirun",
            "instance 1 on h2 was ended by signal 9 (SIGKILL)",
            {
                **ALIVE,
                GUARDIAN: answering(GUARDIAN, on.InstanceEnded(0, code)),
                "h2": answering("h2", on.InstanceEnded(1, KILL)),
                **others(code, 2),
            },
        )
    yield Death(
        "instance",
        "mpirun",
        "instance 1 on h2 was ended by signal 11 (SIGSEGV)",
        {
            **ALIVE,
            GUARDIAN: answering(GUARDIAN, on.InstanceEnded(0, TERM), engine(1, "")),
            "h2": answering("h2", on.InstanceEnded(1, 139)),
            **others(TERM, 2),
        },
    )
    # An instance that poprun ends between fork and exec has no script that could report.
    yield Death(
        "instance",
        "mpirun",
        "instance 1 on h2 ended with exit code 4",
        {
            **ALIVE,
            GUARDIAN: answering(
                GUARDIAN,
                on.EngineWrote(
                    b"mpirun noticed that process rank 0 with PID 9 on node h1 exited on\n"
                    b"signal 15 (Terminated).\n"
                ),
                engine(TERM, ""),
            ),
            "h2": answering("h2", on.InstanceEnded(1, 4)),
            **others(TERM, 2),
        },
    )


def _of_others() -> Iterator[Death]:
    """The table for guardians that start the instances: `--launcher=local`, over ssh, srun or
    kubectl.
    """
    for way in ("local", "srun", "kubernetes"):
        for code in (PEER, KILL):
            for process, words, why in (
                ("relay", RELAY, CUT),
                ("way", SSH.replace("ssh", way), f"its {way} was ended by signal 9 (SIGKILL)"),
            ):
                yield Death(
                    process,
                    way,
                    words,
                    {
                        **ALIVE,
                        GUARDIAN: answering(GUARDIAN, on.InstanceEnded(0, code)),
                        "h2": (on.HostCut("h2", why),),
                        **others(code, 2),
                    },
                )
            yield Death(
                "far guardian",
                way,
                "host h2: its guardian process was ended",
                {
                    **ALIVE,
                    GUARDIAN: answering(GUARDIAN, on.InstanceEnded(0, code)),
                    "h2": (on.HostBroken("h2", "its guardian process was ended"),),
                    **others(code, 2),
                },
            )
            yield Death(
                "guardian",
                way,
                "poprun's guardian process was ended",
                {
                    KEEPER: (ANSWER, on.KeeperCleared()),
                    GUARDIAN: (on.WatcherGone(GUARDIAN),),
                    **others(code, 1, 2),
                },
            )
            yield Death(
                "keeper",
                way,
                "poprun's keeper process was ended",
                {
                    KEEPER: (on.WatcherGone(KEEPER),),
                    **others(code, 0, 1, 2),
                },
            )
        yield Death(
            "instance",
            way,
            "instance 1 on h2 was ended by signal 9 (SIGKILL)",
            {
                **ALIVE,
                GUARDIAN: answering(GUARDIAN, on.InstanceEnded(0, PEER)),
                "h2": answering("h2", on.InstanceEnded(1, KILL)),
                **others(PEER, 2),
            },
        )
        yield Death(
            "script",
            way,
            "instance 1 on h2 was ended by signal 9 (SIGKILL)",
            {
                **ALIVE,
                "h2": answering("h2", on.ScriptEnded(1, -signal.SIGKILL, "")),
            },
        )


DEATHS = [*_of_mpirun(), *_of_others()]


class World:
    """One launch in the machine. Parties answer only what they were asked before."""

    def __init__(self, launcher: str) -> None:
        self.now = 100.0
        facts = LaunchFacts(3, FAR, PLACES, launcher == "mpirun", grace=10.0)
        self.machine = LaunchMachine(facts, self.now)
        self.round = 0
        self.actions: list[Action] = []
        starts: list[Event] = [on.InstanceStarted(rank, 100 + rank) for rank in range(3)]
        self.turn(*([on.EngineStarted(99)] if launcher == "mpirun" else []), *starts)

    def turn(self, *events: Event) -> None:
        found = self.machine.turn(events, self.now)
        self.actions += found
        self.round = max([self.round, *(a.round for a in found if isinstance(a, on.LivenessCheck))])

    def read(self, party: str, event: Event | str) -> None:
        """Read the next report of a connection, in a turn of its own."""
        if event == ANSWER:
            self.turn(on.LivenessAnswered(party, self.round))
        else:
            assert not isinstance(event, str)
            self.turn(event)

    def settle(self, silent: Sequence[str] = ()) -> Cause | None:
        """Let all living parties answer, and all ends finish."""
        for party in (GUARDIAN, KEEPER, *FAR):
            if party not in silent:
                self.turn(on.LivenessAnswered(party, self.round))
        self.now += 4.0
        self.turn()
        return self.machine.cause


def orders(lines: dict[str, Line]) -> Iterator[list[tuple[str, Event | str]]]:
    """Yield every order in which the connections can be read."""
    parties = [party for party, line in lines.items() for _ in line]
    for order in sorted(set(itertools.permutations(parties))):
        left = {party: list(line) for party, line in lines.items()}
        yield [(party, left[party].pop(0)) for party in order]


def some_orders(lines: dict[str, Line]) -> Iterator[list[tuple[str, Event | str]]]:
    """Yield all orders without the answers, with each answer at two places.

    An answer comes right behind the last report of its connection, or after everything else: a late
    answer only helps the innocent.
    """
    bare = {party: tuple(e for e in line if e != ANSWER) for party, line in lines.items()}
    answering = [party for party, line in lines.items() if ANSWER in line]
    for order in orders({party: line for party, line in bare.items() if line}):
        for prompt in (True, False):
            found: list[tuple[str, Event | str]] = []
            counts = {party: len(bare[party]) for party in bare}
            for party, event in order:
                found.append((party, event))
                counts[party] -= 1
                if prompt and not counts[party] and party in answering:
                    found.append((party, ANSWER))
            yield found + ([] if prompt else [(party, ANSWER) for party in answering])


def _name(death: Death) -> str:
    return f"{death.launcher}-{death.process}"


@pytest.mark.parametrize("death", DEATHS, ids=_name)
@pytest.mark.parametrize("slow", [0.0, 1.2], ids=["quick", "slow"])
def test_who_is_blamed_is_who_was_killed(death: Death, slow: float) -> None:
    """slow: seconds between one report and the next, beyond what time alone settles."""
    for order in some_orders(death.lines):
        world = World(death.launcher)
        for party, event in order:
            world.now += slow
            for host in FAR:
                world.turn(on.HostHeard(host))
            world.read(party, event)
        silent = [party for party, line in death.lines.items() if ANSWER not in line]
        cause = world.settle(silent)
        assert cause is not None, order
        assert cause.text.startswith(death.words), order


@pytest.mark.parametrize("death", DEATHS, ids=_name)
def test_the_cause_is_the_same_where_all_is_read_in_a_single_turn(death: Death) -> None:
    """poprun reads late: all reports are there at once, from the connections in any order."""
    for order in itertools.permutations(death.lines):
        world = World(death.launcher)
        world.turn(*(e for party in order for e in death.lines[party] if not isinstance(e, str)))
        silent = [party for party, line in death.lines.items() if ANSWER not in line]
        cause = world.settle(silent)
        assert cause is not None
        assert cause.text.startswith(death.words), order


@pytest.mark.parametrize(
    "death", [d for d in DEATHS if d.process not in ("instance", "script")], ids=_name
)
def test_whatever_is_killed_of_the_launcher_ends_it_with_one_code(death: Death) -> None:
    """Requeue rules ask for that code."""
    world = World(death.launcher)
    for party, event in next(iter(orders(death.lines))):
        world.read(party, event)
    cause = world.settle(silent=[GUARDIAN, KEEPER, *FAR])
    assert cause
    assert cause.code == 75


@pytest.mark.parametrize("stood_still", [15.0, 0.0])
@pytest.mark.parametrize("launcher", ["local", "mpirun"])
def test_poprun_that_was_silent_blames_no_host(launcher: str, stood_still: float) -> None:
    """It was stopped for longer than a relay waits, or the way from it was cut."""
    world = World(launcher)
    world.now += stood_still
    reason = unheard_reason(SILENCE)
    world.turn(
        on.InstanceEnded(2, TERM),
        on.InstanceEnded(1, TERM),
        *(on.PoprunUnheard(host, reason) for host in FAR),
        *(on.HostFinished(host) for host in FAR),
        *([on.HostsUnheard(stood_still)] if stood_still else []),
    )
    cause = world.settle(silent=[*FAR])
    assert cause
    why = "poprun stood still for 15 s" if stood_still else "the connection was cut on the way from"
    assert cause.text.startswith(why)
    assert "host h2 (instance 1): it heard nothing from poprun for 12 s" in cause.text
    assert (cause.code, cause.restartable) == (75, True)


def test_a_relay_that_could_not_say_that_poprun_was_silent_is_not_blamed_either() -> None:
    world = World("local")
    world.now += 30.0
    world.turn(on.HostCut("h2", CUT), on.HostsUnheard(30.0))
    assert world.machine.cause
    assert world.machine.cause.text.startswith("poprun stood still for 30 s")
    later = World("local")
    later.turn(on.HostsUnheard(30.0))
    later.now += SILENCE
    later.turn(on.HostHeard("h3"), on.HostCut("h2", CUT))
    assert later.machine.cause
    assert later.machine.cause.text == RELAY


def test_a_host_that_never_answers_is_why_another_one_fails() -> None:
    """A host loses its power: nothing closes its connections. Peers fail before it counts as
    lost.
    """
    world = World("local")
    world.turn(on.InstanceEnded(2, PEER), on.InstanceEnded(0, PEER))
    for party in (GUARDIAN, KEEPER, "h3"):
        world.turn(on.LivenessAnswered(party, world.round))
    world.now += SILENCE + 1.0
    world.turn(on.HostHeard("h3"))
    assert world.machine.cause
    assert world.machine.cause.text == ("host h2 is lost (instance 1): it does not answer any more")


def test_a_host_that_answered_and_is_lost_later_is_not_the_cause() -> None:
    world = World("local")
    world.turn(on.InstanceEnded(2, 3))
    world.turn(*(on.LivenessAnswered(party, world.round) for party in (GUARDIAN, KEEPER, *FAR)))
    world.now += 3.0
    world.turn(on.HostCut("h2", CUT))
    assert world.machine.cause
    assert world.machine.cause.text == "instance 2 on h3 ended with exit code 3"


def test_a_guardian_that_is_killed_because_it_is_late_is_not_the_cause() -> None:
    """It was stopped, and cannot answer. The keeper kills it once an end takes too long."""
    world = World("local")
    world.turn(on.InstanceEnded(2, 3))
    world.turn(*(on.LivenessAnswered(party, world.round) for party in (KEEPER, *FAR)))
    world.now += 10.0 + 1.0 + 3.0
    world.turn(on.HostHeard("h2"), on.HostHeard("h3"), on.WatcherGone(GUARDIAN))
    assert world.machine.cause
    assert world.machine.cause.text == "instance 2 on h3 ended with exit code 3"


def test_mpirun_killed_by_the_end_itself_is_not_the_cause() -> None:
    """If instances ignore the request to end, the guardian kills mpirun with them after the
    grace.
    """
    world = World("mpirun")
    world.turn(on.InstanceEnded(2, 3))
    world.turn(*(on.LivenessAnswered(party, world.round) for party in (GUARDIAN, KEEPER, *FAR)))
    world.now += 10.0
    world.turn(on.EngineEnded(-9, ""))
    world.turn(*(on.LivenessAnswered(host, world.round) for host in FAR))
    assert world.machine.cause
    assert world.machine.cause.text == "instance 2 on h3 ended with exit code 3"


@pytest.mark.parametrize("first", DEATHS, ids=_name)
def test_what_a_person_ended_is_not_blamed_on_its_consequences(first: Death) -> None:
    world = World(first.launcher)
    world.turn(on.EndSignal(int(signal.SIGINT), "SIGINT"))
    for party, line in first.lines.items():
        for event in line:
            world.read(party, event)
    assert world.settle() == Cause(128 + signal.SIGINT, "SIGINT received")


@pytest.mark.parametrize("code", [None, 1, -9, 137])
def test_mpirun_waits_for_hosts_but_not_for_ever(code: int | None) -> None:
    """mpirun's end is judged once every host has reported what it knew, or after a while."""
    world = World("mpirun")
    world.turn(on.EngineEnded(code, "no such file"))
    assert world.machine.cause is None
    world.now += 6.0
    world.turn(on.HostHeard("h2"), on.HostHeard("h3"))
    assert world.machine.cause
    assert world.machine.cause.text.startswith("mpirun ")


def test_an_mpirun_that_ends_well_after_its_instances_is_no_failure() -> None:
    world = World("mpirun")
    world.turn(on.EngineEnded(0, ""))
    for rank, party in enumerate((GUARDIAN, *FAR)):
        world.turn(on.InstanceEnded(rank, 0), on.LivenessAnswered(party, world.round))
    world.turn(on.GuardianFinished(), *(on.HostFinished(host) for host in FAR))
    assert world.machine.cause is None
    assert world.machine.done


def test_nothing_is_over_before_every_host_is() -> None:
    for order in itertools.permutations(["here", *FAR]):
        world = World("local")
        world.turn(*(on.InstanceEnded(rank, 0) for rank in range(3)))
        for at, place in enumerate(order):
            assert not world.machine.done, order[:at]
            world.turn(on.GuardianFinished() if place == "here" else on.HostFinished(place))
        assert world.machine.done
        assert world.machine.cause is None


def test_mpirun_is_let_go_only_when_no_instance_is_left_anywhere() -> None:
    """mpirun would kill all instances on all hosts as soon as it is asked to end."""
    for order in itertools.permutations(["here", *FAR]):
        world = World("mpirun")
        world.turn(on.EndSignal(int(signal.SIGTERM), "SIGTERM"))
        ends = [action for action in world.actions if isinstance(action, on.EndInstances)]
        assert all(end.keep_engine for end in ends)
        for place in order:
            assert on.ReleaseEngine() not in world.actions, order
            world.turn(on.GuardianQuiet() if place == "here" else on.HostQuiet(place))
        assert world.actions.count(on.ReleaseEngine()) == 1


@pytest.mark.parametrize("order", [*itertools.permutations([KEEPER, GUARDIAN])])
def test_poprun_ends_what_is_left_where_both_watchers_are_gone(order: Sequence[str]) -> None:
    world = World("mpirun")
    for watcher in order:
        assert not [a for a in world.actions if isinstance(a, on.EndBelow)]
        world.turn(on.WatcherGone(watcher))
    assert [a for a in world.actions if isinstance(a, on.EndBelow)] == [on.EndBelow(4.0, 99)]
    world.turn(on.BelowEnded(), *(on.HostFinished(host) for host in FAR))
    assert world.machine.done


def test_watchers_that_are_stopped_are_killed() -> None:
    world = World("local")
    world.turn(on.EndSignal(int(signal.SIGTERM), "SIGTERM"))
    world.turn(*(on.HostFinished(host) for host in FAR))
    world.now += 10.0 + 1.0 + 6.0
    world.turn()
    assert on.KillWatchers() not in world.actions
    world.now += 0.1
    world.turn()
    assert world.actions.count(on.KillWatchers()) == 1


def _pair(pair: Sequence[Death]) -> str:
    return "+".join(death.process for death in pair)


@pytest.mark.parametrize("pair", [*itertools.combinations(DEATHS[:7], 2)], ids=_pair)
def test_of_two_that_are_killed_either_is_the_cause(pair: tuple[Death, Death]) -> None:
    """No instance is the cause, whatever the order."""
    lines = {
        party: tuple(
            event
            for line in (pair[0].lines.get(party, ()), pair[1].lines.get(party, ()))
            for event in line
            if event != ANSWER
        )
        for party in (KEEPER, GUARDIAN, *FAR)
    }
    silent = {p for p in lines for death in pair if ANSWER not in death.lines.get(p, (ANSWER,))}
    for order in itertools.permutations(lines):
        world = World("mpirun")
        for party in order:
            for event in lines[party]:
                world.read(party, event)
        cause = world.settle([*silent])
        assert cause
        assert cause.text.startswith((pair[0].words, pair[1].words)), (order, cause.text)


def test_silence_counts_from_when_a_host_could_be_heard() -> None:
    states = HostStates(FAR, 0.0)
    assert not states.overdue(SILENCE)
    assert [state.name for state, _ in states.overdue(SILENCE + 0.1)] == ["h2", "h3"]
    states.heard_all(SILENCE)
    assert not states.overdue(SILENCE + 0.1)
