"""The past of a pod: what changed in each minute, after the pod as a whole now and then.

The store keeps rows. A row has the changes of its minutes, and names the row with the whole that
they follow. The whole is written anew once the changes since are as large as it was, at the latest
after a day in which something changed. So keeping the past costs what has changed, and a minute is
read from at most twice the bytes of a whole.

A row's sums have one line for each minute in which something changed: the minute, its sums, and,
where drivers measure something, a list of what they measured. Body and sums are compressed JSON
with a version. A body of version 1 begins with its own whole.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from podwright.errors import InvalidRequest, NotFound, Unavailable
from podwright.history._minute_snapshot import SUMS, MeasuredSums, applied, snapshot_of
from podwright.page import Changes
from podwright.store import History, Row

KEEP: Final = 30 * 24 * 60  #: in minutes
WHOLE_MINUTES: Final = 24 * 60  #: minutes after which the whole is written again
#: Minutes for which rows are kept: to tell the oldest minute takes the whole before it.
KEEP_ROWS: Final = KEEP + WHOLE_MINUTES
MOST: Final = 44_000_000  #: bytes of rows; the file with overhead stays below 50 MB
ROW_MINUTES: Final = 60  #: minutes of a row
ROW_BYTES: Final = 64_000  #: bytes of a row before compression, after which a new row begins
LEAST_CHANGES: Final = 500_000  #: bytes of changes after which the whole is written again, at least
POINTS: Final = 2000  #: the most points of one answer
_WHOLE_FIRST: Final = 1  #: the version of bodies that begin with a whole, and of sums
_MEASURED_SUMS_VERSION: Final = 2  #: the version of sums that have what drivers measured
_CHANGES_VERSION: Final = 3  #: the version of bodies that name the row with the whole
_encode = msgspec.json.Encoder().encode


class Writer:
    """Makes rows, one for each minute."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._sums: list[list[Any]] = []
        self._last: list[Any] = []
        self._start = self._size = 0
        self._whole_at = self._whole_size = self._changed_size = 0

    def wants_whole(self, minute: int) -> bool:
        """Whether the changes of a minute, if there are any, are to be the whole."""
        return (
            not self._last
            or self._changed_size > max(self._whole_size, LEAST_CHANGES)
            or minute - self._whole_at >= WHOLE_MINUTES
        )

    def whole(self, minute: int, parts: Sequence[bytes], sums: list[Any]) -> Row:
        """Return the row of a minute that has the whole, in parts of `encode_part`."""
        self._whole_at, self._whole_size = minute, sum(map(len, parts))
        self._changed_size, self._parts = 0, []
        self._last = sums
        return _row(minute, minute, minute, parts, [[minute, *sums]])

    def add(self, minute: int, changes: Changes, sums: list[Any]) -> Row:
        """Return the row that contains a minute, as far as it goes. changes: since the last one.

        Raises ValueError where no whole was written before.
        """
        if not self._last:
            raise ValueError("nothing was told yet")
        if not changes and sums == self._last:
            return Row(self._start if self._parts else self._whole_at, minute, b"", b"")
        if (
            not self._parts
            or minute // ROW_MINUTES != self._start // ROW_MINUTES
            or self._size > ROW_BYTES
        ):
            self._start, self._size, self._parts, self._sums = minute, 0, [], []
        encoded = encode_part(minute, changes)
        self._parts.append(encoded)
        self._sums.append([minute, *sums])
        self._size += len(encoded)
        self._changed_size += len(encoded)
        self._last = sums
        return _row(self._start, minute, self._whole_at, self._parts, self._sums)

    def forget(self) -> None:
        """Begin with a whole at the next minute, because the minutes in between are not known."""
        self._parts, self._last = [], []


def encode_part(minute: int, changes: Changes) -> bytes:
    """Return changes of a minute as a row holds them."""
    return _encode([minute, changes])


