"""A trace: jobs as columns, because a million of them must fit into a gigabyte."""

from __future__ import annotations

import enum
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

UNKNOWN_TIME = math.nan
#: Seconds. A larger time is in milliseconds, or wrong; so is a longer run time.
_LATEST_TIME_S = 1e11
_LONGEST_TIME_SPAN_S = 100 * 365.0 * 86400


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
    limit: float = UNKNOWN_TIME
    status: Status = Status.COMPLETED
    user: str = ""
    eligible: float = UNKNOWN_TIME
    start: float = UNKNOWN_TIME
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

    def with_checked_times(self) -> TraceJob:
        """Return the job itself. Raises ValueError for impossible times."""
        if not abs(self.submit) < _LATEST_TIME_S:
            raise ValueError(f"submitted at {self.submit:g} s")
        if not 0 <= self.runtime < _LONGEST_TIME_SPAN_S:
            raise ValueError(f"a run time of {self.runtime:g} s")
        if self.limit < 0:
            raise ValueError(f"a time limit of {self.limit:g} s")
        for name, time_value in (("eligible", self.eligible), ("begun", self.start)):
            if abs(time_value) >= _LATEST_TIME_S:
                raise ValueError(f"{name} at {time_value:g} s")
        return self


class BadLine(NamedTuple):
    """A line that is not a job, and the reason."""

    number: int
    problem: str
    text: str


#: How many bad lines are kept for display; all of them are counted.
MOST_SHOWN_BAD_LINES = 20


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

    def line(self, line_number: int, problem: str, text: str) -> None:
        """Note a line that cannot be read."""
        self.bad += 1
        if len(self.shown) < MOST_SHOWN_BAD_LINES:
            self.shown.append(BadLine(self.blank + line_number, problem, text.strip()[:160]))

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
        self._append_jobs(jobs)

    def __len__(self) -> int:
        return len(self.names)

    def _append_jobs(self, jobs: Iterable[TraceJob]) -> None:
        user_numbers: dict[str, int] = {}
        after_by_row: dict[int, str] = {}
        for job in jobs:
            if not job.fits_columns:
                self.skipped.count("jobs with a number that is too large")
                continue
            row = len(self.names)
            self.names.append(job.name)
            self.submit.append(job.submit)
            eligible_time = (
                job.submit if math.isnan(job.eligible) else max(job.submit, job.eligible)
            )
            self.eligible.append(eligible_time)
            self.start.append(job.start)
            self.runtime.append(job.runtime)
            self.limit.append(job.limit)
            self.devices.append(job.devices)
            self.nodes.append(job.nodes)
            self.cpus.append(job.cpus)
            self.memory.append(job.memory)
            self.user.append(user_numbers.setdefault(job.user, len(user_numbers)))
            self.status.append(job.status)
            if job.after:
                after_by_row[row] = job.after
            self.after.append(-1)
        self.users = list(user_numbers)
        if after_by_row:
            row_by_name = {job_name: row for row, job_name in enumerate(self.names)}
            for row, job_name in after_by_row.items():
                if job_name not in row_by_name:
                    self.skipped.count("a dependency on a job that the trace does not hold")
                self.after[row] = row_by_name.get(job_name, -1)
        self._sort_by_submission()
        self._rebase_times()

    _COLUMNS = (
        "submit", "eligible", "start", "runtime", "limit", "devices", "nodes", "cpus",
        "memory", "user", "status",
    )  # fmt: skip

    def _sort_by_submission(self) -> None:
        times = self.submit
        if all(times[row] <= times[row + 1] for row in range(len(times) - 1)):
            return
        self._select_rows(sorted(range(len(times)), key=times.__getitem__))

    def drop_repeated(self) -> None:
        """Keep one of several lines of the same run: the longest, which is the latest that is
        known.
        """
        submit_times, start_times, job_names = self.submit, self.start, self.names
        row_by_run: dict[tuple[str, float], int] = {}
        dropped_rows: set[int] = set()
        for row, job_name in enumerate(job_names):
            if row and submit_times[row] != submit_times[row - 1]:
                row_by_run.clear()
            earlier_row = row_by_run.setdefault((job_name, start_times[row]), row)
            if earlier_row != row:
                shorter_row = min(earlier_row, row, key=self.runtime.__getitem__)
                row_by_run[job_name, start_times[row]] = earlier_row + row - shorter_row
                dropped_rows.add(shorter_row)
                self.skipped.count("lines that say a job again")
        if dropped_rows:
            self._select_rows([row for row in range(len(job_names)) if row not in dropped_rows])

    def _select_rows(self, row_order: Sequence[int]) -> None:
        """Return these jobs, in this order."""
        new_rows = array("i", [-1]) * len(self.names)
        for new_row, old_row in enumerate(row_order):
            new_rows[old_row] = new_row
        for name in self._COLUMNS:
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, (column[row] for row in row_order)))
        self.names = [self.names[row] for row in row_order]
        after_rows = self.after
        self.after = array(
            "i", (new_rows[after_rows[row]] if after_rows[row] >= 0 else -1 for row in row_order)
        )

    def _rebase_times(self) -> None:
        if not self.names:
            return
        submission = self.submit[0]
        self.epoch = submission if submission > 1e8 else 0.0
        if submission:
            for column_name in ("submit", "eligible", "start"):
                column = getattr(self, column_name)
                setattr(
                    self,
                    column_name,
                    array("d", (time_value - submission for time_value in column)),
                )

    @property
    def span(self) -> float:
        """The seconds from the first submission to the last."""
        return self.submit[-1] - self.submit[0] if self.names else 0.0

    @property
    def device_seconds(self) -> float:
        """The use of all jobs together, by the devices that they requested."""
        return sum(
            count * runtime_seconds
            for count, runtime_seconds in zip(self.devices, self.runtime, strict=True)
        )

    def jobs(self) -> Iterator[TraceJob]:
        """Return the jobs as values."""
        for row, job_name in enumerate(self.names):
            yield TraceJob(
                job_name,
                self.submit[row],
                self.runtime[row],
                self.devices[row],
                self.limit[row],
                Status(self.status[row]),
                self.users[self.user[row]],
                self.eligible[row],
                self.start[row],
                self.nodes[row],
                self.cpus[row],
                self.memory[row],
                self.names[self.after[row]] if self.after[row] >= 0 else "",
            )

    @property
    def has_starts(self) -> bool:
        """Whether the trace has the starts of jobs."""
        return any(not math.isnan(start_time) for start_time in self.start)

    @property
    def has_dependencies(self) -> bool:
        """Whether any job waits for another."""
        return any(row >= 0 for row in self.after)

    @property
    def has_limits(self) -> bool:
        """Whether any job has a recorded time limit."""
        return any(not math.isnan(limit) for limit in self.limit)
