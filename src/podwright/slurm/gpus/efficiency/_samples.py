"""Samples of a job's GPUs: one line of JSON each, written while the job runs, read afterwards.

A line is what one node's GPUs did at one moment: `{"t": 1700000000.0, "every": 10, "gpus":
[[index, load, MiB, [[step, rank], …]], …]}`. A sampler may be killed at any instant, so a line
stands for itself, and a last one that is cut off is left out. The first line of a file says what
does not change: `{"node": …, "gpus": [[index, uuid, name, MiB], …], "ranks": [first, count]}`.
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
    """What a job made of one GPU. samples: how many. load, peak: per cent, mean and highest.
    memory, most: mean and highest, in bytes as all memory. total: that it has. busy: the share of
    samples in which it did something, 0 to 1. held: whether a process of the job ever held it.
    series: (time, load, memory) of each sample."""

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
    held: bool
    series: tuple[tuple[float, int, int], ...] = ()

    @property
    def used(self) -> bool:
        """Whether it ever did or held anything."""
        return self.peak >= IDLE or self.held


class Sampled(NamedTuple):
    """All of a job's samples. first, last: seconds since 1970. busy_from: when the first GPU did
    something; None: none ever did. idle_ranks: (step, rank) of steps in which others held GPUs, and
    these never did. every: seconds between samples."""

    uses: tuple[GpuUse, ...]
    first: float
    last: float
    busy_from: float | None
    idle_ranks: tuple[tuple[str, int], ...]
    every: float


def read_samples(folder: Path) -> Sampled | None:
    """The samples of a job in a folder; None where there are none."""
    heads: dict[tuple[str, int], tuple[str, str, int]] = {}
    series: dict[tuple[str, int], dict[float, tuple[int, int]]] = defaultdict(dict)
    holders: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    ranks: set[tuple[str, int]] = set()
    every = 0.0
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
            every = every or float(line["every"])
            for index, load, memory, held in line["gpus"]:
                series[node, index][float(line["t"])] = (load, memory << 20)
                holders[node, index] |= {(str(step), int(rank)) for step, rank in held}
    if not series:
        return None
    uses = tuple(
        _use(key, heads.get(key, ("", "", 0)), series[key], bool(holders[key]))
        for key in sorted(series)
    )
    times = [t for one in series.values() for t in one]
    busy = [t for one in series.values() for t, (load, _) in one.items() if load >= IDLE]
    return Sampled(
        uses, min(times), max(times), min(busy, default=None), _idle(ranks, holders), every
    )


def _lines(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue  # cut off where the sampler was killed
        if isinstance(found, dict) and "gpus" in found:
            yield found


def _use(
    key: tuple[str, int],
    head: tuple[str, str, int],
    series: Mapping[float, tuple[int, int]],
    held: bool,
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
        held=held,
        series=tuple((t, load, used) for t, (load, used) in points),
    )


def _idle(
    ranks: set[tuple[str, int]], holders: Mapping[tuple[str, int], set[tuple[str, int]]]
) -> tuple[tuple[str, int], ...]:
    """Ranks without a GPU, in steps in which some rank had one."""
    holding = {one for some in holders.values() for one in some}
    steps = {step for step, _ in holding}
    return tuple(sorted(rank for rank in ranks - holding if rank[0] in steps))
