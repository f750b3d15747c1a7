"""A trace: jobs as columns, because a million of them must fit into a gigabyte."""

from __future__ import annotations

import enum
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

UNKNOWN = math.nan
#: Seconds. A larger time is in milliseconds, or wrong; so is a longer run time.
_FURTHEST = 1e11
_LONGEST = 100 * 365.0 * 86400


class Status(enum.IntEnum):
    """How a job ended, in Slurm's words."""

    COMPLETED = 0
    FAILED = 1
    CANCELLED = 2
    TIMEOUT = 3
    NODE_FAIL = 4
    OUT_OF_MEMORY = 5
    PREEMPTED = 6
    REQUEUED = 7
    RUNNING = 8


class TraceJob(NamedTuple):
    """One job, or one run of a job that was requeued. Times are seconds, in one clock.

    submit, eligible: a job counts as waiting from `eligible` on. start: as recorded, or NaN.
    runtime: seconds that it ran. limit: its time limit; NaN: not recorded, infinite: none. devices:
    as it requested them. nodes, cpus, memory (bytes, all nodes together): 0 when they are not
    recorded. after: the name of the job that it waits for; empty: none.
    """

    name: str
    submit: float
    runtime: float
    devices: int
    limit: float = UNKNOWN
    status: Status = Status.COMPLETED
    user: str = ""
    eligible: float = UNKNOWN
    start: float = UNKNOWN
    nodes: int = 0
    cpus: int = 0
    memory: int = 0
    after: str = ""

    @property
    def fits_columns(self) -> bool:
        """Return whether a `Trace` can contain its numbers."""
        return (
            max(map(abs, (self.devices, self.nodes, self.cpus))) < 1 << 31
            and abs(self.memory) < 1 << 63
        )

    def with_times(self) -> TraceJob:
        """Return the job itself. Raises ValueError for impossible times."""
        if not abs(self.submit) < _FURTHEST:
            raise ValueError(f"submitted at {self.submit:g} s")
        if not 0 <= self.runtime < _LONGEST:
            raise ValueError(f"a run time of {self.runtime:g} s")
        if self.limit < 0:
            raise ValueError(f"a time limit of {self.limit:g} s")
        for name, time in (("eligible", self.eligible), ("begun", self.start)):
            if abs(time) >= _FURTHEST:
                raise ValueError(f"{name} at {time:g} s")
        return self


class BadLine(NamedTuple):
    """A line that is not a job, and the reason."""

    number: int
    problem: str
    text: str


#: How many bad lines are kept for display; all of them are counted.
SHOWN = 20


class BadLineFigures(TypedDict):
    """A bad line in the shape of a report."""

    number: int
    problem: str
    text: str


class SkippedFigures(TypedDict):
    """What a reader left out. left_out: the number of jobs for each reason."""

    bad_lines: int
    bad_lines_shown: list[BadLineFigures]
    left_out: dict[str, int]


