"""The past of a pod: an hour of minutes in a row, written and read by the minute.

A row's body holds the first minute as a whole, and for each later minute its changes. Its sums have
one line for each minute in which something changed: the minute, its sums, and, where drivers
measure something, a list of what they measured. Both are compressed JSON with a version.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from podwright.errors import InvalidRequest, NotFound, Unavailable
from podwright.history._minute_snapshot import (
    SUMS,
    MeasuredSums,
    applied,
    measured,
    minute,
    snapshot_of,
)
from podwright.page import Snapshot, changes
from podwright.store import History, Row

KEEP: Final = 30 * 24 * 60  #: in minutes
MOST: Final = 44_000_000  #: bytes of rows; the file with overhead stays below 50 MB
ROW_MINUTES: Final = 60  #: minutes of a row
MAX_ROW_BYTES: Final = 4_000_000  #: bytes of a row before compression, after which a new row begins
POINTS: Final = 2000  #: the most points of one answer
_ROW_VERSION: Final = 1
_MEASURED_SUMS_VERSION: Final = 2  #: the version of sums that have what drivers measured
_encode = msgspec.json.Encoder().encode


class Writer:
    """Makes rows from snapshots, one for each minute."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}
        self._parts: list[bytes] = []
        self._sums: list[list[Any]] = []
        self._last: list[Any] = []
        self._start = self._size = 0

    def add(self, minute_number: int, snapshot: Snapshot | None) -> Row:
        """Return the row that contains the minute `at`, as far as it goes.

        None: nothing has changed.

        Raises ValueError for None where no earlier snapshot is known.
        """
        topics, sums = (
            (self._known, self._last) if snapshot is None else _kept_topics_and_sums(snapshot)
        )
        if not sums:
            raise ValueError("nothing was told yet")
        starts_row = (
            not self._parts
            or minute_number // ROW_MINUTES != self._start // ROW_MINUTES
            or self._size > MAX_ROW_BYTES
        )
        if starts_row:
            self._start, self._size, self._parts, self._sums = minute_number, 0, [], []
        elif snapshot is None:
            return Row(self._start, minute_number, b"", b"")
        difference = changes({} if starts_row else self._known, topics)
        encoded_minute = _encode([minute_number, difference])
        self._parts.append(encoded_minute)
        self._sums.append([minute_number, *sums])
        self._size += len(encoded_minute)
        self._known, self._last = topics, sums
        row_body = b"[%d,[%s]]" % (_ROW_VERSION, b",".join(self._parts))
        version = (
            _MEASURED_SUMS_VERSION
            if any(isinstance(sum_row[-1], tuple) for sum_row in self._sums)
            else _ROW_VERSION
        )
        return Row(
            self._start, minute_number, _packed(version, self._sums), zlib.compress(row_body, 6)
        )

    def forget(self) -> None:
        """Begin a new row with the next minute, because the minutes in between are not known."""
        self._parts, self._last = [], []


class Point(NamedTuple):
    """A point of a series.

    time: its beginning, seconds since 1970. used, free, waiting: means. down, failed: maxima. fits:
    means of how many blocks of 1, 2, 4, ... devices fitted. measured: means of use and power,
    maxima of temperature and errors; None where no driver measured anything.
    """

    time: int
    used: float
    free: float
    waiting: float
    down: int
    failed: int
    fits: list[float]
    measured: MeasuredSums | None = None


