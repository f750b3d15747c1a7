"""What a simulation, or a recorded site, came to: when each job began and where."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Self

_BINS = 400


@dataclass
class Series:
    """Areas over time, in bins of `width` seconds: device-seconds that jobs asked for, had and
    worked on (useful), held (rounded up), and free while somebody waited who asked for no more
    (stuck). The last of `bins` holds all that comes later as well."""

    width: float
    bins: int
    useful: array[float] = field(default_factory=lambda: array("d"))
    held: array[float] = field(default_factory=lambda: array("d"))
    stuck: array[float] = field(default_factory=lambda: array("d"))

    @classmethod
    def over(cls, span: float) -> Self:
        """Bins for so many seconds, and one for what comes later."""
        width = max(60.0, span / _BINS)
        return cls(width, int(span / width) + 2)

    def add(self, begin: float, end: float, useful: float, held: float, stuck: float) -> None:
        """Between two moments so many devices were each of these."""
        if end <= begin:
            return
        width, late = self.width, self.bins - 1
        at, last = min(late, int(begin / width)), min(late, int(end / width))
        while len(self.useful) <= last:
            self.useful.append(0.0)
            self.held.append(0.0)
            self.stuck.append(0.0)
        while begin < end:
            step = (end if at >= late else min(end, (at + 1) * width)) - begin
            if step > 0:
                self.useful[at] += step * useful
                self.held[at] += step * held
                self.stuck[at] += step * stuck
            begin += step
            at += 1
            if step <= 0:  # a bin's edge, as floats have it
                begin = max(begin, at * width)


@dataclass
class Outcome:
    """One way's result. began, ended: seconds since the trace's first submission, by job; NaN for
    jobs that were refused. refused: how many for which reason. where: (job, first device, how
    many) in a row; when: from when to when, for each of those. eligible: where dependencies decide
    it. moves: how many there were. failed: lives that a failing machine ended.
    """

    way: str
    size: int
    began: array[float]
    ended: array[float]
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

    def leaves(self, job: int, row: int, at: float) -> None:
        """A job leaves, at some time, where it has been since that row of `where`."""
        where, when = self.where, self.when
        while 3 * row < len(where) and where[3 * row] == job:
            when[2 * row + 1] = at
            row += 1
