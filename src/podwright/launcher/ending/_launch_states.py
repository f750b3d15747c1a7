"""The values of `_launch_state_machine`: the facts of one start, and the states of its parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from podwright.launcher.watchers import _launch_events as on

#: Seconds in which mpirun starts its first instance; after them the user is warned. Open MPI 5 may
#: hang before it starts any (open-mpi/ompi issue 10586).
SLOW_START_SECONDS = 20.0


def slow_start_warning(waited_seconds: float) -> str:
    """Return the warning that mpirun has started no instance for these seconds."""
    return (
        f"mpirun has started no instance for {waited_seconds:g} s. If this goes on, mpirun hangs: "
        "press Ctrl-C and start again, or add --launcher=local to do without mpirun."
    )


@dataclass(frozen=True)
class LaunchFacts:
    """What is fixed for one start of all instances.

    ranks: of other hosts, by name. places: the host of each rank, for messages, if there are
    several hosts. mpirun: whether it starts the instances. move: see Relocation. deadline: when
    --timeout is over. slow_start: seconds after which the user is warned that mpirun has started
    nothing.
    """

    instances: int
    ranks: Mapping[str, Sequence[int]]
    places: Mapping[int, str]
    mpirun: bool
    grace: float
    timeout: float = 0.0
    deadline: float | None = None
    move: tuple[int, float] | None = None
    slow_start: float = SLOW_START_SECONDS


@dataclass
class InstanceStates:
    """Which instances have started, and how each ended."""

    started: set[int] = field(default_factory=set)
    codes: dict[int, int] = field(default_factory=dict)
    all_ended: bool = False


@dataclass
class MpirunState:
    """mpirun's process, its last output, and its end while other hosts may still explain it."""

    pid: int = 0
    words: bytes = b""
    end: on.EngineEnded | None = None
    early: bool = False
    round: int = 0
    wait_until: float = math.inf
    slow_at: float = math.inf


@dataclass
class LocalHostState:
    """The watchers of poprun's host, and what they have seen to its end."""

    ended_watchers: set[str] = field(default_factory=set)
    quiet: bool = False
    cleared: bool = False
    finished: bool = False
    below: bool = False
    released: bool = False
    kill_at: float = math.inf
