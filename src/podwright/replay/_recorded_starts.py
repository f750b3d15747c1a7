"""The recorded site: the trace's own starts, on the ground that a way would have."""

from __future__ import annotations

import math

from podwright.replay._outcome import Series
from podwright.replay._report_types import RecordedFigures
from podwright.replay.grounds._ground import Ground, StartAnswer, UnfitJob
from podwright.replay.traces._trace import Trace


def recorded(trace: Trace, ground: Ground) -> RecordedFigures:
    """Return the figures of the recorded starts, where each job gets devices when it began.

    peak_devices: the most devices in use at once. overlapping_jobs: jobs that ran beside another.
    placed_jobs: jobs that found their devices when they began. without_shape: jobs for which enough
    devices were free, but no block. without_room: jobs for which fewer were free. free_of_no_use:
    the area that was free while a job had no block of its shape.
    """
    start_end_events: list[tuple[float, int, int]] = []
    for job, start_time in enumerate(trace.start):
        if not math.isnan(start_time):
            start_end_events.append((start_time, 1, job))
            start_end_events.append((start_time + trace.runtime[job], 0, job))
    start_end_events.sort()
    series = Series.over(trace.span)
    devices_in_use = peak_devices = running_jobs = overlapping_jobs = placed_jobs = (
        shapeless_jobs
    ) = roomless_jobs = refused_jobs = 0
    lone_jobs: set[int] = set()
    holding_jobs: set[int] = set()
    lacking_jobs: set[int] = set()
    last_time = 0.0
    for event_time, is_start, job in start_end_events:
        stuck_devices = ground.size - ground.occupied if lacking_jobs else 0
        series.add(max(last_time, 0.0), event_time, devices_in_use, ground.occupied, stuck_devices)
        last_time = event_time
        job_devices = trace.devices[job]
        if not is_start:
            devices_in_use -= job_devices
            running_jobs -= 1
            lacking_jobs.discard(job)
            if job in holding_jobs:
                holding_jobs.remove(job)
                ground.give(job)
            lone_jobs.discard(job)
            continue
        if running_jobs:
            overlapping_jobs += 1 + len(lone_jobs)
            lone_jobs.clear()
        else:
            lone_jobs = {job}
        running_jobs += 1
        devices_in_use += job_devices
        peak_devices = max(peak_devices, devices_in_use)
        try:
            demand = ground.demand(
                job_devices, trace.nodes[job], trace.cpus[job], trace.memory[job]
            )
        except UnfitJob:
            refused_jobs += 1
            continue
        free_devices = ground.size - ground.occupied
        if ground.take(job, demand, math.inf) is StartAnswer.TAKEN:
            holding_jobs.add(job)
            placed_jobs += 1
        elif free_devices >= ground.devices_for(demand):
            lacking_jobs.add(job)
            shapeless_jobs += 1
        else:
            roomless_jobs += 1
    device_seconds = ground.size * max(last_time, 1.0)
    return {
        "jobs": placed_jobs + shapeless_jobs + roomless_jobs + refused_jobs,
        "peak": peak_devices,
        "overlapping": overlapping_jobs,
        "placed": placed_jobs,
        "without_shape": shapeless_jobs,
        "without_room": roomless_jobs,
        "refused": refused_jobs,
        "used": sum(series.useful) / device_seconds,
        "free_of_no_use": sum(series.stuck) / device_seconds,
    }
