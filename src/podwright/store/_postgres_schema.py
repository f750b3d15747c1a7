"""How the PostgreSQL database is reached, created and upgraded, and how its errors are reported.

It is a module apart from the store, as with SQLite, since it changes with each version of the
schema. No message carries a password: the URL is shown without it, and libpq's messages have none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.store._format import Format, after, check

if TYPE_CHECKING:
    import psycopg

_log = logging.getLogger("podwright.store")

#: The statements that lead from version i to i+1. Append to them; never edit them.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE podwright.server (only_one boolean PRIMARY KEY CHECK (only_one),"
        " epoch bigint NOT NULL, time double precision NOT NULL, owner text NOT NULL,"
        " deadline double precision NOT NULL)",
        "INSERT INTO podwright.server VALUES (true, 0, 0.0, '', 0.0)",
        'CREATE TABLE podwright.records (kind text COLLATE "C" NOT NULL,'
        ' key text COLLATE "C" NOT NULL, body bytea NOT NULL, PRIMARY KEY (kind, key))',
    ),
    (  # for builds that know no format numbers: they refuse this version. See `_format`.
        "ALTER TABLE podwright.server ADD COLUMN format integer NOT NULL DEFAULT 1",
        "ALTER TABLE podwright.server ADD COLUMN oldest_reader integer NOT NULL DEFAULT 1",
    ),
)
#: The first version with the columns `format` and `oldest_reader`.
_FIRST_NUMBERED_VERSION = 2

#: The number of an advisory lock ("Podw"): two servers that start at once must not both make the
#: schema.
_SCHEMA_LOCK_ID = 0x506F6477
#: Options for libpq that the URL does not set itself: they detect a lost peer within seconds.
_LIBPQ_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "3",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    "application_name": "vipu-server",
}
#: SQLSTATEs of a lost connection, by their beginning: 08 connection, 57P administrator's shutdown.
_LOST_SQLSTATES = ("08", "57P")


def shown(url: str) -> str:
    """Return the URL for messages, without its password. Raises wire.InvalidRequest."""
    try:
        url_parts = urlsplit(url)
        query = urlencode(
            [
                (parameter, parameter_value)
                for parameter, parameter_value in parse_qsl(url_parts.query)
                if "password" not in parameter.lower()
            ],
            safe="/,",
        )
    except ValueError:
        raise InvalidRequest(
            "the URL of the store is not one", would_work="postgresql://user@host/database"
        ) from None
    login, at_sign, host = url_parts.netloc.rpartition("@")
    user = login.partition(":")[0]
    return (
        f"{url_parts.scheme}://{user}{at_sign}{host}{url_parts.path}{'?' if query else ''}{query}"
    )


def has_password(url: str) -> bool:
    """Return whether the URL carries a password."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return ":" in login or any(
        "password" in parameter.lower() for parameter, _ in parse_qsl(parts.query)
    )


def connect(url: str) -> psycopg.Connection[Any]:
    """Return a connection in autocommit mode. Raises wire.Unavailable."""
    shown_url = shown(url)
    try:
        import psycopg
    except ImportError:
        from podwright.ground.pods_extra import install_command

        raise Unavailable(
            "this installation has no PostgreSQL client",
            operation=f"open the store {shown_url}",
            would_work=install_command(extra="postgres"),
        ) from None
    try:
        url_options = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise InvalidRequest(
            f"the store's URL {shown_url} cannot be read ({_error_text(error)})",
            would_work="postgresql://user@host/database",
        ) from None
    try:
        # Only libpq gets the password. Errors after this line are reported without the URL.
        db = psycopg.connect(
            url, autocommit=True, **{**_LIBPQ_DEFAULTS, **_defaults_in_url(url_options)}
        )
    except psycopg.Error as error:
        raise Unavailable(
            f"the store {shown_url} cannot be opened: {_error_text(error)}",
            would_work="start the database, or see what it says in its log",
        ) from None
    try:
        with translated(shown_url):
            db.execute("SET idle_in_transaction_session_timeout = '5s'")
            db.execute("SET default_transaction_isolation = 'read committed'")
            db.execute("SET statement_timeout = 0")
    except BaseException:
        db.close()
        raise
    return db


def _defaults_in_url(url_options: dict[str, Any]) -> dict[str, Any]:
    """Return those of the default options that the URL sets itself."""
    return {
        name: option_value for name, option_value in url_options.items() if name in _LIBPQ_DEFAULTS
    }


