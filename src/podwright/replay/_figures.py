"""The figures of an outcome: shares of the devices, waits, and the users who wait most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from podwright.replay._outcome import Outcome
from podwright.replay._report_values import Distance, SizeFigures, Spread, UserFigures, WayFigures
from podwright.replay.traces._trace import Trace

#: A shorter run time counts as this many seconds in a bounded slowdown (Feitelson's, 10 s).
_BOUND_S = 10.0
_PERCENT = (50, 95, 99)
_USER_JOBS = 5


def figures(trace: Trace, out: Outcome) -> WayFigures:
    """Return all figures of a way.

    Shares are of the way's devices until the last submission. Times are in seconds.
    """
    eligible = trace.eligible if out.eligible is None else out.eligible
    ran = [job for job, began in enumerate(out.start_times) if not math.isnan(began)]
    waits = [max(0.0, out.start_times[job] - eligible[job]) for job in ran]
    series = out.series
    window = max(trace.span, 1.0)
    area = out.size * window
    values: WayFigures = {
        "way": out.way,
        "devices": out.size,
        "jobs": len(ran),
        "refused": dict(sorted(out.refused.items())),
        "refused_device_hours": out.refused_seconds / 3600,
        "used": until(series.useful, series.width, window) / area,
        "held": until(series.occupied, series.width, window) / area,
        "free_of_no_use": until(series.stuck, series.width, window) / area,
        "makespan_s": max((end for end in out.end_times if not math.isnan(end)), default=0.0),
        "wait": spread(waits),
        "bounded_slowdown": spread(bounded_slowdowns(trace, ran, waits)),
        "by_size": by_size(trace, ran, waits),
        "users": by_user(trace, ran, waits),
        "events": out.events,
        "simpler": list(out.simpler),
    }
    if out.moves:
        values["moves"] = out.moves
        values["moved_device_hours"] = out.moved_seconds / 3600
    if out.failed:
        values["ended_by_failures"] = out.failed
    if out.wide_jobs:
        values["extra_link_domains"] = out.extra_domains / out.wide_jobs
    return values


def until(values: Sequence[float], width: float, window: float) -> float:
    """Return the area of a series before a moment."""
    full_windows = int(window / width)
    total = sum(values[:full_windows])
    if full_windows < len(values):
        total += values[full_windows] * (window - full_windows * width) / width
    return total


def bounded_slowdowns(trace: Trace, jobs: Iterable[int], waits: Iterable[float]) -> list[float]:
    """Return the bounded slowdown of each of these jobs. waits: of the jobs, in seconds."""
    return [
        max(1.0, (wait + trace.runtime[job]) / max(trace.runtime[job], _BOUND_S))
        for job, wait in zip(jobs, waits, strict=True)
    ]


def spread(values: Iterable[float]) -> Spread:
    """Return the mean and the percentiles, interpolated linearly between neighbours."""
    order = sorted(values)
    if not order:
        return {"mean": 0.0, **{f"p{p}": 0.0 for p in _PERCENT}}
    out = {"mean": math.fsum(order) / len(order)}
    for percent in _PERCENT:
        place = percent / 100 * (len(order) - 1)
        low = int(place)
        high = min(low + 1, len(order) - 1)
        out[f"p{percent}"] = order[low] + (order[high] - order[low]) * (place - low)
    return out


def by_size(trace: Trace, ran: Sequence[int], waits: Sequence[float]) -> list[SizeFigures]:
    """Return the figures of jobs of 1, 2, 3 to 4, 5 to 8 ... devices."""
    levels: dict[int, list[tuple[int, float]]] = {}
    for job, wait in zip(ran, waits, strict=True):
        levels.setdefault((trace.devices[job] - 1).bit_length(), []).append((job, wait))
    return [
        {
            "from": (1 << level - 1) + 1 if level > 1 else 1 << level,
            "to": 1 << level,
            "jobs": len(waits),
            "device_hours": sum(trace.devices[job] * trace.runtime[job] for job, _ in waits) / 3600,
            "wait": spread(wait for _, wait in waits),
        }
        for level, waits in sorted(levels.items())
    ]


def by_user(
    trace: Trace, ran: Sequence[int], waits: Sequence[float], count: int = 5
) -> list[UserFigures]:
    """Return the users with the longest mean waits, among those with five jobs or more."""
    if len(trace.users) < 2:
        return []
    jobs = [0] * len(trace.users)
    waited, used = [0.0] * len(jobs), [0.0] * len(jobs)
    for job, wait in zip(ran, waits, strict=True):
        user = trace.user[job]
        jobs[user] += 1
        waited[user] += wait
        used[user] += trace.devices[job] * trace.runtime[job] / 3600
    many = [user for user, number in enumerate(jobs) if number >= _USER_JOBS]
    return [
        {
            "user": trace.users[user],
            "jobs": jobs[user],
            "device_hours": used[user],
            "mean_wait_s": waited[user] / jobs[user],
        }
        for user in sorted(many, key=lambda user: (-waited[user] / jobs[user], user))[:count]
    ]


def distance(trace: Trace, replayed: WayFigures) -> Distance:
    """Return how far a simulation is from the record: each recorded value beside the
    simulated one.
    """
    ran = [job for job, start in enumerate(trace.start) if not math.isnan(start)]
    waits = [max(0.0, trace.start[job] - trace.eligible[job]) for job in ran]
    span = max(trace.span, 1.0)
    used = 0.0
    for job in ran:
        begin, end = trace.start[job], trace.start[job] + trace.runtime[job]
        used += max(0.0, min(end, span) - max(begin, 0.0)) * trace.devices[job]
    recorded, slow = spread(waits), spread(bounded_slowdowns(trace, ran, waits))
    return {
        "wait_p50_s": [recorded["p50"], replayed["wait"]["p50"]],
        "wait_p95_s": [recorded["p95"], replayed["wait"]["p95"]],
        "bounded_slowdown_mean": [slow["mean"], replayed["bounded_slowdown"]["mean"]],
        "used": [used / span / replayed["devices"], replayed["used"]],
    }
