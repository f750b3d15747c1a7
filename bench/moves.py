"""What shape costs, and what moves give back: in the simulator, with sizes that are powers of two.

The jobs are those of traces named in PODWRIGHT_TRACES (paths with a colon between; without it the
example's, since samples of sites are not the project's), stretched until they ask for a share of
the pod (`load`). Jobs larger than the pod ask for all of it. A job passes those before it that do
not fit, as Slurm has it for licences; no room is made for large ones, since that costs with shape
and without. Time limits are those of the trace.

`value` is the work done until the last submission, as a share of what the same jobs do where any
devices are as good as any others. Movable jobs are drawn by seed: mean, and spread over seeds.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterator

from bench import Figures, figure
from podwright.replay import (
    Chances,
    Outcome,
    ReplayTask,
    ReplayWay,
    SlurmModel,
    Trace,
    example,
    figures,
    pod_ways,
    read_trace,
    run_all,
)

PODS = (64, 256, 1024)
LOADS = (0.9, 1.3)
SHARES = (0, 25, 50, 100)
SEEDS = int(os.environ.get("PODWRIGHT_BENCH_SEEDS", "3"))
SLURM = SlurmModel(room_s=0.0)
#: On Helios at 256 devices and load 1.3, by share of movable jobs in percent.
AT_LEAST = {("helios", 256, 1.3, 100): 98.0, ("helios", 256, 1.3, 50): 95.0}
#: There, best fit beside host mapping: what is used by the one as a multiple of the other.
BESIDE_HOSTS = {("helios", 256, 1.3): 1.5}


def run() -> Figures:
    """Each trace, pod and load: lowest address, best fit, best fit with moves, host mapping."""
    for name, trace in _traces():
        for size in PODS:
            for load in LOADS:
                yield from _case(name, _scaled(trace, size, load), size, load)


def _case(name: str, trace: Trace, size: int, load: float) -> Figures:
    params = {"trace": name, "devices": size, "load": load, "jobs": len(trace)}
    ways = pod_ways(["native"], size, ["no-shape", "lowest", "best-fit"])
    ways += pod_ways([f"host-mapping:{size // 16}x16"], size)
    moved = pod_ways(["native"], size, ["moves"])[0]
    tasks = [ReplayTask(way, SLURM, Chances()) for way in ways]
    for share in SHARES:
        for seed in range(1, 1 + (SEEDS if 0 < share < 100 else 1)):
            tasks.append(ReplayTask(moved, SLURM, Chances(seed=seed, movable=share / 100)))
    found = run_all(trace, tasks)
    base = figures(trace, found[0])["used"]
    where = name.partition("-")[0], size, load
    for task, out in zip(tasks[: len(ways)], found, strict=False):
        yield _figure(_label(task.way), trace, [out], base, None, params)
    best, hosts = (figures(trace, found[at])["used"] for at in (2, 3))
    yield figure(
        "moves.best-fit-beside-hosts",
        best / hosts,
        "times",
        limit=BESIDE_HOSTS.get(where),
        **params,
    )
    for share in SHARES:
        mine = [
            out
            for task, out in zip(tasks, found, strict=True)
            if task.way == moved and task.chances.movable == share / 100
        ]
        limit = AT_LEAST.get((*where, share))
        yield _figure("moves", trace, mine, base, limit, {**params, "movable_percent": share})


def _label(way: ReplayWay) -> str:
    return way.policy if way.kind == "native" else way.kind


def _figure(
    label: str,
    trace: Trace,
    outcomes: list[Outcome],
    base: float,
    limit: float | None,
    params: dict[str, object],
) -> dict[str, object]:
    rows = [figures(trace, out) for out in outcomes]
    shares = [100 * row["used"] / base for row in rows]
    return figure(
        f"moves.{label}",
        statistics.mean(shares),
        "% of no shape",
        limit=limit,
        **params,
        spread=round(max(shares) - min(shares), 2),
        used_percent=round(100 * statistics.mean(row["used"] for row in rows), 2),
        mean_wait_h=round(statistics.mean(row["wait"]["mean"] for row in rows) / 3600, 2),
        p95_wait_h=round(statistics.mean(row["wait"]["p95"] for row in rows) / 3600, 1),
        moves=round(statistics.mean(row.get("moves", 0) for row in rows)),
        seeds=len(rows),
    )


def _traces() -> Iterator[tuple[str, Trace]]:
    paths = [path for path in os.environ.get("PODWRIGHT_TRACES", "").split(":") if path]
    for path in paths:
        yield os.path.basename(path).partition(".")[0], read_trace(path)
    if not paths:
        yield "example", example(1, devices=256, days=10.0)


def _scaled(trace: Trace, size: int, load: float) -> Trace:
    """Sizes that are powers of two, and times of submission so that `load` is asked for."""
    sizes = [1 << (min(devices, size) - 1).bit_length() for devices in trace.devices]
    area = sum(n * seconds for n, seconds in zip(sizes, trace.runtime, strict=True))
    pace = area / (size * load) / max(1.0, trace.span)
    jobs = (
        job._replace(devices=n, submit=job.submit * pace, eligible=math.nan, start=math.nan)
        for job, n in zip(trace.jobs(), sizes, strict=True)
    )
    return Trace(trace.source, jobs)