def _row(
    start: int, last: int, whole_at: int, parts: Iterable[bytes], sums: list[list[Any]]
) -> Row:
    body = b"[%d,[%d,[%s]]]" % (_CHANGES_VERSION, whole_at, b",".join(parts))
    version = (
        _MEASURED_SUMS_VERSION
        if any(isinstance(sum_row[-1], tuple) for sum_row in sums)
        else _WHOLE_FIRST
    )
    return Row(start, last, _packed(version, sums), zlib.compress(body, 6))


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

    async def at(self, when: int, *, own: str | None = None, domain: str = "") -> dict[str, Any]:
        """Return the pod at a minute since 1970, as `time` and `topics`. own, domain: as for
        `snapshot_of`.

        Raises NotFound and wire.Unavailable.
        """
        row = await self._history.at(when)
        if row is None:
            raise _not_known()
        rows = [row]
        if (whole_at := await asyncio.to_thread(_whole_at, row)) < row.start:
            earlier_rows = await self._history.sums(whole_at, row.start - 1)
            found = [await self._history.at(earlier.start) for earlier in earlier_rows]
            rows = [*(earlier for earlier in found if earlier is not None), row]
        topics = await asyncio.to_thread(_snapshot_at_minute, rows, whole_at, when, own, domain)
        return {"time": when * 60, "topics": topics}


def _not_known() -> NotFound:
    return NotFound(
        "nothing is known of that minute",
        would_work="choose one of the last 30 days at which the server ran",
    )


def _whole_at(row: Row) -> int:
    """Return the minute of the whole that a row follows."""
    version, content = _unpacked(row.body)
    return int(content[0]) if version == _CHANGES_VERSION else row.start


def _snapshot_at_minute(
    rows: Iterable[Row],
    whole_at: int,
    target_minute: int,
    restricted_user: str | None,
    domain: str,
) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    any_whole = False
    for row in rows:
        version, content = _unpacked(row.body)
        any_whole = any_whole or row.start == whole_at
        for minute, difference in content[1] if version == _CHANGES_VERSION else content:
            if minute <= target_minute:
                applied(topics, difference)
    if not any_whole:
        raise _not_known()  # the row with the whole was dropped
    return snapshot_of(topics, restricted_user=restricted_user, domain=domain)


def _history_points(
    rows: Iterable[Row], since_minute: int, until_minute: int, step_minutes: int
) -> list[Point]:
    totals_by_point: dict[int, list[float]] = {}
    readings_by_point: dict[int, list[tuple[int, list[float | None]]]] = {}
    for row in rows:
        _, row_sums = _unpacked(row.sums)
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
        _history_point(since_minute + index * step_minutes, totals)._replace(
            measured=_joined_readings(readings_by_point.get(index, []))
        )
        for index, totals in sorted(totals_by_point.items())
    ]


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
    for index, value in enumerate(minute_values):
        old_total, maximum = totals[index + 1], 3 <= index < len(SUMS)
        totals[index + 1] = max(old_total, value) if maximum else old_total + value * minutes


def _history_point(minute_number: int, totals: list[float]) -> Point:
    minutes, used, free, waiting, down, failed, *fits = totals
    used, free, waiting, *fits = (
        round(total / minutes, 2) for total in (used, free, waiting, *fits)
    )
    return Point(minute_number * 60, used, free, waiting, int(down), int(failed), fits)


def _packed(version: int, content: Any) -> bytes:
    return zlib.compress(_encode([version, content]), 6)


def _unpacked(packed: bytes) -> tuple[int, Any]:
    """Return the version and the decoded value.

    Raises wire.Unavailable for damaged data and a newer Podwright's.
    """
    try:
        version, content = msgspec.json.decode(zlib.decompress(packed))
    except (zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise Unavailable(f"this part of the history is damaged ({error})") from None
    if version not in (_WHOLE_FIRST, _MEASURED_SUMS_VERSION, _CHANGES_VERSION):
        raise Unavailable("this part of the history was written by a newer Podwright")
    return version, content
