"""Samples of a job's GPUs: one line of JSON each, written while the job runs, read afterwards.

A line has the state of one node's GPUs at one moment: `{"t": 1700000000.0, "every": 10, "gpus":
[[index, load, MiB, [[step, rank], …]], …]}`. load and MiB are null where the driver does not report
them, as the load of a slice (MIG). A sampler may be killed at any instant. So each line
can be read alone, and an incomplete last line is skipped. The first line of a file has the values
that do not change: `{"node": …, "gpus": [[index, uuid, name, MiB], …], "ranks": [first, count]}`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

#: A GPU below this load, in per cent, is idle in that sample.
MIN_BUSY_PERCENT = 1
#: Load in per cent, and bytes in use, each None where the driver reports none.
Reading = tuple[int | None, int | None]


class GpuUse(NamedTuple):
    """How a job used one GPU.

    total: bytes of its memory. samples: their number. load, peak: per cent, mean and highest.
    memory, most: bytes, mean and highest. busy: the share of samples with any load, 0 to 1.
    had_process: whether a process of the job ever held the GPU. series: (time, load) of each sample
    with a load. load, peak, busy, memory, most: None where the driver reports none.
    """

    node: str
    number: int
    uuid: str
    name: str
    total: int
    samples: int
    load: float | None
    peak: int | None
    memory: float | None
    most: int | None
    busy: float | None
    had_process: bool
    series: tuple[tuple[float, int], ...] = ()

    @property
    def used(self) -> bool | None:
        """Whether the GPU ever had load or was held by a process of the job; None: not known."""
        if self.had_process:
            return True
        return None if self.peak is None else self.peak >= MIN_BUSY_PERCENT


class Sampled(NamedTuple):
    """All of a job's samples.

    first, last: seconds since 1970. busy_from: when the first GPU had any load; None: none ever
    had. idle_ranks: (step, rank) of ranks that never held a GPU, in steps in which others did.
    every: seconds between samples.
    """

    uses: tuple[GpuUse, ...]
    first: float
    last: float
    busy_from: float | None
    idle_ranks: tuple[tuple[str, int], ...]
    every: float


def read_samples(folder: Path) -> Sampled | None:
    """Read the samples of a job from a folder; None where there are none."""
    gpu_facts: dict[tuple[str, int], tuple[str, str, int]] = {}
    samples_by_gpu: dict[tuple[str, int], dict[float, Reading]] = defaultdict(dict)
    holders_by_gpu: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    ranks: set[tuple[str, int]] = set()
    interval = 0.0
    for samples_path in sorted(folder.glob("*.jsonl")):
        node_name = ""
        for json_line in _sample_rows(samples_path):
            if "node" in json_line:
                node_name = str(json_line["node"])
                step, first_rank, rank_count = json_line.get("ranks", ("", 0, 0))
                ranks |= {
                    (str(step), int(first_rank) + offset) for offset in range(int(rank_count))
                }
                for index, uuid, gpu_name, total_mib in json_line["gpus"]:
                    gpu_facts[node_name, index] = (uuid, gpu_name, total_mib << 20)
                continue
            interval = interval or float(json_line["every"])
            for index, load, used_mib, holders in json_line["gpus"]:
                used_bytes = None if used_mib is None else used_mib << 20
                samples_by_gpu[node_name, index][float(json_line["t"])] = (load, used_bytes)
                holders_by_gpu[node_name, index] |= {
                    (str(step), int(rank)) for step, rank in holders
                }
    if not samples_by_gpu:
        return None
    gpu_uses = tuple(
        _gpu_use(
            key,
            gpu_facts.get(key, ("", "", 0)),
            samples_by_gpu[key],
            bool(holders_by_gpu[key]),
        )
        for key in sorted(samples_by_gpu)
    )
    sample_times = [
        sample_time for gpu_samples in samples_by_gpu.values() for sample_time in gpu_samples
    ]
    busy_times = [
        sample_time
        for gpu_samples in samples_by_gpu.values()
        for sample_time, (load, _) in gpu_samples.items()
        if load is not None and load >= MIN_BUSY_PERCENT
    ]
    return Sampled(
        gpu_uses,
        min(sample_times),
        max(sample_times),
        min(busy_times, default=None),
        _idle_ranks(ranks, holders_by_gpu),
        interval,
    )


def _sample_rows(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            json_line = json.loads(line)
        except ValueError:
            continue  # incomplete, because the sampler was killed
        if isinstance(json_line, dict) and "gpus" in json_line:
            yield json_line


def _gpu_use(
    gpu_key: tuple[str, int],
    gpu_facts: tuple[str, str, int],
    gpu_samples: Mapping[float, Reading],
    held_by_process: bool,
) -> GpuUse:
    points = sorted(gpu_samples.items())
    series = tuple((time, load) for time, (load, _) in points if load is not None)
    loads = [load for _, load in series]
    used_memory = [used for _, (_, used) in points if used is not None]
    return GpuUse(
        node=gpu_key[0],
        number=gpu_key[1],
        uuid=gpu_facts[0],
        name=gpu_facts[1],
        total=gpu_facts[2],
        samples=len(points),
        load=fmean(loads) if loads else None,
        peak=max(loads, default=None),
        memory=fmean(used_memory) if used_memory else None,
        most=max(used_memory, default=None),
        busy=fmean(load >= MIN_BUSY_PERCENT for load in loads) if loads else None,
        had_process=held_by_process,
        series=series,
    )


def _idle_ranks(
    ranks: set[tuple[str, int]], holders_by_gpu: Mapping[tuple[str, int], set[tuple[str, int]]]
) -> tuple[tuple[str, int], ...]:
    """Return the ranks without a GPU, in steps in which some rank had one."""
    holding_ranks = {holder for holders in holders_by_gpu.values() for holder in holders}
    active_steps = {step for step, _ in holding_ranks}
    return tuple(sorted(rank for rank in ranks - holding_ranks if rank[0] in active_steps))