def make_durable(db: psycopg.Connection[Any], store_name: str) -> None:
    """Make an acknowledged commit survive a crash of the database's machine in any settings."""
    (mode,) = _single_row(db, "SHOW synchronous_commit")
    if mode in ("off", "local"):
        db.execute("SET synchronous_commit = on")
    (setting,) = _single_row(db, "SHOW fsync")
    if setting != "on":
        _log.warning("%s runs with fsync = off: a power cut may lose what was answered", store_name)


def exists(db: psycopg.Connection[Any]) -> bool:
    """Return whether the store's tables exist."""
    return _single_row(db, "SELECT to_regclass('podwright.server') IS NOT NULL")[0] is True


def migrate(db: psycopg.Connection[Any], store_name: str) -> None:
    """Upgrade the schema to this version, inside the caller's transaction.

    Raises wire.Unavailable for another program's schema and for a newer Podwright's.
    """
    db.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK_ID,))
    version = check_version(db, store_name)
    if not version:
        db.execute("CREATE SCHEMA IF NOT EXISTS podwright")
        db.execute("REVOKE ALL ON SCHEMA podwright FROM PUBLIC")
    if version < len(MIGRATIONS):
        for migration in MIGRATIONS[version:]:
            for statement in migration:
                db.execute(statement)
        schema_comment = f"Podwright''s store, version {len(MIGRATIONS)}"
        db.execute(f"COMMENT ON SCHEMA podwright IS '{schema_comment}'")
    format_numbers = after(stored_format(db))
    if format_numbers != stored_format(db):
        db.execute("UPDATE podwright.server SET format = %s, oldest_reader = %s", format_numbers)


def stored_format(db: psycopg.Connection[Any]) -> Format:
    """Return the format numbers of a schema whose tables have them."""
    return Format(*_single_row(db, "SELECT format, oldest_reader FROM podwright.server"))


def check_version(db: psycopg.Connection[Any], store_name: str) -> int:
    """Return the version of the schema; 0 if it does not exist. Raises as `migrate` does."""
    schema_row = db.execute(
        "SELECT obj_description(oid, 'pg_namespace'),"
        " (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid)"
        " FROM pg_namespace AS n WHERE nspname = 'podwright'"
    ).fetchone()
    schema_comment, table_count = schema_row or ("", 0)
    prefix, _, version_text = (schema_comment or "").rpartition(" ")
    is_ours = prefix == "Podwright's store, version" and version_text.isdecimal()
    if not is_ours and table_count:
        raise Unavailable(
            f"the schema podwright in {store_name} is another program's",
            would_work="name a database of its own",
        )
    version = int(version_text) if is_ours else 0
    if version > len(MIGRATIONS):
        raise Unavailable(
            f"the store {store_name} was written by a newer Podwright (its version is {version}, "
            f"this one knows {len(MIGRATIONS)})",
            would_work="run the newer Podwright, or name another database",
        )
    if version >= _FIRST_NUMBERED_VERSION:
        check(stored_format(db), f"the store {store_name}")
    return version


@contextmanager
def translated(store_name: str) -> Iterator[None]:
    """Turn PostgreSQL's errors into refusals that name the database."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise _refusal_for(store_name, error) from error


def _refusal_for(store_name: str, error: psycopg.Error) -> PodwrightError:
    sqlstate = error.sqlstate or ""
    if sqlstate == "53100":
        return Unavailable(
            f"the disk of the store {store_name} is full",
            would_work="free some space, then try again",
            full=True,
        )
    if sqlstate == "42501":
        return Unavailable(
            f"the store {store_name} refuses this user ({_error_text(error)})",
            would_work="let the user own the database, or grant it CREATE there",
        )
    if not sqlstate or sqlstate.startswith(_LOST_SQLSTATES):
        return Unavailable(
            f"the connection to the store {store_name} was lost ({_error_text(error)})",
            would_work="start the server again when the database answers",
        )
    return Unavailable(f"the store {store_name} failed: {_error_text(error)}")


def nothing_written(error: BaseException, db: psycopg.Connection[Any] | None) -> bool:
    """Return whether it is certain that the failed transaction has written nothing.

    That is so where the database itself reported the error, over a connection that still stands. If
    the connection was lost, the commit may have been carried out and its answer lost.
    """
    import psycopg

    cause = error.__cause__
    if not isinstance(cause, psycopg.Error):
        return isinstance(error, PodwrightError)
    sqlstate = cause.sqlstate or ""
    return (
        bool(sqlstate)
        and not sqlstate.startswith(_LOST_SQLSTATES)
        and db is not None
        and not db.closed
    )


def _single_row(db: psycopg.Connection[Any], statement: str) -> tuple[Any, ...]:
    row = db.execute(statement).fetchone()
    assert row is not None
    return tuple(row)


def _error_text(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")
