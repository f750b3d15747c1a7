"""A history that is written by the minute from whole snapshots, as a page has them."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from podwright.history import KEEP_ROWS, Writer, encode_part, kept_items, measured, sums_of
from podwright.page import changes
from podwright.store import MemoryHistory, Row


def kept(snapshot: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is kept of a snapshot, as the server's recorder has it."""
    rows: dict[str, list[Any]] = {}
    for key, row in snapshot["devices"].items():
        rows.setdefault(key.rpartition("/")[0], []).append(row)
    runs = {
        domain: {
            "layout": [(m, len(list(g))) for m, g in itertools.groupby(r[0] for r in found)],
            "devices": [
                (p, len(list(g))) for p, g in itertools.groupby((r[2], r[3]) for r in found)
            ],
        }
        for domain, found in rows.items()
    }
    return {
        "clusters": kept_items("clusters", snapshot["clusters"]),
        "waiters": kept_items("waiters", snapshot["waiters"]),
        **{topic: {d: r[topic] for d, r in runs.items()} for topic in ("layout", "devices")},
        "partitions": {
            name: [p[f] for f in ("owner", "job", "allocation", "created", "until", "state")]
            for name, p in snapshot["partitions"].items()
        },
    }


def sums(snapshot: dict[str, dict[str, Any]]) -> list[Any]:
    states = Counter(row[2] for row in snapshot["devices"].values())
    failed = sum(p["state"] == "ERROR" for p in snapshot["partitions"].values())
    sizes = [size for one in snapshot["fragments"].values() for size in one["sizes"]]
    line = sums_of(states, len(snapshot["waiters"]), failed, sizes)
    readings = measured(snapshot.get("readings", {}).values())
    return line if readings is None else [*line, readings]


class Recording:
    """A history that is written by the minute, each whole or by its changes, as the writer wants.

    wholes: the minutes of which the whole was written.
    """

    def __init__(self) -> None:
        self.history, self.writer = MemoryHistory(), Writer()
        self.known: dict[str, dict[str, Any]] = {}
        self.wholes: list[int] = []

    def row(self, minute: int, snapshot: dict[str, dict[str, Any]]) -> Row:
        before, self.known = self.known, kept(snapshot)
        changed = changes(before, self.known)
        if self.writer.wants_whole(minute) and (changed or not self.wholes or not before):
            self.wholes.append(minute)
            parts = [encode_part(minute, {topic: items}) for topic, items in self.known.items()]
            return self.writer.whole(minute, parts, sums(snapshot))
        return self.writer.add(minute, changed, sums(snapshot))

    def forget(self) -> None:
        self.writer.forget()
        self.known = {}

    async def write(self, minute: int, snapshot: dict[str, dict[str, Any]]) -> None:
        row = self.row(minute, snapshot)
        await self.history.write(row, since=minute - KEEP_ROWS, most=50_000_000, epoch=1)
