"""The store of a single server: one SQLite file, every commit on the disk before it returns.

One thread owns the database. Commits that wait at the same time share one transaction, so many
clients cost as many waits for the disk as one. Each transaction writes the server's time under
the condition that the epoch is still ours: that one statement is both fence and clock.

The journal is a WAL, which needs a local file system (sqlite.org/wal.html), not NFS.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podwright.store import _schema
from podwright.store._clock import Clock, Seconds
from podwright.store._door import Change, Opened, Put
from podwright.wire import Fenced, InvalidRequest, PodwrightError, Unavailable

if TYPE_CHECKING:
    import asyncio
    import sqlite3
    from concurrent.futures import ThreadPoolExecutor

#: Rows of one statement. Each statement gives up the interpreter lock once, and getting it back
#: from a busy event loop takes longer than the rows do.
_ROWS = 100

_Waiting = tuple[Sequence[Change], "asyncio.Future[None]"]


class SQLiteStore:
    """A `Store` in one file, private to its owner (0600; a folder that it makes is 0700).

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
        self.path = Path(path)
        self._wall, self._monotonic = wall, monotonic
        self._connect = connect
        self._clock: Clock | None = None
        self._epoch = 0
        self._commits = 0
        self._broken: PodwrightError | None = None
        self._waiting: deque[_Waiting] = deque()
        self._handing_over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._db: sqlite3.Connection | None = None

    async def open(self) -> Opened:
        """Claim the file, made when missing; see Store.

        Raises wire.Unavailable when it cannot be opened, is damaged, is not ours, or was written
        by a newer Podwright.
        """
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        await self.close()
        self._broken = None
        self._loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        try:
            opened = await self._loop.run_in_executor(thread, self._open)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        self._thread = thread
        return opened

    def _open(self) -> Opened:
        db = _schema.connect(self.path, self._connect)
        try:
            with _schema.translated(self.path):
                db.execute("BEGIN IMMEDIATE")
                _schema.migrate(db, self.path)
                (last,) = db.execute("SELECT time FROM server").fetchone()
                clock = Clock(self._wall, self._monotonic, last)
                db.execute("UPDATE server SET epoch = epoch + 1, time = ?", (clock.now(),))
                (epoch,) = db.execute("SELECT epoch FROM server").fetchone()
                rows = db.execute("SELECT kind, key, body FROM records").fetchall()
                db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        self._db, self._clock, self._epoch = db, clock, epoch
        return Opened(epoch, {(kind, key): body for kind, key, body in rows})

    async def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none, durably; see Store.

        A caller that is cancelled cannot tell whether they were applied: they mostly are.
        """
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            raise Unavailable(f"the store {self.path} is not open")
        group = tuple(changes)
        _check_text(group)  # here, so that it fails alone and not with its neighbours
        done = loop.create_future()
        self._waiting.append((group, done))
        if not self._handing_over:
            # Not at once: what other tasks commit in this turn of the loop goes with it.
            self._handing_over = True
            loop.call_soon(self._hand_over, thread)
        await done

    def _hand_over(self, thread: ThreadPoolExecutor) -> None:
        self._handing_over = False
        thread.submit(self._write_waiting)

    def _write_waiting(self) -> None:
        """In the store's thread: everything that waits, as one transaction."""
        group: list[_Waiting] = []
        while self._waiting:
            group.append(self._waiting.popleft())
        if not group:
            return  # an earlier turn took it
        final: dict[tuple[str, str], bytes | None] = {}
        for changes, _ in group:
            for change in changes:
                final[change.kind, change.key] = change.body if isinstance(change, Put) else None
        error: BaseException | None = None
        try:
            self._write(final)
        except BaseException as exception:  # whatever it is, the callers wait for it
            error = exception
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            self._loop.call_soon_threadsafe(_settle, group, error)

    def _write(self, final: Mapping[tuple[str, str], bytes | None]) -> None:
        if self._broken is not None:
            raise self._broken
        db, clock = self._db, self._clock
        assert db is not None
        assert clock is not None
        try:
            with _schema.translated(self.path):
                db.execute("BEGIN IMMEDIATE")
                ours = db.execute(
                    "UPDATE server SET time = ? WHERE epoch = ?", (clock.now(), self._epoch)
                )
                if ours.rowcount != 1:
                    raise Fenced(
                        f"a newer server has opened the store {self.path} since epoch {self._epoch}"
                    )
                _apply(db, final)
                db.execute("COMMIT")
        except BaseException as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            if not _schema.nothing_written(error):
                # What reached the disk shows only when the file is read anew.
                self._broken = Unavailable(
                    f"the store {self.path} failed before ({error})",
                    would_work="open it anew, which reads what reached the disk",
                )
            raise
        self._commits += 1

    def now(self) -> float:
        """The store's clock; see Store."""
        if self._clock is None:
            raise Unavailable(f"the store {self.path} is not open")
        return self._clock.now()

    async def close(self) -> None:
        """Finish what waits, then close the file. Closing twice is no error."""
        loop, thread, self._thread = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        thread.submit(self._write_waiting)
        await loop.run_in_executor(thread, self._close)
        thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = self._clock = None

    @property
    def commits(self) -> int:
        """Transactions so far."""
        return self._commits


def _check_text(changes: Sequence[Change]) -> None:
    try:
        for change in changes:
            change.kind.encode()
            change.key.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"the name {error.object!r} is not text", would_work="use letters, digits, - and _"
        ) from None


def _apply(db: sqlite3.Connection, final: Mapping[tuple[str, str], bytes | None]) -> None:
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


def _settle(group: list[_Waiting], error: BaseException | None) -> None:
    for _, done in group:
        if done.done():
            continue  # its caller was cancelled
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
