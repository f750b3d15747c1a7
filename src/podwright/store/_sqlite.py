"""The store of a single server: one SQLite file, every commit on the disk before it returns.

Each transaction writes the server's time under the condition that the epoch is still this server's.
That write is both fence and clock. Most transactions are one statement, with fence, records and
commit in one: each statement gives up the interpreter lock several times, and waits to get it back
while the event loop is busy. The journal is a WAL, which needs a local file system
(sqlite.org/wal.html) and does not work on NFS.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podwright.errors import NotFound
from podwright.store import _sqlite_schema
from podwright.store._clock import Clock, Seconds
from podwright.store._group_commit import Final, GroupStore
from podwright.store._history_rows import SQLiteHistory
from podwright.store._store_interface import Opened, Snapshot

if TYPE_CHECKING:
    import sqlite3

#: A statement of SQL, and its values.
_SqlStatement = tuple[str, Sequence[Any]]
#: The most rows of one statement.
_ROWS_PER_STATEMENT = 100

#: Rows to be written are inserted into a view. Its triggers act on each row: a row without a kind
#: is the fence (epoch, time), and one without a body deletes its record. They live as long as the
#: connection.
_FENCE_TRIGGERS_SQL = (
    "CREATE TEMP VIEW change (kind, key, body) AS SELECT NULL, NULL, NULL",
    "CREATE TEMP TRIGGER fence INSTEAD OF INSERT ON change WHEN NEW.kind IS NULL BEGIN"
    " UPDATE server SET time = NEW.body WHERE epoch = NEW.key;"
    " SELECT RAISE(ROLLBACK, 'fenced') WHERE changes() = 0; END",
    "CREATE TEMP TRIGGER put INSTEAD OF INSERT ON change"
    " WHEN NEW.kind IS NOT NULL AND NEW.body IS NOT NULL BEGIN"
    " INSERT OR REPLACE INTO records VALUES (NEW.kind, NEW.key, NEW.body); END",
    "CREATE TEMP TRIGGER gone INSTEAD OF INSERT ON change WHEN NEW.body IS NULL BEGIN"
    " DELETE FROM records WHERE kind = NEW.kind AND key = NEW.key; END",
)


class SQLiteStore(GroupStore):
    """A `Store` in a file, private to its owner (0600; a folder that it makes is 0700).

    wall, monotonic: clocks, in seconds. connect: replaces sqlite3.connect, for faults in tests.
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

    def history(self) -> SQLiteHistory:
        """Return the store's history, in the file with the suffix `-history` beside this one."""
        return SQLiteHistory(self.path.with_name(f"{self.path.name}-history"))

    async def peek_alone(self) -> Snapshot:
        """Return what the file holds, for a process that knows that no other uses it.

        Unlike `peek`, it needs no room on the disk: the index of the write-ahead log is kept in
        memory. Raises as `peek` does.
        """
        import asyncio

        return await asyncio.to_thread(self._peek, alone=True)

    async def peek(self) -> Snapshot:
        """Return what the file holds, without claiming it. A server that uses it is not disturbed.

        Raises wire.NotFound where there is no file, and wire.Unavailable as `open` does.
        """
        import asyncio

        return await asyncio.to_thread(self._peek)

    def _peek(self, *, alone: bool = False) -> Snapshot:
        if not self.path.exists():
            raise NotFound(f"there is no store {self.path}", would_work="name one with --storage")
        db = _sqlite_schema.connect(self.path, self._connect, alone=alone)
        try:
            with _sqlite_schema.translated(self.path):
                if db.execute("PRAGMA user_version").fetchone() == (0,):
                    raise NotFound(
                        f"the file {self.path} is empty, so it is no store",
                        would_work="restore a backup; vipu-server would begin a new store in it",
                    )
                return _read_snapshot(db)
        finally:
            db.close()

    def _open_database(self) -> tuple[Opened, Clock]:
        db = _sqlite_schema.connect(self.path, self._connect)
        try:
            with _sqlite_schema.translated(self.path):
                db.execute("BEGIN IMMEDIATE")
                _sqlite_schema.migrate(db, self.path)
                (last_time,) = db.execute("SELECT time FROM server").fetchone()
                clock = Clock(self._wall, self._monotonic, last_time)
                db.execute("UPDATE server SET epoch = epoch + 1, time = ?", (clock.now(),))
                (epoch,) = db.execute("SELECT epoch FROM server").fetchone()
                records = _read_records(db)
                db.execute("COMMIT")
                for statement in _FENCE_TRIGGERS_SQL:
                    db.execute(statement)
        except BaseException:
            db.close()
            raise
        self._db = db
        return Opened(epoch, records), clock

    def _write(self, final_bodies: Final, now: float) -> bool:
        rows = [
            (None, self._epoch, now),
            *((*key, body) for key, body in final_bodies.items()),
        ]
        return self._run_transaction(_insert_statements(rows))

    def _replace(self, records: Mapping[tuple[str, str], bytes], epoch: int) -> bool:
        row = (None, self._epoch, self.now())
        return self._run_transaction(
            [
                *_insert_statements([row]),
                ("DELETE FROM records", ()),
                *_insert_statements([(*key, body) for key, body in records.items()]),
                ("UPDATE server SET epoch = max(epoch, ?)", (epoch,)),
            ]
        )

    def _read(self) -> Snapshot:
        assert self._db is not None
        with _sqlite_schema.translated(self.path):
            return _read_snapshot(self._db)

    def _run_transaction(self, statements: Sequence[_SqlStatement]) -> bool:
        import sqlite3

        db = self._db
        assert db is not None
        try:
            with _sqlite_schema.translated(self.path):
                try:
                    if len(statements) == 1:  # it commits itself
                        db.execute(*statements[0])
                    else:
                        db.execute("BEGIN IMMEDIATE")
                        for statement in statements:
                            db.execute(*statement)
                        db.execute("COMMIT")
                except sqlite3.IntegrityError as error:
                    if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
                        return False
                    raise
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return True

    def _nothing_written(self, error: BaseException) -> bool:
        return _sqlite_schema.nothing_written(error)

    def _close_database(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None


def _read_snapshot(db: sqlite3.Connection) -> Snapshot:
    db.execute("BEGIN")
    try:
        epoch, server_time = db.execute("SELECT epoch, time FROM server").fetchone()
        return Snapshot(epoch, server_time, _read_records(db))
    finally:
        db.execute("COMMIT")


def _read_records(db: sqlite3.Connection) -> dict[tuple[str, str], bytes]:
    rows = db.execute("SELECT kind, key, body FROM records")
    return {(sys.intern(kind), key): body for kind, key, body in rows}


def _insert_statements(change_rows: Sequence[tuple[Any, ...]]) -> list[_SqlStatement]:
    """Return the statements that insert these rows into the view `change`."""
    row_chunks = [
        change_rows[chunk_start : chunk_start + _ROWS_PER_STATEMENT]
        for chunk_start in range(0, len(change_rows), _ROWS_PER_STATEMENT)
    ]
    return [
        (_insert_sql(len(chunk)), [*itertools.chain.from_iterable(chunk)]) for chunk in row_chunks
    ]


@functools.cache
def _insert_sql(row_count: int) -> str:
    return "INSERT INTO change VALUES " + ",".join(["(?,?,?)"] * row_count)
