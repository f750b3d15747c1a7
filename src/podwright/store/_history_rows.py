"""What was, beside what is: rows of an hour or less, each replaced as a whole while it grows.

Not among the records: those are read whole at each start and go into backups. A history that
cannot be written or read hurts nothing else, so it has a file of its own, and each call opens and
closes it.
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
    """start, last: minutes since 1970 that it tells of, both included. sums, body: the writer's."""

    start: int
    last: int
    sums: bytes
    body: bytes


class History(Protocol):
    """Rows by their first minute. All raise wire.Unavailable where it cannot be had."""

    async def write(self, row: Row, *, since: int, most: int, epoch: int) -> None:
        """Put a row in the place of the one with its start; without sums and body: move its last.

        Rows that ended before the minute `since` go, and the oldest while all are more than `most`
        bytes. epoch: as the store's; a shared one refuses an older. Raises wire.Fenced.
        """
        ...

    async def sums(self, since: int, until: int) -> list[Row]:
        """Rows with some minute in since..until, oldest first, without their bodies."""
        ...

    async def at(self, minute: int) -> Row | None:
        """The row that tells of a minute, whole; None: nothing was written then."""
        ...


class MemoryHistory:
    """A `History` that is forgotten with the process."""

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
            size = sum(len(one.sums) + len(one.body) for one in rows.values())
            if rows[start].last >= since and size <= most:
                break
            del rows[start]

    async def sums(self, since: int, until: int) -> list[Row]:
        """Rows of a span; see History."""
        found = (self._rows[start] for start in sorted(self._rows))
        return [row._replace(body=b"") for row in found if row.last >= since and row.start <= until]

    async def at(self, minute: int) -> Row | None:
        """The row of a minute; see History."""
        found = max((start for start in self._rows if start <= minute), default=None)
        return None if found is None or self._rows[found].last < minute else self._rows[found]


class SQLiteHistory:
    """A `History` in a file, private to its owner. connect: like sqlite3.connect."""

    def __init__(
        self, path: Path, *, connect: Callable[..., sqlite3.Connection] | None = None
    ) -> None:
        self.path = path
        self._connect = connect

    async def write(self, row: Row, *, since: int, most: int, epoch: int) -> None:
        """Write a row; see History."""
        await asyncio.to_thread(self._write, row, since, most)

    async def sums(self, since: int, until: int) -> list[Row]:
        """Rows of a span; see History."""
        return await asyncio.to_thread(self._sums, since, until)

    async def at(self, minute: int) -> Row | None:
        """The row of a minute; see History."""
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
            kept = "SELECT start, length(sums) + length(body) FROM history ORDER BY start DESC"
            total = 0
            for start, size in db.execute(kept).fetchall():
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
            found = db.execute(
                "SELECT start, last, sums, x'' FROM history WHERE last >= ? AND start <= ?"
                " ORDER BY start",
                (since, until),
            )
            return [Row(*row) for row in found]

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
