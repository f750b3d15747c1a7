"""The tables of `top`: rows of a snapshot, filtered and sorted. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from podwright.page import Snapshot

Item = Mapping[str, Any]


class Tab(NamedTuple):
    """A table.

    topics: the topics whose items are its rows. columns: the heading of each, and a function that
    returns an item's value from its key, the item and the time in seconds since 1970. sort: the
    column of the initial order. down: whether the largest value is first.
    """

    name: str
    topics: tuple[str, ...]
    columns: tuple[tuple[str, Callable[[str, Item, float], Any]], ...]
    sort: int = 0
    down: bool = False


def _field_cell(field: str) -> Callable[[str, Item, float], Any]:
    return lambda _, item, now: item.get(field) or ""


def _key_cell(key: str, _: Item, __: float) -> str:
    return key


def _time_left_cell(_: str, item: Item, now: float) -> str:
    end_time = item.get("until") or 0
    return span(end_time - now) if end_time else ""


def _age_cell(_: str, item: Item, now: float) -> str:
    return span(now - (item.get("since") or now))


def _start_time_cell(_: str, item: Item, now: float) -> str:
    return time.strftime("%H:%M", time.localtime(item["starts"])) if item.get("starts") else ""


def _event_time_cell(_: str, item: Item, __: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(item["at"]))


def _guest(_: str, item: Item, __: float) -> str:
    return str(item.get("scheduler") or "people")


def _job_cell(key: str, item: Item, _: float) -> str:
    return str(item.get("job") or key)


def _owner_cell(_: str, item: Item, __: float) -> str:
    return str(item.get("owner") or item.get("scheduler") or "")


TABS = (
    Tab(
        "Partitions",
        ("partitions",),
        (
            ("", lambda key, item, now: ""),
            ("Partition", _key_cell),
            ("Size", _field_cell("size")),
            ("State", _field_cell("state")),
            ("Owner", _owner_cell),
            ("Job", _field_cell("job")),
            ("Ends in", _time_left_cell),
        ),
        sort=1,
    ),
    Tab(
        "Queue",
        ("waiters", "jobs"),
        (
            ("", lambda key, item, now: ""),
            ("Guest", _guest),
            ("Place", _field_cell("place")),
            ("Id", _job_cell),
            ("Owner", _field_cell("owner")),
            ("For", _field_cell("asked")),
            ("Kept", _field_cell("reserved")),
            ("Waits", _age_cell),
            ("Starts", _start_time_cell),
            ("Needs", _field_cell("needs")),
        ),
        sort=2,
    ),
    Tab(
        "Machines",
        ("machines",),
        (
            ("Machine", _key_cell),
            ("Cluster", _field_cell("cluster")),
            ("State", _field_cell("state")),
            ("Why", _field_cell("reason")),
            ("Host", _field_cell("host")),
        ),
    ),
    Tab(
        "Events",
        ("events",),
        (
            ("Time", _event_time_cell),
            ("No.", lambda key, item, now: int(key)),
            ("Who", _field_cell("who")),
            ("What", _field_cell("what")),
            ("About", _field_cell("about")),
            ("Outcome", _field_cell("outcome")),
        ),
        sort=1,
        down=True,
    ),
)


def rows(
    tab: Tab, snapshot: Snapshot, now: float, *, words: str = "", sort: int = 0, down: bool = False
) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the key and the values of each row.

    words: only rows that contain all of them are returned. A word behind a minus excludes rows, as
    in `alice -ACTIVE`.
    """
    matching_rows = []
    for topic in tab.topics:
        for item_key, item in snapshot.get(topic, {}).items():
            assert isinstance(item, Mapping)
            row_values = tuple(column_value(item_key, item, now) for _, column_value in tab.columns)
            if _row_matches(row_values, words):
                matching_rows.append((item_key, row_values))
    matching_rows.sort(
        key=lambda matching_row: (_mixed_sort_key(matching_row[1][sort]), matching_row[0]),
        reverse=down,
    )
    return matching_rows


def _row_matches(row_values: tuple[Any, ...], filter_words: str) -> bool:
    text = " ".join(map(str, row_values)).lower()
    return all(
        word[1:] not in text if word.startswith("-") and word[1:] else word in text
        for word in filter_words.lower().split()
    )


def _mixed_sort_key(cell_value: Any) -> tuple[int, float, str]:
    """Return a sort key that puts numbers before words."""
    if isinstance(cell_value, int | float):
        return 0, float(cell_value), ""
    return 1, 0.0, str(cell_value).lower()


def span(seconds: float) -> str:
    """Return a time as `45s`, `12m`, `3h05`, `4d`."""
    whole_seconds = max(int(seconds), 0)
    if whole_seconds < 60:
        return f"{whole_seconds}s"
    if whole_seconds < 3600:
        return f"{whole_seconds // 60}m"
    if whole_seconds < 86400:
        return f"{whole_seconds // 3600}h{whole_seconds % 3600 // 60:02}"
    return f"{whole_seconds // 86400}d"


_TIME_FIELDS = ("since", "created", "until", "starts", "at")


def facts(item_key: str, item: Item) -> list[str]:
    """Return all known values of an item, a line each."""
    known_values = [
        (field, value) for field, value in item.items() if value not in ("", None, [], 0)
    ]
    return [
        item_key,
        *(
            f"{field}: {_utc_time_text(value) if field in _TIME_FIELDS else value}"
            for field, value in known_values
        ),
    ]


def _utc_time_text(timestamp: Any) -> str:
    return datetime.fromtimestamp(float(timestamp), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def queue_name(item_key: str, item: Item) -> str:
    """Return the name of a request of the queue, as the devices have it that are kept for it."""
    if scheduler := item.get("scheduler"):
        return f"job {item.get('job')} of {scheduler}"
    return item_key


def partitions_on_machine(snapshot: Snapshot, machine: str) -> list[str]:
    """Return the partitions on a machine."""
    names: dict[str, None] = {}
    for row in snapshot.get("devices", {}).values():
        assert isinstance(row, tuple | list)
        if row[0] == machine and row[3]:
            names[str(row[3])] = None
    return list(names)
