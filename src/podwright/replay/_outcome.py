"""The outcome of a simulation: when and where each job ran."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Self

_SERIES_BIN_COUNT = 400


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
    def over(cls, span_s: float) -> Self:
        """Return bins for this many seconds, and one for everything later."""
        seconds = max(60.0, span_s / _SERIES_BIN_COUNT)
        return cls(seconds, int(span_s / seconds) + 2)

    def add(self, begin: float, end: float, useful: float, occupied: float, stuck: float) -> None:
        """Add these numbers of devices for the time between two moments."""
        if end <= begin:
            return
        bin_seconds, last_bin = self.width, self.bins - 1
        bin_index, end_bin = (
            min(last_bin, int(begin / bin_seconds)),
            min(last_bin, int(end / bin_seconds)),
        )
        while len(self.useful) <= end_bin:
            self.useful.append(0.0)
            self.occupied.append(0.0)
            self.stuck.append(0.0)
        while begin < end:
            step_seconds = (
                end if bin_index >= last_bin else min(end, (bin_index + 1) * bin_seconds)
            ) - begin
            if step_seconds > 0:
                self.useful[bin_index] += step_seconds * useful
                self.occupied[bin_index] += step_seconds * occupied
                self.stuck[bin_index] += step_seconds * stuck
            begin += step_seconds
            bin_index += 1
            if step_seconds <= 0:  # rounding: the step ended on a bin's edge
                begin = max(begin, bin_index * bin_seconds)


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
    simpler: tuple[str, ...] = ()

    def leaves(self, job: int, row_index: int, leave_time: float) -> None:
        """Note that a job leaves at `leave_time` the devices that it has had since that row of
        `device_rows`.
        """
        device_rows, time_rows = self.where, self.when
        while 3 * row_index < len(device_rows) and device_rows[3 * row_index] == job:
            time_rows[2 * row_index + 1] = leave_time
            row_index += 1
