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
_LIMITS_MIN = (10, 30, 60, 120, 240, 480, 720, 1440, 2880, 4320)
_DAY = 86400.0


def example(
    seed: int = 1, *, devices: int = 64, days: float = 30.0, load: float = 0.9, users: int = 24
) -> Trace:
    """Return jobs that ask for `load` times the capacity of `devices` in `days`.

    No job is larger than half of the devices.
    """
    source = f"example (seed {seed}, {devices} devices, {days:g} days, load {load:g})"
    trace = Trace(source, _jobs(random.Random(seed), devices, days * _DAY, load, users))
    trace.notes.append("It is synthetic: it shows what a report says, and nothing of your site.")
    return trace


def _jobs(
    rng: random.Random, devices: int, seconds: float, load: float, users: int
) -> Iterator[TraceJob]:
    sizes = [size for size in SIZES if 2 * size <= devices or size == 1]
    shares = SHARES[: len(sizes)]
    wanted, demand = load * devices * seconds, 0.0
    drawn = []
    while demand < wanted:
        size = rng.choices(sizes, shares)[0]
        runtime = min(max(20.0, rng.lognormvariate(math.log(1500), 1.7)), 3 * _DAY)
        drawn.append((size, round(runtime)))
        demand += size * round(runtime)
    times = sorted(_moment(rng, seconds) for _ in drawn)
    weights = [1 / (1 + index) for index in range(users)]
    for number, (index, (size, runtime)) in enumerate(zip(times, drawn, strict=True)):
        status = rng.choices((0, 1, 2, 3), (80, 10, 7, 3))[0]
        generous = runtime * (1.0 if status == Status.TIMEOUT else rng.uniform(1.2, 6.0))
        minutes = next((limit for limit in _LIMITS_MIN if limit * 60 >= generous), 4320)
        if status == Status.TIMEOUT:
            runtime = minutes * 60
        user = f"u{rng.choices(range(users), weights)[0]}"
        yield TraceJob(str(number), index, runtime, size, minutes * 60.0, Status(status), user)


def _moment(rng: random.Random, seconds: float) -> float:
    """Return a time of submission: three of four in the busy half of a day, fewer at weekends."""
    while True:
        second = rng.random() * seconds
        day, hour = int(second / _DAY) % 7, second % _DAY / 3600
        busy = 1.0 if 8 <= hour < 20 else 0.33
        if rng.random() < busy * (0.5 if day >= 5 else 1.0):
            return float(round(second))
