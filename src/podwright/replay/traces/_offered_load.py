"""Stretches the times of submission, so that the jobs ask for a given share of the devices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from podwright.errors import InvalidRequest
from podwright.replay.traces._trace import Trace


def offered_load(traces: Sequence[Trace], first_times: Sequence[float], devices: int) -> float:
    """Return the device-seconds that all jobs ask for, as a share of those that the devices have
    from the first submission to the last.

    first_times: of the first submission of each trace, in seconds of one clock. Jobs that ask for
    more than all devices do not count.
    """
    requested_device_seconds = sum(
        job_devices * runtime_seconds
        for trace in traces
        for job_devices, runtime_seconds in zip(trace.devices, trace.runtime, strict=True)
        if job_devices <= devices
    )
    last_submission = max(
        first_time + trace.span for first_time, trace in zip(first_times, traces, strict=True)
    )
    return requested_device_seconds / (devices * max(1.0, last_submission - min(first_times)))


def stretched(trace: Trace, factor: float) -> Trace:
    """Return the same jobs with the times between submissions multiplied.

    When they began is left out, since it says nothing about jobs that are submitted at other times.
    A job waits as long as before until it is eligible.
    """
    stretched_jobs = (
        job._replace(
            submit=job.submit * factor,
            eligible=job.submit * factor + job.eligible - job.submit,
            start=math.nan,
        )
        for job in trace.jobs()
    )
    stretched_trace = Trace(trace.source, stretched_jobs, trace.skipped)
    stretched_trace.notes = [
        *trace.notes,
        f"Times between submissions are multiplied by {factor:.4g}.",
    ]
    return stretched_trace


def stretch_for(
    traces: Sequence[Trace], first_times: Sequence[float], devices: int, target_load: float
) -> float:
    """Return the factor by which times are to be multiplied for this load. Raises InvalidRequest
    where no factor can give it.
    """
    current_load = offered_load(traces, first_times, devices)
    submission = max(
        first_time + trace.span for first_time, trace in zip(first_times, traces, strict=True)
    )
    if not current_load or submission <= min(first_times):
        raise InvalidRequest(
            "the jobs are submitted at one moment, or none fits on the devices",
            operation=f"replay them at a load of {target_load:g}",
            would_work="leave --load out",
        )
    return current_load / target_load
