"""The outcome of a simulation, or of a recorded site: when and where each job ran."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Self

_BINS = 400


@dataclass
class Series:
    """Areas over time, in bins of `width` seconds.

    Each bin has device-seconds. useful: that jobs asked for, had and worked on. held: that jobs
    held, rounded up. stuck: that were free while a job waited that asked for no more. The last of
    `bins` also contains everything later.
    """

    width: float
    bins: int
    useful: array[float] = field(default_factory=lambda: array("d"))
    occupied: array[float] = field(default_factory=lambda: array("d"))
    stuck: array[float] = field(default_factory=lambda: array("d"))

    @classmethod
    def over(cls, span: float) -> Self:
        """Return bins for this many seconds, and one for everything later."""
        width = max(60.0, span / _BINS)
        return cls(width, int(span / width) + 2)

    def add(self, begin: float, end: float, useful: float, occupied: float, stuck: float) -> None:
        """Add these numbers of devices for the time between two moments."""
        if end <= begin:
            return
        width, late = self.width, self.bins - 1
        bucket, last = min(late, int(begin / width)), min(late, int(end / width))
        while len(self.useful) <= last:
            self.useful.append(0.0)
            self.occupied.append(0.0)
            self.stuck.append(0.0)
        while begin < end:
            step = (end if bucket >= late else min(end, (bucket + 1) * width)) - begin
            if step > 0:
                self.useful[bucket] += step * useful
                self.occupied[bucket] += step * occupied
                self.stuck[bucket] += step * stuck
            begin += step
            bucket += 1
            if step <= 0:  # rounding: the step ended on a bin's edge
                begin = max(begin, bucket * width)


@dataclass
class Outcome:
    """The result of one way.

    start_times, end_times: seconds since the trace's first submission, by job; NaN for refused
    jobs. refused: the number of refused jobs by reason. where: a flat list of (job, first device,
    number of devices). when: a flat list of (begin, end) for the same rows. eligible: when jobs
    became eligible, if dependencies decided it. moves: the number of moves. failed: the number of
    runs that a failing machine ended.
    """

    way: str
    size: int
    start_times: array[float]
    end_times: array[float]
    series: Series
    refused: dict[str, int] = field(default_factory=dict)
    refused_seconds: float = 0.0
    where: array[int] = field(default_factory=lambda: array("i"))
    when: array[float] = field(default_factory=lambda: array("d"))
    eligible: array[float] | None = None
    moves: int = 0
    moved_seconds: float = 0.0
    failed: int = 0
    events: int = 0
    stops: int = 0
    extra_domains: int = 0
    wide_jobs: int = 0
    simpler: tuple[str, ...] = ()

    def leaves(self, job: int, row: int, time: float) -> None:
        """Note that a job leaves at `time` the devices that it has had since that row of
        `where`.
        """
        where, when = self.where, self.when
        while 3 * row < len(where) and where[3 * row] == job:
            when[2 * row + 1] = time
            row += 1
