"""The recorded site: the trace's own starts, on the ground that a way would have."""

from __future__ import annotations

import math

from podwright.replay._outcome import Series
from podwright.replay._report_values import RecordedFigures
from podwright.replay.grounds._ground import Ground, StartAnswer, Unfit
from podwright.replay.traces._trace import Trace


def recorded(trace: Trace, ground: Ground) -> RecordedFigures:
    """Return the figures of the recorded starts, where each job gets devices when it began.

    peak: the most devices in use at once. overlapping: jobs that ran beside another. placed: jobs
    that found their devices when they began. without_shape: jobs for which enough devices were
    free, but no block. without_room: jobs for which fewer were free. free_of_no_use: the area that
    was free while a job had no block of its shape.
    """
    events: list[tuple[float, int, int]] = []
    for job, start in enumerate(trace.start):
        if not math.isnan(start):
            events.append((start, 1, job))
            events.append((start + trace.runtime[job], 0, job))
    events.sort()
    series = Series.over(trace.span)
    used = peak = running = overlapping = placed = shapeless = roomless = refused = 0
    alone: set[int] = set()
    busy: set[int] = set()
    lacking: set[int] = set()
    last = 0.0
    for now, starts, job in events:
        stuck = ground.size - ground.occupied if lacking else 0
        series.add(max(last, 0.0), now, used, ground.occupied, stuck)
        last = now
        size = trace.devices[job]
        if not starts:
            used -= size
            running -= 1
            lacking.discard(job)
            if job in busy:
                busy.remove(job)
                ground.give(job)
            alone.discard(job)
            continue
        if running:
            overlapping += 1 + len(alone)
            alone.clear()
        else:
            alone = {job}
        running += 1
        used += size
        peak = max(peak, used)
        try:
            demand = ground.demand(size, trace.nodes[job], trace.cpus[job], trace.memory[job])
        except Unfit:
            refused += 1
            continue
        free = ground.size - ground.occupied
        if ground.take(job, demand, math.inf) is StartAnswer.TAKEN:
            busy.add(job)
            placed += 1
        elif free >= ground.devices_for(demand):
            lacking.add(job)
            shapeless += 1
        else:
            roomless += 1
    area = ground.size * max(last, 1.0)
    return {
        "jobs": placed + shapeless + roomless + refused,
        "peak": peak,
        "overlapping": overlapping,
        "placed": placed,
        "without_shape": shapeless,
        "without_room": roomless,
        "refused": refused,
        "used": sum(series.useful) / area,
        "free_of_no_use": sum(series.stuck) / area,
    }
