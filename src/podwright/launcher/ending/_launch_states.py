"""The values of `_launch_state_machine`: the facts of one start, and the states of its parts.

They are no dataclasses: importing those costs each start 8 ms before mpirun begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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


class LaunchFacts(NamedTuple):
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


class InstanceStates:
    """Which instances have started, and how each ended."""

    def __init__(self) -> None:
        self.started: set[int] = set()
        self.codes: dict[int, int] = {}
        self.all_ended = False


class MpirunState:
    """mpirun's process, its last output, and its end while other hosts may still explain it."""

    def __init__(self) -> None:
        self.pid, self.words = 0, b""
        self.end: on.EngineEnded | None = None
        self.early, self.round = False, 0
        self.wait_until = self.slow_at = math.inf


class LocalHostState:
    """The watchers of poprun's host, and what they have seen to its end."""

    def __init__(self) -> None:
        self.ended_watchers: set[str] = set()
        self.quiet = self.cleared = self.finished = self.below = self.released = False
        self.kill_at = math.inf
