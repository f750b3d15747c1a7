"""What is kept of a pod for later, in compact form, and what a page shows of it.

Pure data.

Devices are kept in runs, so a link domain of which one partition has half takes two entries.
Topics, items and changes are those of a page (`_snapshot`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from podwright.page import FOLDED_FROM, Changes, Snapshot, domain_item

#: The order of a minute's sums. The numbers of blocks of 1, 2, 4, ... devices that fit follow them.
SUMS: Final = ("used", "free", "waiting", "down", "failed")
ORDERS: Final = 20  #: the most sizes that are counted
_CLUSTER_FIELDS: Final = ("family", "size", "domains", "simulated", "drained")
_PARTITION_FIELDS: Final = ("owner", "job", "allocation", "created", "until", "state")
_WAITER_FIELDS: Final = ("place", "owner", "asked", "needs", "since", "priority")


class MeasuredSums(NamedTuple):
    """What the drivers of a pod's devices measured. A value is None where no driver reports it.

    load: mean use in per cent, of the devices whose driver reports it. hottest: the highest
    temperature in degrees Celsius. power: the sum in watts. errors: the number of devices that
    report a fault, an XID or an uncorrected memory error.
    """

    load: float | None
    hottest: float | None
    power: float | None
    errors: float | None


def measured(readings: Iterable[Mapping[str, str]]) -> MeasuredSums | None:
    """Return the sums of devices' readings; None: no driver measures anything."""
    numbers: dict[str, list[int]] = {"load": [], "temperature": [], "power": []}
    error_count, any_reading = 0, False
    for reading in readings:
        any_reading = True
        for name, values in numbers.items():
            if (number := _leading_number(reading.get(name, ""))) is not None:
                values.append(number)
        error_count += bool(
            reading.get("problems")
            or reading.get("last xid")
            or _has_uncorrected_errors(reading.get("ecc errors", ""))
        )
    if not any_reading:
        return None
    loads = numbers["load"]
    return MeasuredSums(
        round(sum(loads) / len(loads), 1) if loads else None,
        max(numbers["temperature"], default=None),
        sum(numbers["power"]) if numbers["power"] else None,
        error_count,
    )


def _leading_number(reading_text: str) -> int | None:
    """Return the number that a reading begins with: 57 for `57 %`."""
    match = re.match(r"\d+", reading_text, re.A)
    return None if match is None else int(match[0])


def _has_uncorrected_errors(reading_text: str) -> bool:
    match = re.search(r"(\d+) uncorrected", reading_text, re.A)
    return match is not None and int(match[1]) > 0


def kept_items(topic: str, items: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a page's clusters, waiters or jobs."""
    if topic == "clusters":
        return {
            name: {field: cluster[field] for field in _CLUSTER_FIELDS}
            for name, cluster in items.items()
        }
    return {key: [waiter[field] for field in _WAITER_FIELDS] for key, waiter in items.items()}


def sums_of(
    states: Mapping[str, int],
    waiting: int,
    failed: int,
    sizes: Iterable[Sequence[int]],
) -> list[int]:
    """Return a minute's line of sums. states: devices by state. sizes: size and number of blocks
    that fit, of each cluster."""
    fit_counts = [0] * ORDERS
    for size, count, *_ in sizes:
        if (order := size.bit_length() - 1) < ORDERS:
            fit_counts[order] += count
    while fit_counts and not fit_counts[-1]:
        fit_counts.pop()
    used = states.get("IN_USE", 0) + states.get("RESETTING", 0)
    return [used, states.get("FREE", 0), waiting, states.get("DOWN", 0), failed, *fit_counts]


def snapshot_of(
    topics: Snapshot, *, restricted_user: str | None = None, domain: str = ""
) -> dict[str, dict[str, Any]]:
    """Return the snapshot, as far as it was kept; of a large pod without its devices.

    restricted_user: the name of a caller who may not see others' partitions and waiters; None: all
    are shown. domain: this link domain of a large pod alone, with its devices.
    """
    found: dict[str, dict[str, Any]] = {topic: dict(topics.get(topic, {})) for topic in _KEPT}
    if restricted_user is not None:
        for topic, place in (("partitions", 0), ("waiters", 1), ("jobs", 1)):
            found[topic] = {
                key: row for key, row in found[topic].items() if row[place] == restricted_user
            }
    partitions = found["partitions"]
    shown: dict[str, dict[str, Any]] = {
        "clusters": found["clusters"],
        "partitions": _rows_as_items(_PARTITION_FIELDS, partitions),
        "waiters": _rows_as_items(_WAITER_FIELDS, found["waiters"]),
        "jobs": _rows_as_items(_WAITER_FIELDS, found["jobs"]),
    }
    size = sum(cluster["size"] for cluster in found["clusters"].values())
    domains = found["devices"]
    if size > FOLDED_FROM and not domain:
        return {
            **shown,
            "partitions": {},
            "devices": {},
            "domains": {key: _domain_of_runs(runs) for key, runs in domains.items()},
            "totals": {"partitions": {"count": len(partitions)}},
        }
    if domain:
        domains = {key: runs for key, runs in domains.items() if key == domain}
    shown["devices"] = {}
    for key, runs in domains.items():
        machines = found["layout"].get(key, ())
        shown["devices"].update(
            _device_rows(key, machines, runs, None if restricted_user is None else partitions)
        )
    if domain:
        names = {row[3] for row in shown["devices"].values()}
        shown["partitions"] = {
            name: item for name, item in shown["partitions"].items() if name in names
        }
    return shown


_KEPT: Final = ("clusters", "layout", "devices", "partitions", "waiters", "jobs")


def _rows_as_items(fields: Sequence[str], rows: Mapping[str, Any]) -> dict[str, Any]:
    return {key: dict(zip(fields, row, strict=True)) for key, row in rows.items()}


def _domain_of_runs(runs: Iterable[Any]) -> list[int]:
    counts: dict[str, int] = {}
    for (state, _), length in runs:
        counts[state] = counts.get(state, 0) + length
    return domain_item(counts)


def _device_rows(
    domain: str, machine_runs: Iterable[Any], runs: Iterable[Any], visible: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return rows of devices. visible: the partitions that are named; None: all."""
    machine_names = [name for name, length in machine_runs for _ in range(length)]
    pairs = [pair for pair, length in runs for _ in range(length)]
    index_in_machine: dict[str, int] = {}
    rows: dict[str, Any] = {}
    for offset, (machine, (state, partition)) in enumerate(zip(machine_names, pairs, strict=False)):
        index_in_machine[machine] = index_in_machine.get(machine, -1) + 1
        name = partition if visible is None or partition in visible else ""
        rows[f"{domain}/{offset}"] = (machine, index_in_machine[machine], state, name, "")
    return rows


def applied(known_topics: dict[str, dict[str, Any]], changes: Changes) -> None:
    """Apply changes to what is known, in place."""
    for topic, items in changes.items():
        topic_items = known_topics.setdefault(topic, {})
        for key, item in items.items():
            if item is None:
                topic_items.pop(key, None)
            else:
                topic_items[key] = item
