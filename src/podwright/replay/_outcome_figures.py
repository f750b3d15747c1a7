"""The figures of an outcome: shares of the devices, waits, and what differs between ways."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from podwright.replay._outcome import Outcome
from podwright.replay._report_types import Spread, WayDifference, WayFigures
from podwright.replay.traces._trace import Trace

#: A shorter run time counts as this many seconds in a bounded slowdown (Feitelson's, 10 s).
_SLOWDOWN_BOUND_S = 10.0
_WAIT_PERCENTILES = (50, 95, 99)


def common_jobs(outcomes: Sequence[Outcome]) -> list[int]:
    """Return the jobs that all ways run, in the order of their submission."""
    starts_by_job = zip(*(outcome.start_times for outcome in outcomes), strict=True)
    return [job for job, starts in enumerate(starts_by_job) if not any(map(math.isnan, starts))]


def waits_of(trace: Trace, outcome: Outcome, jobs: Sequence[int]) -> list[float]:
    """Return the seconds that each of these jobs waited."""
    eligible = trace.eligible if outcome.eligible is None else outcome.eligible
    return [max(0.0, outcome.start_times[job] - eligible[job]) for job in jobs]


def differences(trace: Trace, first: Outcome, other: Outcome, jobs: Sequence[int]) -> WayDifference:
    """Return how the means of another way differ from those of the first one."""
    wait_s, slowdown = [], []
    for part in (jobs, jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]):
        waits = [waits_of(trace, outcome, part) for outcome in (first, other)]
        slowdowns = [bounded_slowdowns(trace, part, values) for values in waits]
        wait_s.append(_mean(waits[1]) - _mean(waits[0]))
        slowdown.append(_mean(slowdowns[1]) - _mean(slowdowns[0]))
    return {"way": other.way, "wait_s": wait_s, "bounded_slowdown": slowdown}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def figures(trace: Trace, outcome: Outcome, jobs: Sequence[int] | None = None) -> WayFigures:
    """Return all figures of a way.

    Shares are of the way's devices until the last submission. Times are in seconds. jobs: those
    whose waits and slowdowns count; None: all that it runs.
    """
    counted_jobs = common_jobs([outcome]) if jobs is None else jobs
    waits = waits_of(trace, outcome, counted_jobs)
    series = outcome.series
    window_s = max(trace.span, 1.0)
    device_seconds = outcome.size * window_s
    way_figures: WayFigures = {
        "way": outcome.way,
        "devices": outcome.size,
        "jobs": len(common_jobs([outcome])),
        "refused": dict(sorted(outcome.refused.items())),
        "refused_device_hours": outcome.refused_seconds / 3600,
        "used": until(series.useful, series.width, window_s) / device_seconds,
        "held": until(series.occupied, series.width, window_s) / device_seconds,
        "free_of_no_use": until(series.stuck, series.width, window_s) / device_seconds,
        "makespan_s": max(
            (end_time for end_time in outcome.end_times if not math.isnan(end_time)), default=0.0
        ),
        "wait": spread(waits),
        "bounded_slowdown": spread(bounded_slowdowns(trace, counted_jobs, waits)),
        "events": outcome.events,
        "simpler": list(outcome.simpler),
    }
    if outcome.moves:
        way_figures["moves"] = outcome.moves
        way_figures["moved_device_hours"] = outcome.moved_seconds / 3600
    if outcome.failed:
        way_figures["ended_by_failures"] = outcome.failed
    return way_figures


def until(bin_areas: Sequence[float], bin_seconds: float, window_s: float) -> float:
    """Return the area of a series before a moment."""
    bins = int(window_s / bin_seconds)
    total_area = sum(bin_areas[:bins])
    if bins < len(bin_areas):
        total_area += bin_areas[bins] * (window_s - bins * bin_seconds) / bin_seconds
    return total_area


def bounded_slowdowns(trace: Trace, jobs: Iterable[int], waits: Iterable[float]) -> list[float]:
    """Return the bounded slowdown of each of these jobs. waits: of the jobs, in seconds."""
    return [
        max(1.0, (wait + trace.runtime[job]) / max(trace.runtime[job], _SLOWDOWN_BOUND_S))
        for job, wait in zip(jobs, waits, strict=True)
    ]


def spread(values: Iterable[float]) -> Spread:
    """Return the mean and the percentiles, interpolated linearly between neighbours."""
    sorted_values = sorted(values)
    if not sorted_values:
        return {"mean": 0.0, **{f"p{percentile}": 0.0 for percentile in _WAIT_PERCENTILES}}
    spread_values = {"mean": math.fsum(sorted_values) / len(sorted_values)}
    for percent in _WAIT_PERCENTILES:
        position = percent / 100 * (len(sorted_values) - 1)
        lower_index = int(position)
        upper_index = min(lower_index + 1, len(sorted_values) - 1)
        spread_values[f"p{percent}"] = sorted_values[lower_index] + (
            sorted_values[upper_index] - sorted_values[lower_index]
        ) * (position - lower_index)
    return spread_values
