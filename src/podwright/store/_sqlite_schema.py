"""How the SQLite file is created, recognised and upgraded, and how its errors are reported.

It is a module apart from the store, because it changes with each version of the file and the store
does not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from podwright.errors import PodwrightError, Unavailable
from podwright.store._format import Format, after, check

if TYPE_CHECKING:
    import sqlite3

#: Marks the file as Podwright's (PRAGMA application_id): "Podw".
APPLICATION = 0x506F6477

#: The statements that lead from version i to i+1 (PRAGMA user_version). Append to them; never edit
#: them.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE server (only INTEGER PRIMARY KEY CHECK (only = 1),"
        " epoch INTEGER NOT NULL, time REAL NOT NULL)",
        "INSERT INTO server VALUES (1, 0, 0.0)",
        "CREATE TABLE records (kind TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL,"
        " PRIMARY KEY (kind, key)) WITHOUT ROWID",
    ),
    (  # for builds that know no format numbers: they refuse this version. See `_format`.
        "ALTER TABLE server ADD COLUMN format INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE server ADD COLUMN oldest_reader INTEGER NOT NULL DEFAULT 1",
    ),
)
#: The first version with the columns `format` and `oldest_reader`.
_FIRST_NUMBERED_VERSION = 2

#: SQLite's codes for a file beside the store that could not be created (CANTOPEN, IOERR). On a full
#: disk, that is the cause.
_NO_ROOM_CODES = (14, 10)

#: Seconds for which another process may hold the file before it counts as in use.
_BUSY = 5.0


def connect(
    path: Path, opener: Callable[..., sqlite3.Connection] | None, *, alone: bool = False
) -> sqlite3.Connection:
    """Open the file with the durability that the store's interface promises.

    alone: no other process uses the file. Then SQLite uses no shared memory, which would need room
    on the disk (sqlite.org/wal.html, section 8). Raises wire.Unavailable.
    """
    import sqlite3

    try:
        _make_private_file(path)
    except OSError as error:
        raise Unavailable(
            f"the store {path} cannot be opened: {error.strerror}",
            would_work="name a file in a folder that this user may write to",
        ) from error
    with translated(path):
        db = (opener or sqlite3.connect)(
            path, timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        try:
            if alone:
                db.execute("PRAGMA locking_mode = EXCLUSIVE")
            _check_own_database(db, path)  # before anything changes the file
            # With FULL a commit survives a power failure. In WAL mode, NORMAL would lose the
            # latest commits.
            db.execute("PRAGMA synchronous = FULL")
            (journal_mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            if journal_mode != "wal":
                raise Unavailable(
                    f"the store {path} cannot keep a write-ahead log here (it offers "
                    f"{journal_mode})",
                    would_work="name a file on a local disk",
                )
            db.execute("PRAGMA journal_size_limit = 4194304")
            (check_result,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if check_result != "ok":
                raise _damaged_error(path, check_result)
        except BaseException:
            db.close()
            raise
    return db


def _make_private_file(path: Path) -> None:
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True)
    _check_folder(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(descriptor)
        if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), 0):
            raise _untrusted_error(path, path, status)
        if status.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _check_folder(path: Path) -> None:
    """Refuse a folder that others may write into: they could replace the store by another file."""
    status = path.parent.stat()
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        raise _untrusted_error(path, path.parent, status)


def _untrusted_error(path: Path, writable_path: Path, file_status: os.stat_result) -> Unavailable:
    text = (
        "all"
        if file_status.st_mode & 0o002
        else "its group"
        if file_status.st_mode & 0o020
        else "its owner"
    )
    return Unavailable(
        f"the store {path} cannot be trusted: {text} can write {writable_path}",
        would_work=f"see that it is as it was, then: chmod go-w {writable_path}"
        if file_status.st_mode & 0o022
        else f"see that it is as it was, then: chown {os.geteuid()} {writable_path}",
    )


def _check_own_database(db: sqlite3.Connection, path: Path) -> None:
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (table_count,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application_id != APPLICATION and (application_id or version or table_count):
        raise Unavailable(
            f"the store {path} is another program's database",
            would_work="name a file of its own",
        )
    if version > len(MIGRATIONS):
        raise Unavailable(
            f"the store {path} was written by a newer Podwright (its version is {version}, "
            f"this one knows {len(MIGRATIONS)})",
            would_work="run the newer Podwright, or name another file",
        )
    if version >= _FIRST_NUMBERED_VERSION:
        check(stored_format(db), f"the store {path}")


def stored_format(db: sqlite3.Connection) -> Format:
    """Return the format numbers of a file whose tables have them."""
    row = db.execute("SELECT format, oldest_reader FROM server").fetchone()
    return Format() if row is None else Format(*row)


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Upgrade the file to this version, inside the caller's transaction.

    Raises wire.Unavailable for another program's file and for a newer Podwright's.
    """
    _check_own_database(db, path)  # checked again, now that no other process can change it
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version < len(MIGRATIONS):
        for migration in MIGRATIONS[version:]:
            for statement in migration:
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    db.execute("UPDATE server SET format = ?, oldest_reader = ?", after(stored_format(db)))


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into refusals that name the file."""
    import sqlite3

    try:
        yield
    except sqlite3.Error as error:
        raise _refusal_for(path, error) from error


def _refusal_for(path: Path, error: sqlite3.Error) -> PodwrightError:
    import sqlite3

    error_code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if error_code == sqlite3.SQLITE_FULL or (
        error_code in _NO_ROOM_CODES and _is_full(path.parent)
    ):
        return Unavailable(
            f"the disk of the store {path} is full",
            would_work="free some space, then try again",
            full=True,
        )
    if error_code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(
            f"the store {path} is in use by another process", would_work="end that process"
        )
    # SQLITE_ERROR: the statements are fixed, so a table or a column is not there.
    if error_code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return _damaged_error(path, str(error))
    return Unavailable(f"the store {path} failed: {error}")


def _is_full(folder: Path) -> bool:
    """Return whether the file system of a folder has no room left for this user."""
    try:
        return os.statvfs(folder).f_bavail == 0
    except OSError:
        return False


def _damaged_error(path: Path, reason: str) -> PodwrightError:
    return Unavailable(
        f"the store {path} is damaged ({reason})",
        would_work=f"move {path} away and restore a backup: vipu-server --storage {path} --restore "
        "FILE",
    )


def nothing_written(error: BaseException) -> bool:
    """Return whether it is certain that the failed transaction has written nothing.

    A full disk or a lock stops it before its commit record is written. After a failed sync, the
    record may or may not be on the disk.
    """
    import sqlite3

    cause = error.__cause__
    if not isinstance(cause, sqlite3.Error):
        return isinstance(error, PodwrightError)  # fenced
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
