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

_BUSY: Final = 5.0  #: seconds that a reader waits for the writer
_TABLE: Final = (
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
        rows, old = self._rows, self._rows.get(row.start)
        if row.body:
            rows[row.start] = row
        elif old is not None:
            rows[row.start] = old._replace(last=row.last)
        for start in sorted(rows):
            size = sum(len(row.sums) + len(row.body) for row in rows.values())
            if rows[start].last >= since and size <= most:
                break
            del rows[start]

    async def sums(self, since: int, until: int) -> list[Row]:
        """Return rows of a span; see History."""
        rows = (self._rows[start] for start in sorted(self._rows))
        return [row._replace(body=b"") for row in rows if row.last >= since and row.start <= until]

    async def at(self, minute: int) -> Row | None:
        """Return the row of a minute; see History."""
        latest = max((start for start in self._rows if start <= minute), default=None)
        return None if latest is None or self._rows[latest].last < minute else self._rows[latest]


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

    def _write(self, row: Row, since: int, most: int) -> None:
        with self._opened() as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute(_TABLE)
            if row.body:
                db.execute("INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?)", row)
            else:
                db.execute("UPDATE history SET last = ? WHERE start = ?", (row.last, row.start))
            db.execute("DELETE FROM history WHERE last < ?", (since,))
            sizes = "SELECT start, length(sums) + length(body) FROM history ORDER BY start DESC"
            total = 0
            for start, size in db.execute(sizes).fetchall():
                total += size
                if total > most:
                    db.execute("DELETE FROM history WHERE start <= ?", (start,))
                    break
            db.execute("COMMIT")

    def _sums(self, since: int, until: int) -> list[Row]:
        if not self.path.exists():
            return []
        with self._opened() as db:
            db.execute(_TABLE)
            rows = db.execute(
                "SELECT start, last, sums, x'' FROM history WHERE last >= ? AND start <= ?"
                " ORDER BY start",
                (since, until),
            )
            return [Row(*row) for row in rows]

    def _at(self, minute: int) -> Row | None:
        if not self.path.exists():
            return None
        with self._opened() as db:
            db.execute(_TABLE)
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
            db = (self._connect or sqlite3.connect)(self.path, timeout=_BUSY, isolation_level=None)
            try:
                yield db
            finally:
                db.close()
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(
                f"the history {self.path} cannot be had: {error}",
                would_work="see that its disk can be written; a damaged file may be removed",
            ) from error