class Past:
    """Reads the history of a store."""

    def __init__(self, history: History) -> None:
        self._history = history

    async def series(
        self, since: int, until: int, step: int, *, own: str | None = None
    ) -> list[Point]:
        """Return the sums from since to until, which are minutes since 1970.

        There is a point for each `step` minutes in which something is known. A caller who may not
        see what others have (`own`, as for `snapshot_of`) is not told what drivers measured. Raises
        InvalidRequest and wire.Unavailable.
        """
        if not (step > 0 and 0 < until - since <= KEEP and (until - since) // step <= POINTS):
            raise InvalidRequest(
                f"{since * 60} to {until * 60} by {step * 60} s cannot be told at once",
                would_work=f"ask for up to 30 days and {POINTS} points",
            )
        rows = await self._history.sums(since, until)
        points = await asyncio.to_thread(_history_points, rows, since, until, step)
        return points if own is None else [point._replace(measured=None) for point in points]

    async def at(self, when: int, *, own: str | None = None) -> dict[str, Any]:
        """Return the pod at a minute since 1970, as `time` and `topics`. own: as for `snapshot_of`.

        Raises NotFound and wire.Unavailable.
        """
        row = await self._history.at(when)
        if row is None:
            raise NotFound(
                "nothing is known of that minute",
                would_work="choose one of the last 30 days at which the server ran",
            )
        topics = await asyncio.to_thread(_snapshot_at_minute, row, when, own)
        return {"time": when * 60, "topics": topics}


def _snapshot_at_minute(
    row: Row, target_minute: int, restricted_user: str | None
) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for minute_number, difference in _unpacked(row.body):
        if minute_number > target_minute:
            break
        applied(topics, difference)
    return snapshot_of(topics, restricted_user=restricted_user)


def _history_points(
    rows: Iterable[Row], since_minute: int, until_minute: int, step_minutes: int
) -> list[Point]:
    totals_by_point: dict[int, list[float]] = {}
    readings_by_point: dict[int, list[tuple[int, list[float | None]]]] = {}
    for row in rows:
        row_sums = _unpacked(row.sums)
        for (first_minute, *minute_values), next_sums in zip(
            row_sums, [*row_sums[1:], [row.last + 1]], strict=True
        ):
            segment_start, segment_end = (
                max(first_minute, since_minute),
                min(next_sums[0], until_minute),
            )
            has_readings = isinstance(minute_values[-1], list)
            counts = minute_values[:-1] if has_readings else minute_values
            while segment_start < segment_end:
                point_index = (segment_start - since_minute) // step_minutes
                point_end = min(segment_end, since_minute + (point_index + 1) * step_minutes)
                _add_weighted_minutes(
                    totals_by_point.setdefault(point_index, [0.0] * (1 + len(SUMS))),
                    counts,
                    point_end - segment_start,
                )
                if has_readings:
                    readings_by_point.setdefault(point_index, []).append(
                        (point_end - segment_start, minute_values[-1])
                    )
                segment_start = point_end
    return [
        _history_point(since_minute + point_index * step_minutes, totals)._replace(
            measured=_joined_readings(readings_by_point.get(point_index, []))
        )
        for point_index, totals in sorted(totals_by_point.items())
    ]


def _kept_topics_and_sums(snapshot: Snapshot) -> tuple[dict[str, dict[str, Any]], list[Any]]:
    """Return what is kept of a snapshot, and its line of sums without the minute."""
    topics, sums = minute(snapshot)
    readings = measured(snapshot)
    return topics, sums if readings is None else [*sums, readings]


def _joined_readings(readings: list[tuple[int, list[float | None]]]) -> MeasuredSums | None:
    """Join what was measured, each for so many minutes."""
    if not readings:
        return None
    joined_values: list[float | None] = []
    for field_index, field_name in enumerate(MeasuredSums._fields):
        timed_values = [(minutes, reading[field_index]) for minutes, reading in readings]
        known_numbers = [(minutes, value) for minutes, value in timed_values if value is not None]
        if not known_numbers:
            joined_values.append(None)
        elif field_name in ("hottest", "errors"):
            joined_values.append(max(value for _, value in known_numbers))
        else:
            weighted_total = sum(minutes * value for minutes, value in known_numbers)
            joined_values.append(
                round(weighted_total / sum(minutes for minutes, _ in known_numbers), 1)
            )
    return MeasuredSums(*joined_values)


def _add_weighted_minutes(totals: list[float], minute_values: list[int], minutes: int) -> None:
    """Add values, weighted by minutes; of the counts of faults, keep the maximum."""
    totals[0] += minutes
    totals.extend([0.0] * (1 + len(minute_values) - len(totals)))
    for value_index, value in enumerate(minute_values):
        old_total, keeps_maximum = totals[value_index + 1], 3 <= value_index < len(SUMS)
        totals[value_index + 1] = (
            max(old_total, value) if keeps_maximum else old_total + value * minutes
        )


def _history_point(minute_number: int, totals: list[float]) -> Point:
    minutes, used, free, waiting, down, failed, *fits = totals
    used, free, waiting, *fits = (
        round(total / minutes, 2) for total in (used, free, waiting, *fits)
    )
    return Point(minute_number * 60, used, free, waiting, int(down), int(failed), fits)


def _packed(version: int, content: Any) -> bytes:
    return zlib.compress(_encode([version, content]), 6)


def _unpacked(packed: bytes) -> Any:
    """Return the decoded value.

    Raises wire.Unavailable for damaged data and a newer Podwright's.
    """
    try:
        version, content = msgspec.json.decode(zlib.decompress(packed))
    except (zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise Unavailable(f"this part of the history is damaged ({error})") from None
    if version not in (_ROW_VERSION, _MEASURED_SUMS_VERSION):
        raise Unavailable("this part of the history was written by a newer Podwright")
    return content
