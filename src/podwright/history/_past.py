"""What was: an hour of minutes in a row, written by the minute, and read by the minute.

A row's body is the first minute whole and of each later one what had changed; its sums are one
line for each minute that something had changed in. Both are compressed JSON with a version.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from podwright.errors import InvalidRequest, NotFound, Unavailable
from podwright.history._minute import SUMS, applied, minute, snapshot_of
from podwright.page import Snapshot, changes
from podwright.store import History, Row

KEEP: Final = 30 * 24 * 60  #: minutes
MOST: Final = 44_000_000  #: bytes of rows; with what a database adds the file stays below 50 MB
LENGTH: Final = 60  #: minutes of a row
LARGEST: Final = 4_000_000  #: bytes of a row before it is compressed, after which another begins
POINTS: Final = 2000  #: of one answer
_VERSION: Final = 1
_encode = msgspec.json.Encoder().encode


class Writer:
    """Makes rows of snapshots, a minute each."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}
        self._parts: list[bytes] = []
        self._sums: list[list[int]] = []
        self._last: list[int] = []
        self._start = self._size = 0

    def add(self, at: int, snapshot: Snapshot | None) -> Row:
        """The row that tells of the minute `at`, as far as it goes. None: nothing has changed.

        Raises ValueError where there is nothing that could be unchanged.
        """
        kept, sums = (self._known, self._last) if snapshot is None else minute(snapshot)
        if not sums:
            raise ValueError("nothing was told yet")
        new = not self._parts or at // LENGTH != self._start // LENGTH or self._size > LARGEST
        if new:
            self._start, self._size, self._parts, self._sums = at, 0, [], []
        elif snapshot is None:
            return Row(self._start, at, b"", b"")
        told = changes({} if new else self._known, kept)
        part = _encode([at, told])
        self._parts.append(part)
        self._sums.append([at, *sums])
        self._size += len(part)
        self._known, self._last = kept, sums
        body = b"[%d,[%s]]" % (_VERSION, b",".join(self._parts))
        return Row(self._start, at, _packed(self._sums), zlib.compress(body, 6))

    def forget(self) -> None:
        """What comes next begins a row of its own: nobody knows what was in between."""
        self._parts, self._last = [], []


class Point(NamedTuple):
    """time: seconds since 1970, where it begins. used, free, waiting: means. down, failed: most.
    fits: how many blocks of 1, 2, 4, ... devices fitted, means."""

    time: int
    used: float
    free: float
    waiting: float
    down: int
    failed: int
    fits: list[float]


class Past:
    """Reads a history."""

    def __init__(self, history: History) -> None:
        self._history = history

    async def series(self, since: int, until: int, step: int) -> list[Point]:
        """Sums from since to until, minutes since 1970; a point for each `step` minutes in which
        something is known. Raises InvalidRequest, wire.Unavailable."""
        if not (step > 0 and 0 < until - since <= KEEP and (until - since) // step <= POINTS):
            raise InvalidRequest(
                f"{since * 60} to {until * 60} by {step * 60} s cannot be told at once",
                would_work=f"up to 30 days and {POINTS} points",
            )
        rows = await self._history.sums(since, until)
        return await asyncio.to_thread(_points, rows, since, until, step)

    async def at(self, when: int, *, own: str | None = None) -> dict[str, Any]:
        """What was at a minute since 1970: time, topics. own: as `snapshot_of` has it.

        Raises NotFound, wire.Unavailable."""
        row = await self._history.at(when)
        if row is None:
            raise NotFound(
                "nothing is known of that minute",
                would_work="one of the last 30 days at which the server ran",
            )
        topics = await asyncio.to_thread(_read, row, when, own)
        return {"time": when * 60, "topics": topics}


def _read(row: Row, when: int, own: str | None) -> dict[str, dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {}
    for at, told in _unpacked(row.body):
        if at > when:
            break
        applied(known, told)
    return snapshot_of(known, own=own)


def _points(rows: Iterable[Row], since: int, until: int, step: int) -> list[Point]:
    sums: dict[int, list[float]] = {}
    for row in rows:
        told = _unpacked(row.sums)
        for (at, *values), after in zip(told, [*told[1:], [row.last + 1]], strict=True):
            first, end = max(at, since), min(after[0], until)
            while first < end:
                point = (first - since) // step
                upto = min(end, since + (point + 1) * step)
                _add(sums.setdefault(point, [0.0] * (1 + len(SUMS))), values, upto - first)
                first = upto
    return [_point(since + point * step, found) for point, found in sorted(sums.items())]


def _add(into: list[float], values: list[int], minutes: int) -> None:
    """Sums weighed by minutes; the most of what is wrong."""
    into[0] += minutes
    into.extend([0.0] * (1 + len(values) - len(into)))
    for place, value in enumerate(values):
        old, worst = into[place + 1], 3 <= place < len(SUMS)
        into[place + 1] = max(old, value) if worst else old + value * minutes


def _point(at: int, found: list[float]) -> Point:
    minutes, used, free, waiting, down, failed, *fits = found
    used, free, waiting, *fits = (round(x / minutes, 2) for x in (used, free, waiting, *fits))
    return Point(at * 60, used, free, waiting, int(down), int(failed), fits)


def _packed(value: Any) -> bytes:
    return zlib.compress(_encode([_VERSION, value]), 6)


def _unpacked(packed: bytes) -> Any:
    """Raises wire.Unavailable for what is damaged, and what a newer Podwright wrote."""
    try:
        version, value = msgspec.json.decode(zlib.decompress(packed))
    except (zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise Unavailable(f"this part of the history is damaged ({error})") from None
    if version != _VERSION:
        raise Unavailable("this part of the history was written by a newer Podwright")
    return value
