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

import msgspec

from podwright.errors import Unavailable
from podwright.gpu.nodebench._bench import Bench

#: A change by more than this share is reported.
REPORTED_CHANGE = 0.2
_MAX_READ_LINES = 1000  # that are read: years of weekly runs


class Change(NamedTuple):
    """The present rate of a node, and the median of its earlier rates, in Gb/s."""

    node: str
    what: str
    now: float
    before: float


class _HistoryLine(msgspec.Struct):
    """A line of the file: the rates of each node by kind, in Gb/s."""

    nodes: dict[str, dict[str, float]]


def rates(bench: Bench) -> dict[str, dict[str, float]]:
    """The rates of each node by kind. Between nodes, this is the best rate with any partner."""
    rates_by_node = {node: dict(bench.within.get(node, {})) for node in bench.nodes}
    for round_rates in bench.rounds:
        for pair, rate in round_rates.items():
            for node in pair:
                measurement = f"between nodes ({bench.way})"
                rates_by_node[node][measurement] = max(
                    rate, rates_by_node[node].get(measurement, 0.0)
                )
    return rates_by_node


def changes(history_path: Path, current_rates: Mapping[str, Mapping[str, float]]) -> list[Change]:
    """The differences from the rates in a file. Lines that cannot be read are skipped."""
    earlier_rates: dict[tuple[str, str], list[float]] = {}
    try:
        history_lines = history_path.read_text().splitlines()[-_MAX_READ_LINES:]
    except OSError:
        return []
    for history_line in history_lines:
        try:
            earlier_nodes = msgspec.json.decode(history_line, type=_HistoryLine).nodes
        except (msgspec.DecodeError, UnicodeError):
            continue
        for node, node_rates in earlier_nodes.items():
            for measurement, rate in node_rates.items():
                earlier_rates.setdefault((node, measurement), []).append(rate)
    return [
        Change(node, measurement, rate, median_rate)
        for node, node_rates in current_rates.items()
        for measurement, rate in node_rates.items()
        if (node, measurement) in earlier_rates
        and (median_rate := statistics.median(earlier_rates[node, measurement]))
        and abs(rate - median_rate) > REPORTED_CHANGE * median_rate
    ]


def keep(
    history_path: Path, current_rates: Mapping[str, Mapping[str, float]], measured_at: float
) -> None:
    """Append a line. measured_at: seconds since 1970. Raises OSError."""
    history_path.parent.mkdir(parents=True, exist_ok=True)
    with history_path.open("a") as file:
        file.write(json.dumps({"t": round(measured_at), "nodes": current_rates}) + "\n")


def record(file_name: str, bench: Bench, environ: Mapping[str, str]) -> list[Change]:
    """Compare a measurement with those in a file, and append it there.

    file_name: the file; empty: one of this account, which is left alone where it cannot be written.
    Raises Unavailable for a named file.
    """
    state_folder = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    history_path = Path(file_name or os.path.join(state_folder, "podwright", "bench.jsonl"))
    current_rates = rates(bench)
    rate_changes = changes(history_path, current_rates)
    try:
        keep(history_path, current_rates, time.time())
    except OSError as error:
        if file_name:
            raise Unavailable(
                f"{history_path}: {error.strerror}",
                operation="keep the table",
                would_work="--keep FILE",
            ) from None
    return rate_changes
