"""How the SQLite file is made, recognised, brought up to date, and how its errors read.

Apart from the store itself, because this part changes with each version of the file and that
one does not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from podwright.errors import PodwrightError, Unavailable

if TYPE_CHECKING:
    import sqlite3

#: Marks the file as ours (PRAGMA application_id): "Podw".
APPLICATION = 0x506F6477

#: Statements that lead from version i to i+1 (PRAGMA user_version). Append; never edit.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE server (only INTEGER PRIMARY KEY CHECK (only = 1),"
        " epoch INTEGER NOT NULL, time REAL NOT NULL)",
        "INSERT INTO server VALUES (1, 0, 0.0)",
        "CREATE TABLE records (kind TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL,"
        " PRIMARY KEY (kind, key)) WITHOUT ROWID",
    ),
)

#: How long another process may hold the file before it counts as in use, in seconds.
_BUSY = 5.0


def connect(path: Path, opener: Callable[..., sqlite3.Connection] | None) -> sqlite3.Connection:
    """Open the file with the durability that the store's door promises.

    Raises wire.Unavailable.
    """
    import sqlite3

    try:
        _make_private(path)
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
            _check_ours(db, path)  # before anything changes the file
            # FULL: in WAL mode NORMAL would lose the latest commits with the power.
            db.execute("PRAGMA synchronous = FULL")
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise Unavailable(
                    f"the store {path} cannot keep a write-ahead log here (it offers {mode})",
                    would_work="name a file on a local disk",
                )
            db.execute("PRAGMA journal_size_limit = 4194304")
            (health,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if health != "ok":
                raise _damaged(path, health)
        except BaseException:
            db.close()
            raise
    return db


def _make_private(path: Path) -> None:
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True)
    _check_folder(path)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(handle)
        if found.st_mode & 0o022 or found.st_uid not in (os.geteuid(), 0):
            raise _untrusted(path, path, found)
        if found.st_mode & 0o077:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def _check_folder(path: Path) -> None:
    """Who may write into the folder can put another file in the store's place."""
    found = path.parent.stat()
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise _untrusted(path, path.parent, found)


def _untrusted(path: Path, what: Path, found: os.stat_result) -> Unavailable:
    who = "all" if found.st_mode & 0o002 else "its group" if found.st_mode & 0o020 else "its owner"
    return Unavailable(
        f"the store {path} cannot be trusted: {who} can write {what}",
        would_work=f"see that it is as it was, then: chmod go-w {what}"
        if found.st_mode & 0o022
        else f"see that it is as it was, then: chown {os.geteuid()} {what}",
    )


def _check_ours(db: sqlite3.Connection, path: Path) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION and (application or version or tables):
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


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the file to this version, inside the caller's transaction.

    Raises wire.Unavailable for another program's file and for a newer Podwright's.
    """
    _check_ours(db, path)  # again, now that nobody else can change it
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == len(MIGRATIONS):
        return
    for step in MIGRATIONS[version:]:
        for statement in step:
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as refusals that name the file."""
    import sqlite3

    try:
        yield
    except sqlite3.Error as error:
        raise _refusal(path, error) from error


def _refusal(path: Path, error: sqlite3.Error) -> PodwrightError:
    import sqlite3

    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return Unavailable(
            f"the disk of the store {path} is full",
            would_work="free some space, then try again",
            full=True,
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(
            f"the store {path} is in use by another process", would_work="end that process"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path, str(error))
    return Unavailable(f"the store {path} failed: {error}")


def _damaged(path: Path, why: str) -> PodwrightError:
    return Unavailable(
        f"the store {path} is damaged ({why})",
        would_work="restore it from a copy, or move it away to begin with nothing",
    )


def nothing_written(error: BaseException) -> bool:
    """Whether it is certain that the failed transaction left nothing behind.

    A full disk or a lock stops it before its commit record is written; after a failed sync
    the record may or may not be on the disk.
    """
    import sqlite3

    cause = error.__cause__
    if not isinstance(cause, sqlite3.Error):
        return isinstance(error, PodwrightError)  # fenced
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
