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
_FAILED_PARTITION_STATE: Final = "ERROR"


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


def measured(snapshot: Snapshot) -> MeasuredSums | None:
    """Return the sums of a snapshot's readings; None: no driver measures anything."""
    readings: Mapping[str, Any] = snapshot.get("readings", {})
    if not readings:
        return None
    device_readings = readings.values()
    loads, temperatures, powers = (
        [
            reading_value
            for reading in device_readings
            if (reading_value := _leading_reading_number(reading.get(reading_name, ""))) is not None
        ]
        for reading_name in ("load", "temperature", "power")
    )
    error_count = sum(
        bool(
            reading.get("problems")
            or reading.get("last xid")
            or _has_uncorrected_errors(reading.get("ecc errors", ""))
        )
        for reading in device_readings
    )
    return MeasuredSums(
        round(sum(loads) / len(loads), 1) if loads else None,
        max(temperatures, default=None),
        sum(powers) if powers else None,
        error_count,
    )


def _leading_reading_number(reading_text: str) -> int | None:
    """Return the number that a reading begins with: 57 for `57 %`."""
    match = re.match(r"\d+", reading_text, re.A)
    return None if match is None else int(match[0])


def _has_uncorrected_errors(reading_text: str) -> bool:
    match = re.search(r"(\d+) uncorrected", reading_text, re.A)
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
    for item_key, device_row in devices.items():
        domains.setdefault(item_key.rpartition("/")[0], []).append(device_row)
    topics: dict[str, dict[str, Any]] = {
        "clusters": {
            name: {
                field_name: cluster[field_name]
                for field_name in ("family", "size", "domains", "simulated")
            }
            for name, cluster in clusters.items()
        },
        "layout": {
            domain: _run_length_pairs(device_row[0] for device_row in device_rows)
            for domain, device_rows in domains.items()
        },
        "devices": {
            domain: _run_length_pairs((device_row[2], device_row[3]) for device_row in device_rows)
            for domain, device_rows in domains.items()
        },
        "partitions": {
            name: [
                partition["owner"],
                partition["job"],
                partition["allocation"],
                partition["created"],
                partition["until"],
                partition["state"],
            ]
            for name, partition in partitions.items()
        },
        "waiters": {
            item_key: [
                waiter["place"],
                waiter["owner"],
                waiter["asked"],
                waiter["needs"],
                waiter["since"],
                waiter["priority"],
            ]
            for item_key, waiter in waiters.items()
        },
        "jobs": {
            item_key: [
                job["place"],
                job["owner"],
                job["asked"],
                job["needs"],
                job["since"],
                job["priority"],
            ]
            for item_key, job in jobs.items()
        },
    }
    states = [device_row[2] for device_row in devices.values()]
    fit_counts = [0] * ORDERS
    for cluster in fragments.values():
        for block_size, block_count, _ in cluster["sizes"]:
            if (size_exponent := block_size.bit_length() - 1) < ORDERS:
                fit_counts[size_exponent] += block_count
    while fit_counts and not fit_counts[-1]:
        fit_counts.pop()
    failed_count = sum(
        partition["state"] == _FAILED_PARTITION_STATE for partition in partitions.values()
    )
    down_count, free_count = states.count("DOWN"), states.count("FREE")
    used_count = states.count("IN_USE") + states.count("RESETTING")
    return topics, [
        used_count,
        free_count,
        len(waiters) + len(jobs),
        down_count,
        failed_count,
        *fit_counts,
    ]


def snapshot_of(
    topics: Snapshot, *, restricted_user: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return the snapshot, as far as it was kept.

    restricted_user: the name of a caller who may not see others' partitions and waiters; None: all
    are shown.
    """
    partitions: Mapping[str, Any] = topics.get("partitions", {})
    waiters: Mapping[str, Any] = topics.get("waiters", {})
    jobs: Mapping[str, Any] = topics.get("jobs", {})
    if restricted_user is not None:
        partitions = {
            name: partition_row
            for name, partition_row in partitions.items()
            if partition_row[0] == restricted_user
        }
        waiters = {
            item_key: waiter for item_key, waiter in waiters.items() if waiter[1] == restricted_user
        }
        jobs = {item_key: job for item_key, job in jobs.items() if job[1] == restricted_user}
    devices: dict[str, Any] = {}
    layout: Mapping[str, Any] = topics.get("layout", {})
    state_runs: Mapping[str, Any] = topics.get("devices", {})
    for domain, machine_runs in layout.items():
        machine_names = [name for name, run_length in machine_runs for _ in range(run_length)]
        states = [
            state_pair
            for state_pair, run_length in state_runs.get(domain, ())
            for _ in range(run_length)
        ]
        index_in_machine: dict[str, int] = {}
        for offset, (machine, (state, partition)) in enumerate(
            zip(machine_names, states, strict=False)
        ):
            index_in_machine[machine] = index_in_machine.get(machine, -1) + 1
            name = partition if restricted_user is None or partition in partitions else ""
            devices[f"{domain}/{offset}"] = (machine, index_in_machine[machine], state, name, "")
    return {
        "clusters": dict(topics.get("clusters", {})),
        "devices": devices,
        "partitions": {
            name: dict(zip(_KEPT_PARTITION_FIELDS, partition_row, strict=True))
            for name, partition_row in partitions.items()
        },
        "waiters": {
            item_key: dict(zip(_KEPT_WAITER_FIELDS, waiter, strict=True))
            for item_key, waiter in waiters.items()
        },
        "jobs": {
            item_key: dict(zip(_KEPT_WAITER_FIELDS, job, strict=True))
            for item_key, job in jobs.items()
        },
    }


def applied(known_topics: dict[str, dict[str, Any]], changes: Changes) -> None:
    """Apply changes to what is known, in place."""
    for topic, items in changes.items():
        topic_items = known_topics.setdefault(topic, {})
        for item_key, item in items.items():
            if item is None:
                topic_items.pop(item_key, None)
            else:
                topic_items[item_key] = item


_KEPT_PARTITION_FIELDS: Final = ("owner", "job", "allocation", "created", "until", "state")
_KEPT_WAITER_FIELDS: Final = ("place", "owner", "asked", "needs", "since", "priority")


def _run_length_pairs(values: Any) -> list[tuple[Any, int]]:
    return [(value, sum(1 for _ in run)) for value, run in groupby(values)]
