"""What a simulation, or a recorded site, came to: when each job began and where."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass
class Series:
    """Areas over time, in bins of `width` seconds: device-seconds that jobs asked for, had and
    worked on (useful), held (rounded up), and free while somebody waited who asked for no more
    (stuck)."""

    width: float
    useful: array[float] = field(default_factory=lambda: array("d"))
    held: array[float] = field(default_factory=lambda: array("d"))
    stuck: array[float] = field(default_factory=lambda: array("d"))

    def add(self, begin: float, end: float, useful: float, held: float, stuck: float) -> None:
        """Between two moments so many devices were each of these."""
        if end <= begin:
            return
        width = self.width
        at, last = int(begin / width), int(end / width)
        while len(self.useful) <= last:
            self.useful.append(0.0)
            self.held.append(0.0)
            self.stuck.append(0.0)
        while begin < end:
            step = min(end, (at + 1) * width) - begin
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
    many) in a row. eligible: where dependencies decide it. moves: how many there were.
    failed: lives that a failing machine ended.
    """

    way: str
    size: int
    began: array[float]
    ended: array[float]
    series: Series
    refused: dict[str, int] = field(default_factory=dict)
    refused_seconds: float = 0.0
    where: array[int] = field(default_factory=lambda: array("i"))
    eligible: array[float] | None = None
    moves: int = 0
    moved_seconds: float = 0.0
    failed: int = 0
    seconds: float = 0.0
    events: int = 0
    stops: int = 0
    extra_domains: int = 0
    wide_jobs: int = 0
    simpler: tuple[str, ...] = ()
