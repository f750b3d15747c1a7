"""The state of a simulation at one moment: the jobs, the queue, and the events to come.

The scheduler (`_simulate`) and the room maker (`_room_maker`) share these values and change them;
neither keeps a copy.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from heapq import heappush
from typing import Self

from podwright.replay._outcome import Outcome
from podwright.replay._slurm_model import SlurmModel
from podwright.replay.grounds._ground import Ground
from podwright.replay.traces._trace import Trace

#: The states of a job: it waits for another job, waits in the queue, runs, or is over.
BEHIND, WAITS, RUNS, OVER = range(4)


@dataclass(frozen=True)
class Chances:
    """The random parts of a simulation, from one seed.

    movable: the share of jobs that may be moved. move_s: the seconds that each of them loses by a
    move. mtbf_s: the mean seconds until a machine fails, infinite for never. repair_s: the seconds
    for which it is then down.
    """

    seed: int = 1
    movable: float = 1.0
    move_s: float = 300.0
    mtbf_s: float = math.inf
    repair_s: float = 14400.0


#: No machine fails, and any job may be moved.
NO_FAILURES = Chances()


@dataclass(slots=True)
class JobStates:
    """The state of jobs. Arrays have an entry for each job of the trace.

    eligible: seconds; with dependencies, when they were met. demands: the ground's number for the
    request, -1 until it is known. state: BEHIND, WAITS, RUNS or OVER. end_revision: how often the
    end of a job was set; an end with an older number does not count. failures: how many runs ended
    with a machine. rows: of running jobs, the first of the job's rows in Outcome.where. until: of
    running jobs, the end by the time limit, and the units. moved_at: of running jobs, when each
    moved. after: by job, the jobs that wait for its end. movable: 1 for a job that may be moved.
    """

    eligible: array[float]
    demands: array[int]
    state: bytearray
    end_revision: array[int]
    movable: bytes
    failures: dict[int, int] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    until: dict[int, tuple[float, int]] = field(default_factory=dict)
    moved_at: dict[int, list[float]] = field(default_factory=dict)
    after: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: Trace, movable: bytes) -> Self:
        """Return the states before anything has happened."""
        count = len(trace)
        eligible, revision = array("d", trace.eligible), array("i", bytes(4 * count))
        return cls(eligible, array("q", [-1]) * count, bytearray(count), revision, movable)


@dataclass(slots=True)
class Backlog:
    """The queue.

    heaps: by demand, (priority key, job). line: the queue in backfill's order; it may still contain
    jobs that have left the queue. waiting: the number of waiting jobs, by devices.
    """

    heaps: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    line: list[tuple[float, int]] = field(default_factory=list)
    waiting: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Events:
    """The events to come.

    job_ends: (time, job, end_revision). timers: (time, number, kind, subject); the number keeps the
    order of timers that are due at one time.
    """

    job_ends: list[tuple[float, int, int]] = field(default_factory=list)
    timers: list[tuple[float, int, str, int]] = field(default_factory=list)
    number: int = 0

    def add(self, due_time: float, timer_kind: str, timer_subject: int = 0) -> None:
        """Set a timer."""
        self.number += 1
        heappush(self.timers, (due_time, self.number, timer_kind, timer_subject))


@dataclass(slots=True)
class SimulationState:
    """The whole state, with the trace, the ground and the model of Slurm that determine it."""

    trace: Trace
    ground: Ground
    slurm: SlurmModel
    chances: Chances
    outcome: Outcome
    jobs: JobStates
    backlog: Backlog
    events: Events

    def draw(self, job: int, now: float) -> None:
        """Note the devices of a job from now on, for the report's drawings."""
        outcome = self.outcome
        self.jobs.rows[job] = len(outcome.where) // 3
        for device, count in self.ground.spans(job):
            outcome.where.extend((job, device, count))
            outcome.when.extend((now, math.nan))
