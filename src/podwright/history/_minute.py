"""The part of a snapshot that is kept for later, in compact form, and a snapshot from it.

Pure data.

Devices are stored in runs, so a domain of which one partition has half takes two entries. Topics,
items and changes are those of a page (`_snapshot`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

from podwright.page import Changes, Snapshot

#: The order of a minute's sums. The numbers of blocks of 1, 2, 4, ... devices that fit follow them.
SUMS: Final = ("used", "free", "waiting", "down", "failed")
ORDERS: Final = 20  #: the most sizes that are counted
#: The topics of a snapshot that a minute is made of. Only sums of the readings are kept.
TOPICS: Final = ("clusters", "devices", "partitions", "waiters", "jobs", "readings")
_ENDED: Final = "ERROR"


class Measured(NamedTuple):
    """What the drivers of a pod's devices measured. A value is None where no driver reports it.

    load: mean use in per cent, of the devices whose driver reports it. hottest: the highest
    temperature in degrees Celsius. power: the sum in watts. errors: the number of devices that
    report a fault, an XID or an uncorrected memory error.
    """

    load: float | None
    hottest: float | None
    power: float | None
    errors: float | None


def measured(snapshot: Snapshot) -> Measured | None:
    """Return the sums of a snapshot's readings; None: no driver measures anything."""
    readings: Mapping[str, Any] = snapshot.get("readings", {})
    if not readings:
        return None
    rows = readings.values()
    loads, heats, powers = (
        [number for row in rows if (number := _number(row.get(word, ""))) is not None]
        for word in ("load", "temperature", "power")
    )
    errors = sum(
        bool(row.get("problems") or row.get("last xid") or _uncorrected(row.get("ecc errors", "")))
        for row in rows
    )
    return Measured(
        round(sum(loads) / len(loads), 1) if loads else None,
        max(heats, default=None),
        sum(powers) if powers else None,
        errors,
    )


def _number(text: str) -> int | None:
    """Return the number that a reading begins with: 57 for `57 %`."""
    match = re.match(r"\d+", text, re.A)
    return None if match is None else int(match[0])


def _uncorrected(text: str) -> bool:
    match = re.search(r"(\d+) uncorrected", text, re.A)
    return match is not None and int(match[1]) > 0


def minute(snapshot: Snapshot) -> tuple[dict[str, dict[str, Any]], list[int]]:
    """Return the part of a snapshot that is kept, and its sums."""
    devices: Mapping[str, Any] = snapshot.get("devices", {})
    partitions: Mapping[str, Any] = snapshot.get("partitions", {})
    waiters: Mapping[str, Any] = snapshot.get("waiters", {})
    clusters: Mapping[str, Any] = snapshot.get("clusters", {})
    jobs: Mapping[str, Any] = snapshot.get("jobs", {})
    fragments: Mapping[str, Any] = snapshot.get("fragments", {})
    domains: dict[str, list[Any]] = {}
    for key, row in devices.items():
        domains.setdefault(key.rpartition("/")[0], []).append(row)
    topics: dict[str, dict[str, Any]] = {
        "clusters": {
            name: {word: cluster[word] for word in ("family", "size", "domains", "simulated")}
            for name, cluster in clusters.items()
        },
        "layout": {domain: _runs(row[0] for row in rows) for domain, rows in domains.items()},
        "devices": {
            domain: _runs((row[2], row[3]) for row in rows) for domain, rows in domains.items()
        },
        "partitions": {
            name: [p["owner"], p["job"], p["allocation"], p["created"], p["until"], p["state"]]
            for name, p in partitions.items()
        },
        "waiters": {
            key: [
                waiter["place"],
                waiter["owner"],
                waiter["asked"],
                waiter["needs"],
                waiter["since"],
                waiter["priority"],
            ]
            for key, waiter in waiters.items()
        },
        "jobs": {
            key: [j["place"], j["owner"], j["asked"], j["needs"], j["since"], j["priority"]]
            for key, j in jobs.items()
        },
    }
    states = [row[2] for row in devices.values()]
    counts = [0] * ORDERS
    for cluster in fragments.values():
        for size, count, _ in cluster["sizes"]:
            if (order := size.bit_length() - 1) < ORDERS:
                counts[order] += count
    while counts and not counts[-1]:
        counts.pop()
    failed = sum(p["state"] == _ENDED for p in partitions.values())
    down, free = states.count("DOWN"), states.count("FREE")
    used = states.count("IN_USE") + states.count("RESETTING")
    return topics, [used, free, len(waiters) + len(jobs), down, failed, *counts]


def snapshot_of(topics: Snapshot, *, own: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the snapshot, as far as it was kept.

    own: the name of a caller who may not see others' partitions and waiters; None: all are shown.
    """
    partitions: Mapping[str, Any] = topics.get("partitions", {})
    waiters: Mapping[str, Any] = topics.get("waiters", {})
    jobs: Mapping[str, Any] = topics.get("jobs", {})
    if own is not None:
        partitions = {name: p for name, p in partitions.items() if p[0] == own}
        waiters = {key: waiter for key, waiter in waiters.items() if waiter[1] == own}
        jobs = {key: j for key, j in jobs.items() if j[1] == own}
    devices: dict[str, Any] = {}
    layout: Mapping[str, Any] = topics.get("layout", {})
    owners: Mapping[str, Any] = topics.get("devices", {})
    for domain, runs in layout.items():
        names = [name for name, count in runs for _ in range(count)]
        states = [owner for owner, count in owners.get(domain, ()) for _ in range(count)]
        index: dict[str, int] = {}
        for offset, (machine, (state, partition)) in enumerate(zip(names, states, strict=False)):
            index[machine] = index.get(machine, -1) + 1
            name = partition if own is None or partition in partitions else ""
            devices[f"{domain}/{offset}"] = (machine, index[machine], state, name, "")
    return {
        "clusters": dict(topics.get("clusters", {})),
        "devices": devices,
        "partitions": {
            name: dict(zip(_PARTITION, p, strict=True)) for name, p in partitions.items()
        },
        "waiters": {
            key: dict(zip(_WAITER, waiter, strict=True)) for key, waiter in waiters.items()
        },
        "jobs": {key: dict(zip(_WAITER, j, strict=True)) for key, j in jobs.items()},
    }


def applied(known: dict[str, dict[str, Any]], changes: Changes) -> None:
    """Apply changes to what is known, in place."""
    for topic, items in changes.items():
        topic_items = known.setdefault(topic, {})
        for key, item in items.items():
            if item is None:
                topic_items.pop(key, None)
            else:
                topic_items[key] = item


_PARTITION: Final = ("owner", "job", "allocation", "created", "until", "state")
_WAITER: Final = ("place", "owner", "asked", "needs", "since", "priority")


def _runs(values: Any) -> list[tuple[Any, int]]:
    return [(value, sum(1 for _ in run)) for value, run in groupby(values)]
