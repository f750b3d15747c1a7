"""The history of two servers that share a PostgreSQL database: a table beside the records."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from podwright.errors import Fenced, PodwrightError, Unavailable
from podwright.store import _postgres_schema as schema
from podwright.store._history_rows import Row

if TYPE_CHECKING:
    import psycopg

#: Made at the first write, so that an older Podwright still accepts the database.
_CREATE_TABLE_SQL: Final = (
    "CREATE TABLE IF NOT EXISTS podwright.history (start bigint PRIMARY KEY, last bigint NOT NULL,"
    " sums bytea NOT NULL, body bytea NOT NULL)"
)
_PUT_ROW_SQL: Final = """
INSERT INTO podwright.history
SELECT %(start)s::bigint, %(last)s::bigint, %(sums)s::bytea, %(body)s::bytea
FROM podwright.server WHERE epoch = %(epoch)s
ON CONFLICT (start) DO
UPDATE SET last = EXCLUDED.last, sums = EXCLUDED.sums, body = EXCLUDED.body
"""
_MOVE_LAST_SQL: Final = """
UPDATE podwright.history SET last = %(last)s
WHERE start = %(start)s AND EXISTS (SELECT 1 FROM podwright.server WHERE epoch = %(epoch)s)
"""
_DELETE_OLDEST_SQL: Final = """
DELETE FROM podwright.history WHERE last < %s OR start <= (
    SELECT max(start) FROM (
        SELECT start, sum(length(sums) + length(body)) OVER (ORDER BY start DESC) AS size
        FROM podwright.history) AS rows WHERE size > %s)
"""


class PostgresHistory:
    """A `History` in the schema `podwright`. url: the store's."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._table_made = False

    async def write(self, row: Row, *, since: int, most: int, epoch: int) -> None:
        """Write a row; see History."""
        await asyncio.to_thread(self._write, row, since, most, epoch)

    async def sums(self, since: int, until: int) -> list[Row]:
        """Return rows of a span; see History."""
        return await asyncio.to_thread(self._sums, since, until)

    async def at(self, minute: int) -> Row | None:
        """Return the row of a minute; see History."""
        return await asyncio.to_thread(self._read_row_at, minute)

    def _write(self, row: Row, oldest_minute: int, max_bytes: int, epoch: int) -> None:
        with self._open_database() as db:
            if not self._table_made:
                db.execute(_CREATE_TABLE_SQL)
            # Each statement is a transaction, so nothing stays open that a newer server would wait
            # for.
            put_result = db.execute(
                _PUT_ROW_SQL if row.body else _MOVE_LAST_SQL, {**row._asdict(), "epoch": epoch}
            )
            if not put_result.rowcount and not _is_epoch_current(db, epoch):
                raise Fenced(f"a newer server has opened the store since epoch {epoch}")
            db.execute(_DELETE_OLDEST_SQL, (oldest_minute, max_bytes))
        self._table_made = True

    def _sums(self, first_minute: int, last_minute: int) -> list[Row]:
        with self._open_database() as db:
            if not _table_exists(db):
                return []
            rows = db.execute(
                "SELECT start, last, sums, ''::bytea FROM podwright.history"
                " WHERE last >= %s AND start <= %s ORDER BY start",
                (first_minute, last_minute),
            )
            return [Row(*row) for row in rows]

    def _read_row_at(self, minute: int) -> Row | None:
        with self._open_database() as db:
            if not _table_exists(db):
                return None
            row = db.execute(
                "SELECT start, last, sums, body FROM podwright.history WHERE start <= %s"
                " ORDER BY start DESC LIMIT 1",
                (minute,),
            ).fetchone()
        return None if row is None or row[1] < minute else Row(*row)

    @contextlib.contextmanager
    def _open_database(self) -> Iterator[psycopg.Connection[Any]]:
        db = schema.connect(self._url)
        try:
            with schema.translated(schema.shown(self._url)):
                db.execute("SET statement_timeout = '10s'")
                db.execute("SET lock_timeout = '2s'")
                yield db
        except PodwrightError:
            raise
        except OSError as error:
            raise Unavailable(f"the history cannot be had: {error}") from error
        finally:
            db.close()


def _table_exists(db: psycopg.Connection[Any]) -> bool:
    row = db.execute("SELECT to_regclass('podwright.history') IS NOT NULL").fetchone()
    return row is not None and row[0] is True


def _is_epoch_current(db: psycopg.Connection[Any], epoch: int) -> bool:
    row = db.execute("SELECT epoch FROM podwright.server").fetchone()
    return row is not None and row[0] == epoch
