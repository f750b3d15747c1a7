"""The store of two servers: a PostgreSQL database that both reach.

A lease in it decides who is active.

A commit is one statement that renews the lease, checks the epoch and writes. A server that hangs in
the middle of it therefore leaves no transaction open that another server would wait for, and a
server whose epoch is over writes nothing. Times are the database's, so that two machines whose
clocks differ agree on when a lease has run out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from podwright.errors import AlreadyExists, NotFound
from podwright.store import _postgres_schema as schema
from podwright.store._clock import Clock, Seconds
from podwright.store._group_commit import Final, GroupStore
from podwright.store._postgres_history import PostgresHistory
from podwright.store._store_interface import Opened, Snapshot

if TYPE_CHECKING:
    import psycopg

_log = logging.getLogger("podwright.store")

#: One transaction. Without a row of this server's epoch nothing is written.
_COMMIT_SQL = """
WITH ours AS (
    UPDATE podwright.server SET time = %(now)s,
        deadline = extract(epoch FROM clock_timestamp())::float8 + %(ttl)s
    WHERE epoch = %(epoch)s RETURNING 1
), puts AS (
    INSERT INTO podwright.records
    SELECT kind, key, body FROM ours,
        unnest(%(kinds)s::text[], %(keys)s::text[], %(bodies)s::bytea[]) AS new (kind, key, body)
    ON CONFLICT (kind, key) DO UPDATE SET body = EXCLUDED.body
), gone AS (
    DELETE FROM podwright.records AS old
    USING ours, unnest(%(gone_kinds)s::text[], %(gone_keys)s::text[]) AS gone (kind, key)
    WHERE old.kind = gone.kind AND old.key = gone.key
)
SELECT count(*) FROM ours
"""
_RENEW_LEASE_SQL = """
UPDATE podwright.server SET deadline = extract(epoch FROM clock_timestamp())::float8 + %s
WHERE epoch = %s
"""
#: The name of a standby's connection in PostgreSQL's list of connections.
_STANDBY_APPLICATION_NAME = "podwright-standby"
_COUNT = 5.0  #: seconds between two counts of standbys
_COUNT_STANDBYS_SQL = """
SELECT count(DISTINCT pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = %s
"""
_LEASE_SQL = """
SELECT epoch, time, owner, deadline - extract(epoch FROM clock_timestamp())::float8,
       extract(epoch FROM clock_timestamp())::float8
FROM podwright.server
"""


class Turn(NamedTuple):
    """The state of the lease. owner: who is or was active. left: seconds until the lease ends."""

    owner: str
    left: float


class PostgresStore(GroupStore):
    """A `Store` in a PostgreSQL database (15 or newer), in its schema `podwright`.

    url: `postgresql://…` as libpq reads it. owner: this server's name, which other servers show.
    ttl: seconds for which the lease lives after a commit or `renew`; 0: there is no lease, and
    `open` takes the store from any other server. wall: replaces the database's clock in tests.

    A server may believe in its lease only for as long as the database does. It therefore reads its
    own monotonic clock before it sends the statement that moves the lease's end, and counts the ttl
    from there: the database counts from a later instant.
    """

    def __init__(
        self,
        url: str,
        *,
        owner: str = "",
        ttl: float = 0.0,
        wall: Seconds | None = None,
        monotonic: Seconds = time.monotonic,
    ) -> None:
        super().__init__(schema.shown(url))
        self._url = url
        self._owner = owner
        self.ttl = ttl
        self._wall, self._monotonic = wall, monotonic
        self._db: psycopg.Connection[Any] | None = None
        self._watch: psycopg.Connection[Any] | None = None
        self._held_until = 0.0
        #: The number of servers that wait to take over, counted at a renewal; None: not known yet.
        self.standbys: int | None = None
        self._count_at = 0.0

    # -- the lease ---------------------------------------------------------------------------

    async def turn(self) -> Turn:
        """Return the state of the lease, without taking it. Raises wire.Unavailable.

        A standby calls it again and again, so its connection is kept until `open` or `close`.
        """
        import asyncio

        return await asyncio.to_thread(self._read_turn)

    async def renew(self) -> None:
        """Move the end of this server's lease to a full ttl from now. Raises as `commit` does."""
        await self._in_thread(lambda: self._checked(self._renew_lease))

    @property
    def lease_lives(self) -> bool:
        """Whether the lease still lives by this server's own clock, so that no other can be active.

        A server that hung for longer than the ttl learns from it that its lease is over.
        """
        return not self.ttl or self._monotonic() < self._held_until

    def _read_turn(self) -> Turn:
        try:
            if self._watch is None:
                self._watch = schema.connect(self._url)
                self._watch.execute(f"SET application_name = '{_STANDBY_APPLICATION_NAME}'")
            with schema.translated(self.name):
                if not schema.exists(self._watch):
                    return Turn("", 0.0)
                row = self._watch.execute(_LEASE_SQL).fetchone()
                assert row is not None
                return Turn(row[2], max(0.0, row[3]))
        except BaseException:
            self._stop_watching()
            raise

    def _stop_watching(self) -> None:
        connection, self._watch = self._watch, None
        if connection is not None:
            connection.close()

    def _renew_lease(self) -> bool:
        assert self._db is not None
        lease_end = self._monotonic() + self.ttl
        with schema.translated(self.name):
            is_ours = self._db.execute(_RENEW_LEASE_SQL, (self.ttl, self._epoch)).rowcount == 1
            if is_ours and self._monotonic() >= self._count_at:
                self._count_at = self._monotonic() + _COUNT
                row = self._db.execute(_COUNT_STANDBYS_SQL, (_STANDBY_APPLICATION_NAME,)).fetchone()
                self.standbys = row[0] if row else None
        if is_ours:
            self._held_until = lease_end
        return is_ours

    async def close(self) -> None:
        """Write the waiting commits, give the lease back, and close. A second call does nothing."""
        await super().close()
        self._stop_watching()

    # -- what GroupStore asks ----------------------------------------------------------------

    def _open_database(self) -> tuple[Opened, Clock]:
        db = schema.connect(self._url)
        try:
            with schema.translated(self.name):
                schema.make_durable(db, self.name)
                lease_end = self._monotonic() + self.ttl
                with db.transaction():
                    schema.migrate(db, self.name)
                    db.execute("SELECT 1 FROM podwright.server FOR UPDATE")
                    lease_row = db.execute(_LEASE_SQL).fetchone()
                    assert lease_row is not None
                    epoch, last_time, lease_owner, seconds_left, database_time = lease_row
                    if self.ttl and seconds_left > 0 and lease_owner != self._owner:
                        raise _taken_error(self.name, lease_owner, seconds_left)
                    opened_at = self._monotonic()

                    def wall() -> float:
                        return float(database_time) + self._monotonic() - opened_at

                    clock = Clock(self._wall or wall, self._monotonic, last_time)
                    db.execute(
                        "UPDATE podwright.server SET epoch = %s, time = %s, owner = %s,"
                        " deadline = extract(epoch FROM clock_timestamp())::float8 + %s",
                        (epoch + 1, clock.now(), self._owner, self.ttl),
                    )
                    records = _read_records(db)
        except BaseException:
            db.close()
            raise
        self._db, self._held_until = db, lease_end
        self._stop_watching()
        return Opened(epoch + 1, records), clock

    def _write(self, final_bodies: Final, now: float) -> bool:
        assert self._db is not None
        lease_end = self._monotonic() + self.ttl
        written_rows = [
            (*record_key, body) for record_key, body in final_bodies.items() if body is not None
        ]
        deleted_keys = [record_key for record_key, body in final_bodies.items() if body is None]
        with schema.translated(self.name):
            count_row = self._db.execute(
                _COMMIT_SQL,
                {
                    "now": now,
                    "ttl": self.ttl,
                    "epoch": self._epoch,
                    "kinds": [kind for kind, _, _ in written_rows],
                    "keys": [key for _, key, _ in written_rows],
                    "bodies": [body for _, _, body in written_rows],
                    "gone_kinds": [kind for kind, _ in deleted_keys],
                    "gone_keys": [key for _, key in deleted_keys],
                },
            ).fetchone()
        if count_row is None or count_row[0] != 1:
            return False
        self._held_until = lease_end
        return True

    def _replace(self, records: Mapping[tuple[str, str], bytes], epoch: int) -> bool:
        db = self._db
        assert db is not None
        with schema.translated(self.name), db.transaction():
            fence_result = db.execute(
                "UPDATE podwright.server SET epoch = greatest(epoch, %s), deadline = 0"
                " WHERE epoch = %s",
                (epoch, self._epoch),
            )
            if fence_result.rowcount != 1:
                return False
            db.execute("DELETE FROM podwright.records")
            with db.cursor().copy("COPY podwright.records FROM STDIN (FORMAT BINARY)") as copy_in:
                copy_in.set_types(["text", "text", "bytea"])
                for (kind, key), body in records.items():
                    copy_in.write_row((kind, key, body))
        return True

    def _read(self) -> Snapshot:
        assert self._db is not None
        with schema.translated(self.name):
            return _read_snapshot(self._db)

    def history(self) -> PostgresHistory:
        """Return the store's history: a table of the same database."""
        return PostgresHistory(self._url)

    async def peek(self) -> Snapshot:
        """Return what the database holds, without claiming it.

        A server that uses it is not disturbed.

        Raises wire.NotFound where there is no store yet, and wire.Unavailable.
        """
        import asyncio

        return await asyncio.to_thread(self._peek)

    def _peek(self) -> Snapshot:
        db = schema.connect(self._url)
        try:
            with schema.translated(self.name):
                if not schema.exists(db):
                    raise NotFound(f"there is no store in {self.name}")
                schema.check_version(db, self.name)
                return _read_snapshot(db)
        finally:
            db.close()

    def _nothing_written(self, error: BaseException) -> bool:
        return schema.nothing_written(error, self._db)

    def _close_database(self) -> None:
        db, self._db, self._held_until = self._db, None, 0.0
        if db is None:
            return
        import psycopg

        try:
            if self._broken is None:  # the next server need not wait for its end
                db.execute(
                    "UPDATE podwright.server SET deadline = 0 WHERE epoch = %s", (self._epoch,)
                )
        except psycopg.Error as error:
            _log.warning("the lease on %s could not be given back: %s", self.name, error)
        finally:
            db.close()


def _read_snapshot(db: psycopg.Connection[Any]) -> Snapshot:
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        row = db.execute("SELECT epoch, time FROM podwright.server").fetchone()
        assert row is not None
        return Snapshot(row[0], row[1], _read_records(db))


def _read_records(db: psycopg.Connection[Any]) -> dict[tuple[str, str], bytes]:
    with db.cursor(binary=True) as cursor:
        rows = cursor.execute("SELECT kind, key, body FROM podwright.records")
        return {(kind, key): body for kind, key, body in rows}


def _taken_error(store_name: str, owner: str, seconds_left: float) -> AlreadyExists:
    return AlreadyExists(
        f"another server{f' ({owner})' if owner else ''} is active on the store {store_name}",
        would_work="wait until it ends, or until its lease runs out",
        holder=owner,
        left=seconds_left,
    )