@dataclass
class Skipped:
    """The lines that a reader left out.

    bad: the number of lines that could not be read. shown: the first of them. reasons: valid lines
    without a job to simulate, counted by reason. still_running: jobs that had not ended; they are
    taken to have ended then. blank: empty lines before the first. local_times: whether times had no
    offset. tres: what jobs without devices have.
    """

    bad: int = 0
    blank: int = 0
    local_times: bool = False
    tres: set[str] = field(default_factory=set)
    shown: list[BadLine] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    still_running: int = 0

    def line(self, number: int, problem: str, text: str) -> None:
        """Note a line that cannot be read."""
        self.bad += 1
        if len(self.shown) < SHOWN:
            self.shown.append(BadLine(self.blank + number, problem, text.strip()[:160]))

    def figures(self) -> SkippedFigures:
        """Return the counts in the shape of a report."""
        return {
            "bad_lines": self.bad,
            "bad_lines_shown": [
                {"number": line.number, "problem": line.problem, "text": line.text}
                for line in self.shown
            ],
            "left_out": dict(sorted(self.reasons.items())),
        }

    def count(self, reason: str) -> None:
        """Note a line that is left out for a reason."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1


class Trace:
    """Jobs in the order of their submission, as columns. source: the name of the input, for people.

    Times are seconds since `epoch`. `epoch` is the first submission, in seconds since 1970; 0 when
    the source has no dates. users: names by number. skipped: the lines that the reader left out.
    notes: what the source cannot tell, in words.
    """

    def __init__(
        self, source: str, jobs: Iterable[TraceJob], skipped: Skipped | None = None
    ) -> None:
        self.source = source
        self.skipped = skipped or Skipped()
        self.notes: list[str] = []
        self.names: list[str] = []
        self.users: list[str] = []
        self.epoch = 0.0
        self.submit, self.eligible, self.start = array("d"), array("d"), array("d")
        self.runtime, self.limit = array("d"), array("d")
        self.devices, self.nodes, self.cpus = array("i"), array("i"), array("i")
        self.memory, self.user, self.after = array("q"), array("i"), array("i")
        self.status = array("b")
        self._fill(jobs)

    def __len__(self) -> int:
        return len(self.names)

    def _fill(self, jobs: Iterable[TraceJob]) -> None:
        users: dict[str, int] = {}
        afters: dict[int, str] = {}
        for job in jobs:
            if not job.fits_columns:
                self.skipped.count("jobs with a number that is too large")
                continue
            row = len(self.names)
            self.names.append(job.name)
            self.submit.append(job.submit)
            eligible = job.submit if math.isnan(job.eligible) else max(job.submit, job.eligible)
            self.eligible.append(eligible)
            self.start.append(job.start)
            self.runtime.append(job.runtime)
            self.limit.append(job.limit)
            self.devices.append(job.devices)
            self.nodes.append(job.nodes)
            self.cpus.append(job.cpus)
            self.memory.append(job.memory)
            self.user.append(users.setdefault(job.user, len(users)))
            self.status.append(job.status)
            if job.after:
                afters[row] = job.after
            self.after.append(-1)
        self.users = list(users)
        if afters:
            places = {name: row for row, name in enumerate(self.names)}
            for row, name in afters.items():
                if name not in places:
                    self.skipped.count("a dependency on a job that the trace does not hold")
                self.after[row] = places.get(name, -1)
        self._sort()
        self._rebase()

    _COLUMNS = (
        "submit", "eligible", "start", "runtime", "limit", "devices", "nodes", "cpus",
        "memory", "user", "status",
    )  # fmt: skip

    def _sort(self) -> None:
        submit = self.submit
        if all(submit[i] <= submit[i + 1] for i in range(len(submit) - 1)):
            return
        self._pick(sorted(range(len(submit)), key=submit.__getitem__))

    def drop_repeated(self) -> None:
        """Keep one of several lines of the same run: the longest, which is the latest that is
        known.
        """
        submit, start, names = self.submit, self.start, self.names
        known: dict[tuple[str, float], int] = {}
        drop: set[int] = set()
        for row, name in enumerate(names):
            if row and submit[row] != submit[row - 1]:
                known.clear()
            before = known.setdefault((name, start[row]), row)
            if before != row:
                shorter = min(before, row, key=self.runtime.__getitem__)
                known[name, start[row]] = before + row - shorter
                drop.add(shorter)
                self.skipped.count("lines that say a job again")
        if drop:
            self._pick([row for row in range(len(names)) if row not in drop])

    def _pick(self, order: Sequence[int]) -> None:
        """Return these jobs, in this order."""
        places = array("i", [-1]) * len(self.names)
        for new, old in enumerate(order):
            places[old] = new
        for name in self._COLUMNS:
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, (column[i] for i in order)))
        self.names = [self.names[i] for i in order]
        after = self.after
        self.after = array("i", (places[after[i]] if after[i] >= 0 else -1 for i in order))

    def _rebase(self) -> None:
        if not self.names:
            return
        first = self.submit[0]
        self.epoch = first if first > 1e8 else 0.0
        if first:
            for name in ("submit", "eligible", "start"):
                column = getattr(self, name)
                setattr(self, name, array("d", (value - first for value in column)))

    @property
    def span(self) -> float:
        """The seconds from the first submission to the last."""
        return self.submit[-1] - self.submit[0] if self.names else 0.0

    @property
    def device_seconds(self) -> float:
        """The use of all jobs together, by the devices that they requested."""
        return sum(n * s for n, s in zip(self.devices, self.runtime, strict=True))

    def jobs(self) -> Iterator[TraceJob]:
        """Return the jobs as values."""
        for i, name in enumerate(self.names):
            yield TraceJob(
                name,
                self.submit[i],
                self.runtime[i],
                self.devices[i],
                self.limit[i],
                Status(self.status[i]),
                self.users[self.user[i]],
                self.eligible[i],
                self.start[i],
                self.nodes[i],
                self.cpus[i],
                self.memory[i],
                self.names[self.after[i]] if self.after[i] >= 0 else "",
            )

    @property
    def has_starts(self) -> bool:
        """Whether the trace has the starts of jobs."""
        return any(not math.isnan(value) for value in self.start)

    @property
    def has_dependencies(self) -> bool:
        """Whether any job waits for another."""
        return any(before >= 0 for before in self.after)

    @property
    def has_limits(self) -> bool:
        """Whether any job has a recorded time limit."""
        return any(not math.isnan(value) for value in self.limit)
