"""The table over nodes that is kept, so that a change is seen: one line of JSON a measurement."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podwright.slurm.gpus.nodebench._bench import Bench

#: A change by more than this share is told.
CHANGE = 0.2
_LINES = 1000  # that are read: years of weekly runs


class Change(NamedTuple):
    """A node's rate now, and the median of what it did before, Gb/s."""

    node: str
    what: str
    now: float
    before: float


def rates(found: Bench) -> dict[str, dict[str, float]]:
    """The rates of each node by kind; between nodes, the best that it did with any."""
    out = {node: dict(found.within.get(node, {})) for node in found.nodes}
    for one in found.rounds:
        for pair, rate in one.items():
            for node in pair:
                kind = f"between nodes ({found.way})"
                out[node][kind] = max(rate, out[node].get(kind, 0.0))
    return out


def changes(path: Path, now: Mapping[str, Mapping[str, float]]) -> list[Change]:
    """What is different from what a file keeps. Unreadable lines count as none."""
    before: dict[tuple[str, str], list[float]] = {}
    try:
        lines = path.read_text().splitlines()[-_LINES:]
    except OSError:
        return []
    for line in lines:
        try:
            kept = json.loads(line)["nodes"]
        except (ValueError, KeyError, TypeError):
            continue
        for node, kinds in kept.items():
            for kind, rate in kinds.items():
                before.setdefault((node, kind), []).append(rate)
    return [
        Change(node, kind, rate, middle)
        for node, kinds in now.items()
        for kind, rate in kinds.items()
        if (node, kind) in before
        and (middle := statistics.median(before[node, kind]))
        and abs(rate - middle) > CHANGE * middle
    ]


def keep(path: Path, now: Mapping[str, Mapping[str, float]], when: float) -> None:
    """Add a line. when: seconds since 1970. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"t": round(when), "nodes": now}) + "\n")
