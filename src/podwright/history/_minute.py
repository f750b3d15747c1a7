"""What of a snapshot is kept for later, in few words, and a snapshot from that. Pure data.

Devices are told in runs: a domain of which one partition has half is two words. Topics, items and
changes are as a page's (`_snapshot`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from podwright.page import Changes, Snapshot

#: What a minute's sums are, in order; then, for 1, 2, 4, ... devices, how many such blocks fit.
SUMS: Final = ("used", "free", "waiting", "down", "failed")
ORDERS: Final = 20  #: sizes that are counted
TOPICS: Final = ("clusters", "devices", "partitions", "waiters", "jobs")  #: what it is made of
_ENDED: Final = "ERROR"


def minute(snapshot: Snapshot) -> tuple[dict[str, dict[str, Any]], list[int]]:
    """What is kept of a snapshot, and its sums."""
    devices: Mapping[str, Any] = snapshot.get("devices", {})
    partitions: Mapping[str, Any] = snapshot.get("partitions", {})
    waiters: Mapping[str, Any] = snapshot.get("waiters", {})
    clusters: Mapping[str, Any] = snapshot.get("clusters", {})
    jobs: Mapping[str, Any] = snapshot.get("jobs", {})
    fragments: Mapping[str, Any] = snapshot.get("fragments", {})
    domains: dict[str, list[Any]] = {}
    for key, row in devices.items():
        domains.setdefault(key.rpartition("/")[0], []).append(row)
    kept: dict[str, dict[str, Any]] = {
        "clusters": {
            name: {word: one[word] for word in ("family", "size", "domains", "simulated")}
            for name, one in clusters.items()
        },
        "layout": {at: _runs(row[0] for row in rows) for at, rows in domains.items()},
        "devices": {at: _runs((row[2], row[3]) for row in rows) for at, rows in domains.items()},
        "partitions": {
            name: [p["owner"], p["job"], p["allocation"], p["created"], p["until"], p["state"]]
            for name, p in partitions.items()
        },
        "waiters": {
            key: [w["place"], w["owner"], w["asked"], w["needs"], w["since"], w["priority"]]
            for key, w in waiters.items()
        },
        "jobs": {
            key: [j["place"], j["owner"], j["asked"], j["needs"], j["since"], j["priority"]]
            for key, j in jobs.items()
        },
    }
    states = [row[2] for row in devices.values()]
    counts = [0] * ORDERS
    for one in fragments.values():
        for size, count, _ in one["sizes"]:
            if (order := size.bit_length() - 1) < ORDERS:
                counts[order] += count
    while counts and not counts[-1]:
        counts.pop()
    failed = sum(p["state"] == _ENDED for p in partitions.values())
    down, free = states.count("DOWN"), states.count("FREE")
    used = states.count("IN_USE") + states.count("RESETTING")
    return kept, [used, free, len(waiters) + len(jobs), down, failed, *counts]


def snapshot_of(kept: Snapshot, *, own: str | None = None) -> dict[str, dict[str, Any]]:
    """The snapshot, as far as it was kept. own: the name of one who sees no others' partitions and
    waiters; None: all are seen."""
    partitions: Mapping[str, Any] = kept.get("partitions", {})
    waiters: Mapping[str, Any] = kept.get("waiters", {})
    jobs: Mapping[str, Any] = kept.get("jobs", {})
    if own is not None:
        partitions = {name: p for name, p in partitions.items() if p[0] == own}
        waiters = {key: w for key, w in waiters.items() if w[1] == own}
        jobs = {key: j for key, j in jobs.items() if j[1] == own}
    devices: dict[str, Any] = {}
    layout: Mapping[str, Any] = kept.get("layout", {})
    owners: Mapping[str, Any] = kept.get("devices", {})
    for at, runs in layout.items():
        names = [name for name, count in runs for _ in range(count)]
        states = [told for told, count in owners.get(at, ()) for _ in range(count)]
        index: dict[str, int] = {}
        for offset, (machine, (state, partition)) in enumerate(zip(names, states, strict=False)):
            index[machine] = index.get(machine, -1) + 1
            name = partition if own is None or partition in partitions else ""
            devices[f"{at}/{offset}"] = (machine, index[machine], state, name, "")
    return {
        "clusters": dict(kept.get("clusters", {})),
        "devices": devices,
        "partitions": {
            name: dict(zip(_PARTITION, p, strict=True)) for name, p in partitions.items()
        },
        "waiters": {key: dict(zip(_WAITER, w, strict=True)) for key, w in waiters.items()},
        "jobs": {key: dict(zip(_WAITER, j, strict=True)) for key, j in jobs.items()},
    }


def applied(known: dict[str, dict[str, Any]], told: Changes) -> None:
    """Make what is known what it is after these changes."""
    for topic, items in told.items():
        into = known.setdefault(topic, {})
        for key, item in items.items():
            if item is None:
                into.pop(key, None)
            else:
                into[key] = item


_PARTITION: Final = ("owner", "job", "allocation", "created", "until", "state")
_WAITER: Final = ("place", "owner", "asked", "needs", "since", "priority")


def _runs(values: Any) -> list[tuple[Any, int]]:
    return [(value, sum(1 for _ in run)) for value, run in groupby(values)]
