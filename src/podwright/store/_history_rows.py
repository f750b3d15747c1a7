"""The pod's history: rows of an hour or less. A row is replaced as a whole while it grows.

The history is kept apart from the records, which are read whole at each start and go into backups.
A history that cannot be written or read affects nothing else, so it has a file of its own, and each
call opens and closes that file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from podwright.errors import Unavailable

if TYPE_CHECKING:
    import sqlite3

_BUSY_TIMEOUT_S: Final = 5.0  #: seconds that a reader waits for the writer
_CREATE_TABLE_SQL: Final = (
    "CREATE TABLE IF NOT EXISTS history (start INTEGER PRIMARY KEY, last INTEGER NOT NULL,"
    " sums BLOB NOT NULL, body BLOB NOT NULL)"
)


class Row(NamedTuple):
    """One row.

    start, last: minutes since 1970, both included. sums, body: opaque bytes of the writer.
    """

    start: int
    last: int
    sums: bytes
    body: bytes


class History(Protocol):
    """Rows by their first minute.

    All methods raise wire.Unavailable where the history cannot be reached.
    """

    async def write(self, row: Row, *, since: int, most: int, epoch: int) -> None:
        """Write a row, in place of the one with the same start.

        A row without body only moves `last`.

        since: rows that ended before this minute are deleted. most: bytes of all rows; while they
        are more, the oldest is deleted. epoch: the store's; a shared history refuses an older one
        with wire.Fenced.
        """
        ...

    async def sums(self, since: int, until: int) -> list[Row]:
        """Return rows with some minute in since..until, oldest first, without their bodies."""
        ...

    async def at(self, minute: int) -> Row | None:
        """Return the whole row that contains a minute; None if nothing was written then."""
        ...


class MemoryHistory:
    """A `History` in memory, which is lost with the process."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}

    async def write(self, row: Row, *, since: int, most: int, epoch: int) -> None:
        """Keep a row; see History."""
        rows, existing_row = self._rows, self._rows.get(row.start)
        if row.body:
            rows[row.start] = row
        elif existing_row is not None:
            rows[row.start] = existing_row._replace(last=row.last)
        for row_start in sorted(rows):
            total_bytes = sum(len(row.sums) + len(row.body) for row in rows.values())
            if rows[row_start].last >= since and total_bytes <= most:
                break
            del rows[row_start]

    async def sums(self, since: int, until: int) -> list[Row]:
        """Return rows of a span; see History."""
        rows = (self._rows[row_start] for row_start in sorted(self._rows))
        return [row._replace(body=b"") for row in rows if row.last >= since and row.start <= until]

    async def at(self, minute: int) -> Row | None:
        """Return the row of a minute; see History."""
        latest_start = max(
            (row_start for row_start in self._rows if row_start <= minute), default=None
        )
        return (
            None
            if latest_start is None or self._rows[latest_start].last < minute
            else self._rows[latest_start]
        )


class SQLiteHistory:
    """A `History` in a file, private to its owner. connect: a replacement for sqlite3.connect."""

    def __init__(
        self, path: Path, *, connect: Callable[..., sqlite3.Connection] | None = None
    ) -> None:
        self.path = path
        self._connect = connect

    async def write(self, row: Row, *, since: int, most: int, epoch: int) -> None:
        """Write a row; see History."""
        await asyncio.to_thread(self._write, row, since, most)

    async def sums(self, since: int, until: int) -> list[Row]:
        """Return rows of a span; see History."""
        return await asyncio.to_thread(self._sums, since, until)

    async def at(self, minute: int) -> Row | None:
        """Return the row of a minute; see History."""
        return await asyncio.to_thread(self._at, minute)

    def _write(self, row: Row, oldest_minute: int, max_bytes: int) -> None:
        with self._opened() as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute(_CREATE_TABLE_SQL)
            if row.body:
                db.execute("INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?)", row)
            else:
                db.execute("UPDATE history SET last = ? WHERE start = ?", (row.last, row.start))
            db.execute("DELETE FROM history WHERE last < ?", (oldest_minute,))
            sizes_query = (
                "SELECT start, length(sums) + length(body) FROM history ORDER BY start DESC"
            )
            total_bytes = 0
            for row_start, row_bytes in db.execute(sizes_query).fetchall():
                total_bytes += row_bytes
                if total_bytes > max_bytes:
                    db.execute("DELETE FROM history WHERE start <= ?", (row_start,))
                    break
            db.execute("COMMIT")

    def _sums(self, first_minute: int, last_minute: int) -> list[Row]:
        if not self.path.exists():
            return []
        with self._opened() as db:
            db.execute(_CREATE_TABLE_SQL)
            rows = db.execute(
                "SELECT start, last, sums, x'' FROM history WHERE last >= ? AND start <= ?"
                " ORDER BY start",
                (first_minute, last_minute),
            )
            return [Row(*row) for row in rows]

    def _at(self, minute: int) -> Row | None:
        if not self.path.exists():
            return None
        with self._opened() as db:
            db.execute(_CREATE_TABLE_SQL)
            row = db.execute(
                "SELECT start, last, sums, body FROM history WHERE start <= ?"
                " ORDER BY start DESC LIMIT 1",
                (minute,),
            ).fetchone()
        return None if row is None or row[1] < minute else Row(*row)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        import sqlite3

        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            db = (self._connect or sqlite3.connect)(
                self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None
            )
            try:
                yield db
            finally:
                db.close()
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(
                f"the history {self.path} cannot be had: {error}",
                would_work="see that its disk can be written; a damaged file may be removed",
            ) from error
