"""Samples of a job's GPUs: one line of JSON each, written while the job runs, read afterwards.

A line has the state of one node's GPUs at one moment: `{"t": 1700000000.0, "every": 10, "gpus":
[[index, load, MiB, [[step, rank], …]], …]}`. A sampler may be killed at any instant. So each line
can be read alone, and an incomplete last line is skipped. The first line of a file has the values
that do not change: `{"node": …, "gpus": [[index, uuid, name, MiB], …], "ranks": [first, count]}`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

#: A GPU below this load, in per cent, is idle in that sample.
IDLE = 1


class GpuUse(NamedTuple):
    """How a job used one GPU.

    total: bytes of its memory. samples: their number. load, peak: per cent, mean and highest.
    memory, most: bytes, mean and highest. busy: the share of samples with any load, 0 to 1.
    had_process: whether a process of the job ever held the GPU. series: (time, load, memory) of
    each sample.
    """

    node: str
    number: int
    uuid: str
    name: str
    total: int
    samples: int
    load: float
    peak: int
    memory: float
    most: int
    busy: float
    had_process: bool
    series: tuple[tuple[float, int, int], ...] = ()

    @property
    def used(self) -> bool:
        """Whether the GPU ever had load or was ever held by a process of the job."""
        return self.peak >= IDLE or self.had_process


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
    heads: dict[tuple[str, int], tuple[str, str, int]] = {}
    series: dict[tuple[str, int], dict[float, tuple[int, int]]] = defaultdict(dict)
    holders: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    ranks: set[tuple[str, int]] = set()
    interval = 0.0
    for path in sorted(folder.glob("*.jsonl")):
        node = ""
        for line in _lines(path):
            if "node" in line:
                node = str(line["node"])
                step, first, count = line.get("ranks", ("", 0, 0))
                ranks |= {(str(step), int(first) + k) for k in range(int(count))}
                for index, uuid, name, total in line["gpus"]:
                    heads[node, index] = (uuid, name, total << 20)
                continue
            interval = interval or float(line["every"])
            for index, load, memory, gpu_holders in line["gpus"]:
                series[node, index][float(line["t"])] = (load, memory << 20)
                holders[node, index] |= {(str(step), int(rank)) for step, rank in gpu_holders}
    if not series:
        return None
    uses = tuple(
        _use(key, heads.get(key, ("", "", 0)), series[key], bool(holders[key]))
        for key in sorted(series)
    )
    times = [t for samples in series.values() for t in samples]
    busy = [t for samples in series.values() for t, (load, _) in samples.items() if load >= IDLE]
    return Sampled(
        uses, min(times), max(times), min(busy, default=None), _idle(ranks, holders), interval
    )


def _lines(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # incomplete, because the sampler was killed
        if isinstance(row, dict) and "gpus" in row:
            yield row


def _use(
    key: tuple[str, int],
    head: tuple[str, str, int],
    series: Mapping[float, tuple[int, int]],
    held_by_process: bool,
) -> GpuUse:
    points = sorted(series.items())
    loads = [load for _, (load, _) in points]
    memory = [used for _, (_, used) in points]
    count = len(points)
    return GpuUse(
        node=key[0],
        number=key[1],
        uuid=head[0],
        name=head[1],
        total=head[2],
        samples=count,
        load=sum(loads) / count,
        peak=max(loads),
        memory=sum(memory) / count,
        most=max(memory),
        busy=sum(load >= IDLE for load in loads) / count,
        had_process=held_by_process,
        series=tuple((t, load, used) for t, (load, used) in points),
    )


def _idle(
    ranks: set[tuple[str, int]], holders: Mapping[tuple[str, int], set[tuple[str, int]]]
) -> tuple[tuple[str, int], ...]:
    """Return the ranks without a GPU, in steps in which some rank had one."""
    holding = {holder for gpu_holders in holders.values() for holder in gpu_holders}
    steps = {step for step, _ in holding}
    return tuple(sorted(rank for rank in ranks - holding if rank[0] in steps))
