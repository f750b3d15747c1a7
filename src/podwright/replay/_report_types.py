"""The shape of a report, which is that of its JSON. Times are in seconds, shares from 0 to 1."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from podwright.replay.traces._trace import SkippedFigures

#: The mean and the percentiles of a figure, by `mean`, `p50`, `p95` and `p99`.
Spread = dict[str, float]


class TraceFigures(SkippedFigures):
    """The jobs that are replayed. largest: devices of the largest one."""

    source: str
    jobs: int
    users: int
    days: float
    device_hours: float
    largest: int
    notes: list[str]


class WayFigures(TypedDict):
    """All figures of a way.

    jobs: those that it runs. refused: the number of jobs for each reason. used, held,
    free_of_no_use: of all jobs that it runs. wait, bounded_slowdown: of the jobs that all ways run.
    """

    way: str
    devices: int
    jobs: int
    refused: dict[str, int]
    refused_device_hours: float
    used: float
    held: float
    free_of_no_use: float
    makespan_s: float
    wait: Spread
    bounded_slowdown: Spread
    events: int
    simpler: list[str]
    moves: NotRequired[int]
    moved_device_hours: NotRequired[float]
    ended_by_failures: NotRequired[int]


class WayDifference(TypedDict):
    """A way's mean wait and mean bounded slowdown less those of the first way.

    Each is of the jobs that all ways run: of all of them, of the first half, of the second half, in
    the order of submission.
    """

    way: str
    wait_s: list[float]
    bounded_slowdown: list[float]


class ReportFigures(TypedDict):
    """All figures of a report. common_jobs: the number of jobs that all ways run."""

    trace: TraceFigures
    slurm: dict[str, object]
    chances: dict[str, object]
    common_jobs: int
    ways: list[WayFigures]
    differences: list[WayDifference]
    deviations: list[str]
    simpler: list[str]
