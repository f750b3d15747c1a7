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


def _get(name: str) -> Callable[[str, Item, float], Any]:
    return lambda _, item, now: item.get(name) or ""


def _key(key: str, _: Item, __: float) -> str:
    return key


def _until(_: str, item: Item, now: float) -> str:
    until = item.get("until") or 0
    return span(until - now) if until else ""


def _since(_: str, item: Item, now: float) -> str:
    return span(now - (item.get("since") or now))


def _starts(_: str, item: Item, now: float) -> str:
    return time.strftime("%H:%M", time.localtime(item["starts"])) if item.get("starts") else ""


def _at(_: str, item: Item, __: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(item["at"]))


def _guest(_: str, item: Item, __: float) -> str:
    return str(item.get("scheduler") or "people")


def _id(key: str, item: Item, _: float) -> str:
    return str(item.get("job") or key)


def _who(_: str, item: Item, __: float) -> str:
    return str(item.get("owner") or item.get("scheduler") or "")


TABS = (
    Tab(
        "Partitions",
        ("partitions",),
        (
            ("", lambda key, item, now: ""),
            ("Partition", _key),
            ("Size", _get("size")),
            ("State", _get("state")),
            ("Owner", _who),
            ("Job", _get("job")),
            ("Ends in", _until),
        ),
        sort=1,
    ),
    Tab(
        "Queue",
        ("waiters", "jobs"),
        (
            ("", lambda key, item, now: ""),
            ("Guest", _guest),
            ("Place", _get("place")),
            ("Id", _id),
            ("Owner", _get("owner")),
            ("For", _get("asked")),
            ("Kept", _get("reserved")),
            ("Waits", _since),
            ("Starts", _starts),
            ("Needs", _get("needs")),
        ),
        sort=2,
    ),
    Tab(
        "Machines",
        ("machines",),
        (
            ("Machine", _key),
            ("Cluster", _get("cluster")),
            ("State", _get("state")),
            ("Why", _get("reason")),
            ("Host", _get("host")),
        ),
    ),
    Tab(
        "Events",
        ("events",),
        (
            ("Time", _at),
            ("No.", lambda key, item, now: int(key)),
            ("Who", _get("who")),
            ("What", _get("what")),
            ("About", _get("about")),
            ("Outcome", _get("outcome")),
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
    matching = []
    for topic in tab.topics:
        for key, item in snapshot.get(topic, {}).items():
            assert isinstance(item, Mapping)
            values = tuple(value(key, item, now) for _, value in tab.columns)
            if _matches(values, words):
                matching.append((key, values))
    matching.sort(key=lambda row: (_order(row[1][sort]), row[0]), reverse=down)
    return matching


def _matches(values: tuple[Any, ...], words: str) -> bool:
    text = " ".join(map(str, values)).lower()
    return all(
        word[1:] not in text if word.startswith("-") and word[1:] else word in text
        for word in words.lower().split()
    )


def _order(value: Any) -> tuple[int, float, str]:
    """Return a sort key that puts numbers before words."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value).lower()


def span(seconds: float) -> str:
    """Return a time as `45s`, `12m`, `3h05`, `4d`."""
    total = max(int(seconds), 0)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02}"
    return f"{total // 86400}d"


_TIMES = ("since", "created", "until", "starts", "at")


def facts(key: str, item: Item) -> list[str]:
    """Return all known values of an item, a line each."""
    known = [(name, value) for name, value in item.items() if value not in ("", None, [], 0)]
    return [
        key,
        *(f"{name}: {_moment(value) if name in _TIMES else value}" for name, value in known),
    ]


def _moment(value: Any) -> str:
    return datetime.fromtimestamp(float(value), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def queue_name(key: str, item: Item) -> str:
    """Return the name of a request of the queue, as the devices have it that are kept for it."""
    if scheduler := item.get("scheduler"):
        return f"job {item.get('job')} of {scheduler}"
    return key


def held_by(snapshot: Snapshot, machine: str) -> list[str]:
    """Return the partitions on a machine."""
    names: dict[str, None] = {}
    for row in snapshot.get("devices", {}).values():
        assert isinstance(row, tuple | list)
        if row[0] == machine and row[3]:
            names[str(row[3])] = None
    return list(names)
