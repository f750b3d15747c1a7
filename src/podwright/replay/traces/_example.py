"""A synthetic month, for users who have no trace at hand. The same seed gives the same jobs.

It has the shapes that sites report. Most jobs are small and short. Most device-hours are in the few
jobs that are large and long. Days are busier than nights. Time limits are round and generous. Not
all sizes are powers of two. The numbers are ours, and no site's.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from podwright.replay.traces._trace import Status, Trace, TraceJob

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
SHARES = (34, 12, 1, 17, 1, 15, 1, 10, 1, 6, 2)
_TIME_LIMITS_MINUTES = (10, 30, 60, 120, 240, 480, 720, 1440, 2880, 4320)
_DAY_SECONDS = 86400.0


def example(
    seed: int = 1, *, devices: int = 64, days: float = 30.0, load: float = 0.9, users: int = 24
) -> Trace:
    """Return jobs that ask for `load` times the capacity of `devices` in `days`.

    No job is larger than half of the devices.
    """
    source = f"example (seed {seed}, {devices} devices, {days:g} days, load {load:g})"
    trace = Trace(
        source, _draw_jobs(random.Random(seed), devices, days * _DAY_SECONDS, load, users)
    )
    trace.notes.append("It is synthetic: it shows what a report says, and nothing of your site.")
    return trace


def _draw_jobs(
    rng: random.Random, devices: int, trace_seconds: float, load: float, users: int
) -> Iterator[TraceJob]:
    job_sizes = [size for size in SIZES if 2 * size <= devices or size == 1]
    size_weights = SHARES[: len(job_sizes)]
    wanted_device_seconds, device_seconds = load * devices * trace_seconds, 0.0
    drawn_jobs = []
    while device_seconds < wanted_device_seconds:
        job_size = rng.choices(job_sizes, size_weights)[0]
        runtime_seconds = min(max(20.0, rng.lognormvariate(math.log(1500), 1.7)), 3 * _DAY_SECONDS)
        drawn_jobs.append((job_size, round(runtime_seconds)))
        device_seconds += job_size * round(runtime_seconds)
    submit_times = sorted(_draw_submission_time(rng, trace_seconds) for _ in drawn_jobs)
    user_weights = [1 / (1 + index) for index in range(users)]
    for job_number, (index, (job_size, runtime_seconds)) in enumerate(
        zip(submit_times, drawn_jobs, strict=True)
    ):
        status_number = rng.choices((0, 1, 2, 3), (80, 10, 7, 3))[0]
        generous_seconds = runtime_seconds * (
            1.0 if status_number == Status.TIMEOUT else rng.uniform(1.2, 6.0)
        )
        limit_minutes = next(
            (choice for choice in _TIME_LIMITS_MINUTES if choice * 60 >= generous_seconds),
            4320,
        )
        if status_number == Status.TIMEOUT:
            runtime_seconds = limit_minutes * 60
        user_name = f"u{rng.choices(range(users), user_weights)[0]}"
        yield TraceJob(
            str(job_number),
            index,
            runtime_seconds,
            job_size,
            limit_minutes * 60.0,
            Status(status_number),
            user_name,
        )


def _draw_submission_time(rng: random.Random, trace_seconds: float) -> float:
    """Return a time of submission: three of four in the busy half of a day, fewer at weekends."""
    while True:
        submit_second = rng.random() * trace_seconds
        weekday, hour = int(submit_second / _DAY_SECONDS) % 7, submit_second % _DAY_SECONDS / 3600
        probability = 1.0 if 8 <= hour < 20 else 0.33
        if rng.random() < probability * (0.5 if weekday >= 5 else 1.0):
            return float(round(submit_second))
