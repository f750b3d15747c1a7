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


#: The jobs of a range of sizes, in devices.
SizeFigures = TypedDict(
    "SizeFigures",
    {"from": int, "to": int, "jobs": int, "device_hours": float, "wait": Spread},
)


class UserFigures(TypedDict):
    """A user, among those who wait most."""

    user: str
    jobs: int
    device_hours: float
    mean_wait_s: float


class WayFigures(TypedDict):
    """All figures of a way. refused: the number of jobs for each reason."""

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
    by_size: list[SizeFigures]
    users: list[UserFigures]
    events: int
    simpler: list[str]
    moves: NotRequired[int]
    moved_device_hours: NotRequired[float]
    ended_by_failures: NotRequired[int]
    extra_link_domains: NotRequired[float]


class ChangedFigures(TypedDict):
    """The figures of a way with one thing changed."""

    devices: int
    used: float
    held: float
    wait: Spread


class RecordedFigures(TypedDict):
    """The recorded starts on a way's devices: see `recorded`."""

    jobs: int
    peak: int
    overlapping: int
    placed: int
    without_shape: int
    without_room: int
    refused: int
    used: float
    free_of_no_use: float


class Distance(TypedDict):
    """Each recorded value beside the simulated one."""

    wait_p50_s: list[float]
    wait_p95_s: list[float]
    bounded_slowdown_mean: list[float]
    used: list[float]


class ReportFigures(TypedDict):
    """All figures of a report. recorded, distance: None for a trace without starts."""

    trace: TraceFigures
    recorded: RecordedFigures | None
    distance: Distance | None
    slurm: dict[str, object]
    chances: dict[str, object]
    ways: list[WayFigures]
    what_if: dict[str, ChangedFigures]
    what_to_change: list[str]
    deviations: list[str]
    simpler: list[str]
