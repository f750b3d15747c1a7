"""How the PostgreSQL database is reached, made, brought up to date, and how its errors read.

Apart from the store itself, as with SQLite: this part changes with each version of the schema.
No message carries a password: the URL is shown without, and libpq's own words have none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from podwright.errors import InvalidRequest, PodwrightError, Unavailable

if TYPE_CHECKING:
    import psycopg

_log = logging.getLogger("podwright.store")

#: Statements that lead from version i to i+1. Append; never edit.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE podwright.server (only_one boolean PRIMARY KEY CHECK (only_one),"
        " epoch bigint NOT NULL, time double precision NOT NULL, owner text NOT NULL,"
        " deadline double precision NOT NULL)",
        "INSERT INTO podwright.server VALUES (true, 0, 0.0, '', 0.0)",
        'CREATE TABLE podwright.records (kind text COLLATE "C" NOT NULL,'
        ' key text COLLATE "C" NOT NULL, body bytea NOT NULL, PRIMARY KEY (kind, key))',
    ),
)

#: Two servers that start at once must not both make the schema: "Podw" as a lock's number.
_LOCK = 0x506F6477
#: Given to libpq unless the URL says otherwise: a peer that is gone is noticed within seconds.
_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "3",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    "application_name": "vipu-server",
}
#: A connection that is lost, in the class names of SQLSTATE: 08 connection, 57P admin shutdown.
_LOST = ("08", "57P")


def shown(url: str) -> str:
    """The URL as messages may show it: without password. Raises wire.InvalidRequest."""
    try:
        parts = urlsplit(url)
        query = urlencode(
            [(k, v) for k, v in parse_qsl(parts.query) if "password" not in k.lower()], safe="/,"
        )
    except ValueError:
        raise InvalidRequest(
            "the URL of the store is not one", would_work="postgresql://user@host/database"
        ) from None
    login, at, host = parts.netloc.rpartition("@")
    user = login.partition(":")[0]
    return f"{parts.scheme}://{user}{at}{host}{parts.path}{'?' if query else ''}{query}"


def has_password(url: str) -> bool:
    """Does the URL carry a password?"""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return ":" in login or any("password" in key.lower() for key, _ in parse_qsl(parts.query))


def connect(url: str) -> psycopg.Connection[Any]:
    """A connection in autocommit mode. Raises wire.Unavailable."""
    name = shown(url)
    try:
        import psycopg
    except ImportError:
        raise Unavailable(
            "this installation has no PostgreSQL client",
            asked=f"open the store {name}",
            would_work="pip install 'podwright[postgres]'",
        ) from None
    try:
        given = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise InvalidRequest(
            f"the store's URL {name} cannot be read ({_words(error)})",
            would_work="postgresql://user@host/database",
        ) from None
    try:
        # Only libpq knows the password; whatever fails below is told without the URL.
        db = psycopg.connect(url, autocommit=True, **{**_DEFAULTS, **_known(given)})
    except psycopg.Error as error:
        raise Unavailable(
            f"the store {name} cannot be opened: {_words(error)}",
            would_work="start the database, or see what it says in its log",
        ) from None
    try:
        with translated(name):
            db.execute("SET idle_in_transaction_session_timeout = '5s'")
            db.execute("SET default_transaction_isolation = 'read committed'")
            db.execute("SET statement_timeout = 0")
    except BaseException:
        db.close()
        raise
    return db


def _known(given: dict[str, Any]) -> dict[str, Any]:
    """Those of our defaults that the URL sets itself."""
    return {key: value for key, value in given.items() if key in _DEFAULTS}


def make_durable(db: psycopg.Connection[Any], name: str) -> None:
    """A commit that was answered must survive the database's machine, whatever its settings."""
    (mode,) = _one(db, "SHOW synchronous_commit")
    if mode in ("off", "local"):
        db.execute("SET synchronous_commit = on")
    (fsync,) = _one(db, "SHOW fsync")
    if fsync != "on":
        _log.warning("%s runs with fsync = off: a power cut may lose what was answered", name)


def exists(db: psycopg.Connection[Any]) -> bool:
    """Whether our tables are there."""
    return _one(db, "SELECT to_regclass('podwright.server') IS NOT NULL")[0] is True


def migrate(db: psycopg.Connection[Any], name: str) -> None:
    """Bring the schema to this version, inside the caller's transaction.

    Raises wire.Unavailable for another program's schema and for a newer Podwright's.
    """
    db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    version = check_version(db, name)
    if version == len(MIGRATIONS):
        return
    if not version:
        db.execute("CREATE SCHEMA IF NOT EXISTS podwright")
        db.execute("REVOKE ALL ON SCHEMA podwright FROM PUBLIC")
    for step in MIGRATIONS[version:]:
        for statement in step:
            db.execute(statement)
    db.execute(f"COMMENT ON SCHEMA podwright IS 'Podwright''s store, version {len(MIGRATIONS)}'")


def check_version(db: psycopg.Connection[Any], name: str) -> int:
    """The version of the schema, 0 where there is none. Raises as `migrate` does."""
    row = db.execute(
        "SELECT obj_description(oid, 'pg_namespace'),"
        " (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid)"
        " FROM pg_namespace AS n WHERE nspname = 'podwright'"
    ).fetchone()
    words, tables = row or ("", 0)
    prefix, _, number = (words or "").rpartition(" ")
    ours = prefix == "Podwright's store, version" and number.isdecimal()
    if not ours and tables:
        raise Unavailable(
            f"the schema podwright in {name} is another program's",
            would_work="name a database of its own",
        )
    version = int(number) if ours else 0
    if version > len(MIGRATIONS):
        raise Unavailable(
            f"the store {name} was written by a newer Podwright (its version is {version}, "
            f"this one knows {len(MIGRATIONS)})",
            would_work="run the newer Podwright, or name another database",
        )
    return version


@contextmanager
def translated(name: str) -> Iterator[None]:
    """PostgreSQL's errors as refusals that name the database."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise _refusal(name, error) from error


def _refusal(name: str, error: psycopg.Error) -> PodwrightError:
    state = error.sqlstate or ""
    if state == "53100":
        return Unavailable(
            f"the disk of the store {name} is full",
            would_work="free some space, then try again",
            full=True,
        )
    if state == "42501":
        return Unavailable(
            f"the store {name} refuses this user ({_words(error)})",
            would_work="let the user own the database, or grant it CREATE there",
        )
    if not state or state.startswith(_LOST):
        return Unavailable(
            f"the connection to the store {name} was lost ({_words(error)})",
            would_work="start the server again when the database answers",
        )
    return Unavailable(f"the store {name} failed: {_words(error)}")


def nothing_written(error: BaseException, db: psycopg.Connection[Any] | None) -> bool:
    """Whether it is certain that the failed transaction left nothing behind.

    The database said so itself, by an error of its own over a connection that still stands.
    Where the connection was lost, the commit may have been done and its answer lost.
    """
    import psycopg

    cause = error.__cause__
    if not isinstance(cause, psycopg.Error):
        return isinstance(error, PodwrightError)
    state = cause.sqlstate or ""
    return bool(state) and not state.startswith(_LOST) and db is not None and not db.closed


def _one(db: psycopg.Connection[Any], statement: str) -> tuple[Any, ...]:
    row = db.execute(statement).fetchone()
    assert row is not None
    return tuple(row)


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")
