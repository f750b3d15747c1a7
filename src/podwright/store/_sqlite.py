"""The store of a single server: one SQLite file, every commit on the disk before it returns.

Each transaction writes the server's time under the condition that the epoch is still ours: that
one statement is both fence and clock. The journal is a WAL, which needs a local file system
(sqlite.org/wal.html), not NFS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podwright.store import _schema
from podwright.store._clock import Clock, Seconds
from podwright.store._door import Opened, Snapshot
from podwright.store._group import Final, GroupStore
from podwright.wire import NotFound

if TYPE_CHECKING:
    import sqlite3

#: Rows of one statement. Each statement gives up the interpreter lock once, and getting it back
#: from a busy event loop takes longer than the rows do.
_ROWS = 100


class SQLiteStore(GroupStore):
    """A `Store` in a file, private to its owner (0600; a folder that it makes is 0700).

    wall, monotonic: clocks, in seconds. connect: like sqlite3.connect, for faults in tests.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        wall: Seconds = time.time,
        monotonic: Seconds = time.monotonic,
        connect: Callable[..., sqlite3.Connection] | None = None,
    ) -> None:
        super().__init__(str(path))
        self.path = Path(path)
        self._wall, self._monotonic = wall, monotonic
        self._connect = connect
        self._db: sqlite3.Connection | None = None

    async def peek(self) -> Snapshot:
        """What the file holds, without claiming it: a server that uses it goes on.

        Raises wire.NotFound where there is no file, wire.Unavailable as `open` does.
        """
        import asyncio

        return await asyncio.to_thread(self._peek)

    def _peek(self) -> Snapshot:
        if not self.path.exists():
            raise NotFound(f"there is no store {self.path}", would_work="name one with --storage")
        db = _schema.connect(self.path, self._connect)
        try:
            with _schema.translated(self.path):
                return _snapshot(db)
        finally:
            db.close()

    def _open_database(self) -> tuple[Opened, Clock]:
        db = _schema.connect(self.path, self._connect)
        try:
            with _schema.translated(self.path):
                db.execute("BEGIN IMMEDIATE")
                _schema.migrate(db, self.path)
                (last,) = db.execute("SELECT time FROM server").fetchone()
                clock = Clock(self._wall, self._monotonic, last)
                db.execute("UPDATE server SET epoch = epoch + 1, time = ?", (clock.now(),))
                (epoch,) = db.execute("SELECT epoch FROM server").fetchone()
                records = _records(db)
                db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        self._db = db
        return Opened(epoch, records), clock

    def _write(self, final: Final, now: float) -> bool:
        return self._transaction(now, lambda db: _apply(db, final))

    def _replace(self, records: Mapping[tuple[str, str], bytes], epoch: int) -> bool:
        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM records")
            _apply(db, records)
            db.execute("UPDATE server SET epoch = max(epoch, ?)", (epoch,))

        return self._transaction(self.now(), work)

    def _read(self) -> Snapshot:
        assert self._db is not None
        with _schema.translated(self.path):
            return _snapshot(self._db)

    def _transaction(self, now: float, work: Callable[[sqlite3.Connection], None]) -> bool:
        db = self._db
        assert db is not None
        try:
            with _schema.translated(self.path):
                db.execute("BEGIN IMMEDIATE")
                ours = db.execute("UPDATE server SET time = ? WHERE epoch = ?", (now, self._epoch))
                if ours.rowcount != 1:
                    db.execute("ROLLBACK")
                    return False
                work(db)
                db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return True

    def _nothing_written(self, error: BaseException) -> bool:
        return _schema.nothing_written(error)

    def _close_database(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None


def _snapshot(db: sqlite3.Connection) -> Snapshot:
    db.execute("BEGIN")
    try:
        epoch, when = db.execute("SELECT epoch, time FROM server").fetchone()
        return Snapshot(epoch, when, _records(db))
    finally:
        db.execute("COMMIT")


def _records(db: sqlite3.Connection) -> dict[tuple[str, str], bytes]:
    rows = db.execute("SELECT kind, key, body FROM records")
    return {(kind, key): body for kind, key, body in rows}


def _apply(db: sqlite3.Connection, final: Final) -> None:
    puts = [(*record, body) for record, body in final.items() if body is not None]
    gone = [record for record, body in final.items() if body is None]
    for rows in _chunks(puts):
        marks = ",".join(["(?,?,?)"] * len(rows))
        db.execute(f"INSERT OR REPLACE INTO records VALUES {marks}", [v for r in rows for v in r])
    for rows in _chunks(gone):
        marks = ",".join(["(?,?)"] * len(rows))
        db.execute(
            f"DELETE FROM records WHERE (kind, key) IN (VALUES {marks})",
            [v for r in rows for v in r],
        )


def _chunks(rows: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]
