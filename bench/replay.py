"""Replay: jobs a second, and the memory of a million jobs.

Each simulation is that of `podwright replay --example` under native mode, on one core, in a
process of its own, so that its memory is its own. Time is that of the process, since others use
the machine too; the making of the trace is left out.
The million is a year and more on 256 devices, or what `PODWRIGHT_BENCH_JOBS` says.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from multiprocessing.connection import Connection

from bench import Figures, figure

#: Devices -> days of the example, jobs a second at least.
SPEED = {256: (30.0, 2000), 16_384: (1.0, 500)}
MILLION = int(os.environ.get("PODWRIGHT_BENCH_JOBS", "1000000"))
MEMORY_MB = 1024
ROUNDS = 3


def run() -> Figures:
    """Speed by size, ways beside native, and memory."""
    for devices, (days, least) in SPEED.items():
        jobs, rates, _ = _rounds(devices, days, "native", ROUNDS)
        yield figure(
            "replay",
            sorted(rates)[len(rates) // 2],
            "jobs/s",
            limit=least,
            devices=devices,
            jobs=jobs,
            rounds=[round(rate) for rate in rates],
            load1=round(os.getloadavg()[0], 1),
        )
    for way in ("static:32x4+8x16", "host-mapping:16x16"):
        jobs, rates, _ = _rounds(256, 10.0, way, 1)
        yield figure("replay", rates[0], "jobs/s", devices=256, jobs=jobs, way=way)
    days = 30.0 * MILLION / 12_700  # so many jobs a month
    jobs, rates, memory = _rounds(256, days, "native", 1)
    yield figure(
        "replay-memory", memory, "MB", limit=MEMORY_MB, jobs=jobs, jobs_per_s=round(rates[0])
    )


def _rounds(devices: int, days: float, way: str, count: int) -> tuple[int, list[float], float]:
    """Jobs, jobs a second of each round, and the largest memory of any in MB."""
    context = multiprocessing.get_context("spawn")
    rates, memory, jobs = [], 0.0, 0
    for seed in range(1, count + 1):
        mine, theirs = context.Pipe()
        process = context.Process(target=_one, args=(devices, days, way, seed, theirs))
        process.start()
        jobs, seconds, used = mine.recv()
        process.join()
        rates.append(jobs / seconds)
        memory = max(memory, used)
    return jobs, rates, memory


def _one(devices: int, days: float, way: str, seed: int, pipe: Connection) -> None:
    from podwright.replay import Chances, ReplayTask, SlurmModel, example, pod_ways, run_all

    trace = example(seed, devices=devices, days=days)
    (made,) = pod_ways([way], devices)
    began = time.process_time()
    run_all(trace, [ReplayTask(made, SlurmModel(), Chances(seed=seed))], processes=1)
    seconds = time.process_time() - began
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send((len(trace), seconds, used))
