"""The figures of an outcome: shares of the devices, waits, and the users who wait most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from podwright.replay._outcome import Outcome
from podwright.replay._report_types import Distance, SizeFigures, Spread, UserFigures, WayFigures
from podwright.replay.traces._trace import Trace

#: A shorter run time counts as this many seconds in a bounded slowdown (Feitelson's, 10 s).
_SLOWDOWN_BOUND_S = 10.0
_WAIT_PERCENTILES = (50, 95, 99)
_MIN_USER_JOBS = 5


def figures(trace: Trace, outcome: Outcome) -> WayFigures:
    """Return all figures of a way.

    Shares are of the way's devices until the last submission. Times are in seconds.
    """
    eligible = trace.eligible if outcome.eligible is None else outcome.eligible
    ran_jobs = [
        job for job, start_time in enumerate(outcome.start_times) if not math.isnan(start_time)
    ]
    waits = [max(0.0, outcome.start_times[job] - eligible[job]) for job in ran_jobs]
    series = outcome.series
    window_s = max(trace.span, 1.0)
    device_seconds = outcome.size * window_s
    way_figures: WayFigures = {
        "way": outcome.way,
        "devices": outcome.size,
        "jobs": len(ran_jobs),
        "refused": dict(sorted(outcome.refused.items())),
        "refused_device_hours": outcome.refused_seconds / 3600,
        "used": until(series.useful, series.width, window_s) / device_seconds,
        "held": until(series.occupied, series.width, window_s) / device_seconds,
        "free_of_no_use": until(series.stuck, series.width, window_s) / device_seconds,
        "makespan_s": max(
            (end_time for end_time in outcome.end_times if not math.isnan(end_time)), default=0.0
        ),
        "wait": spread(waits),
        "bounded_slowdown": spread(bounded_slowdowns(trace, ran_jobs, waits)),
        "by_size": by_size(trace, ran_jobs, waits),
        "users": by_user(trace, ran_jobs, waits),
        "events": outcome.events,
        "simpler": list(outcome.simpler),
    }
    if outcome.moves:
        way_figures["moves"] = outcome.moves
        way_figures["moved_device_hours"] = outcome.moved_seconds / 3600
    if outcome.failed:
        way_figures["ended_by_failures"] = outcome.failed
    if outcome.wide_jobs:
        way_figures["extra_link_domains"] = outcome.extra_domains / outcome.wide_jobs
    return way_figures


def until(bin_areas: Sequence[float], bin_seconds: float, window_s: float) -> float:
    """Return the area of a series before a moment."""
    full_bins = int(window_s / bin_seconds)
    total_area = sum(bin_areas[:full_bins])
    if full_bins < len(bin_areas):
        total_area += bin_areas[full_bins] * (window_s - full_bins * bin_seconds) / bin_seconds
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


def by_size(trace: Trace, ran_jobs: Sequence[int], waits: Sequence[float]) -> list[SizeFigures]:
    """Return the figures of jobs of 1, 2, 3 to 4, 5 to 8 ... devices."""
    waits_by_level: dict[int, list[tuple[int, float]]] = {}
    for job, wait in zip(ran_jobs, waits, strict=True):
        waits_by_level.setdefault((trace.devices[job] - 1).bit_length(), []).append((job, wait))
    return [
        {
            "from": (1 << level - 1) + 1 if level > 1 else 1 << level,
            "to": 1 << level,
            "jobs": len(waits),
            "device_hours": sum(trace.devices[job] * trace.runtime[job] for job, _ in waits) / 3600,
            "wait": spread(wait for _, wait in waits),
        }
        for level, waits in sorted(waits_by_level.items())
    ]


def by_user(
    trace: Trace, ran_jobs: Sequence[int], waits: Sequence[float], user_limit: int = 5
) -> list[UserFigures]:
    """Return the users with the longest mean waits, among those with five jobs or more."""
    if len(trace.users) < 2:
        return []
    job_counts = [0] * len(trace.users)
    wait_totals_s, device_hours = [0.0] * len(job_counts), [0.0] * len(job_counts)
    for job, wait in zip(ran_jobs, waits, strict=True):
        user = trace.user[job]
        job_counts[user] += 1
        wait_totals_s[user] += wait
        device_hours[user] += trace.devices[job] * trace.runtime[job] / 3600
    frequent_users = [
        user for user, job_count in enumerate(job_counts) if job_count >= _MIN_USER_JOBS
    ]
    return [
        {
            "user": trace.users[user],
            "jobs": job_counts[user],
            "device_hours": device_hours[user],
            "mean_wait_s": wait_totals_s[user] / job_counts[user],
        }
        for user in sorted(
            frequent_users, key=lambda user: (-wait_totals_s[user] / job_counts[user], user)
        )[:user_limit]
    ]


def distance(trace: Trace, simulated_figures: WayFigures) -> Distance:
    """Return how far a simulation is from the record: each recorded value beside the
    simulated one.
    """
    ran_jobs = [job for job, start_time in enumerate(trace.start) if not math.isnan(start_time)]
    waits = [max(0.0, trace.start[job] - trace.eligible[job]) for job in ran_jobs]
    span_s = max(trace.span, 1.0)
    used_device_s = 0.0
    for job in ran_jobs:
        begin, end = trace.start[job], trace.start[job] + trace.runtime[job]
        used_device_s += max(0.0, min(end, span_s) - max(begin, 0.0)) * trace.devices[job]
    recorded_waits, recorded_slowdowns = (
        spread(waits),
        spread(bounded_slowdowns(trace, ran_jobs, waits)),
    )
    return {
        "wait_p50_s": [recorded_waits["p50"], simulated_figures["wait"]["p50"]],
        "wait_p95_s": [recorded_waits["p95"], simulated_figures["wait"]["p95"]],
        "bounded_slowdown_mean": [
            recorded_slowdowns["mean"],
            simulated_figures["bounded_slowdown"]["mean"],
        ],
        "used": [used_device_s / span_s / simulated_figures["devices"], simulated_figures["used"]],
    }
