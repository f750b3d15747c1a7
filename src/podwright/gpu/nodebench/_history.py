"""Keeps the measured rates of nodes, so that a change is noticed: one line of JSON per
measurement."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podwright.errors import Unavailable
from podwright.gpu.nodebench._bench import Bench

#: A change by more than this share is reported.
CHANGE = 0.2
_LINES = 1000  # that are read: years of weekly runs


class Change(NamedTuple):
    """The present rate of a node, and the median of its earlier rates, in Gb/s."""

    node: str
    what: str
    now: float
    before: float


def rates(bench: Bench) -> dict[str, dict[str, float]]:
    """The rates of each node by kind. Between nodes, this is the best rate with any partner."""
    out = {node: dict(bench.within.get(node, {})) for node in bench.nodes}
    for round_rates in bench.rounds:
        for pair, rate in round_rates.items():
            for node in pair:
                kind = f"between nodes ({bench.way})"
                out[node][kind] = max(rate, out[node].get(kind, 0.0))
    return out


def changes(path: Path, now: Mapping[str, Mapping[str, float]]) -> list[Change]:
    """The differences from the rates in a file. Lines that cannot be read are skipped."""
    before: dict[tuple[str, str], list[float]] = {}
    try:
        lines = path.read_text().splitlines()[-_LINES:]
    except OSError:
        return []
    for line in lines:
        try:
            earlier = json.loads(line)["nodes"]
        except (ValueError, KeyError, TypeError):
            continue
        for node, kinds in earlier.items():
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
    """Append a line. when: seconds since 1970. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"t": round(when), "nodes": now}) + "\n")


def record(name: str, bench: Bench, environ: Mapping[str, str]) -> list[Change]:
    """Compare a measurement with those in a file, and append it there.

    name: the file; empty: one of this account, which is left alone where it cannot be written.
    Raises Unavailable for a named file.
    """
    state = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(name or os.path.join(state, "podwright", "bench.jsonl"))
    now = rates(bench)
    changed = changes(path, now)
    try:
        keep(path, now, time.time())
    except OSError as error:
        if name:
            raise Unavailable(
                f"{path}: {error.strerror}", operation="keep the table", would_work="--keep FILE"
            ) from None
    return changed
