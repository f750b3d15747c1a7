"""Backup and restore by the command, beside a running server or without one.

A backup looks at the store and claims nothing, so a server goes on meanwhile. A restore needs
the store for itself.
"""

from __future__ import annotations

from pathlib import Path

from podwright.server._shared_store import LEASE, owner_name
from podwright.server._sockets import Lock, prepare_folder
from podwright.store import (
    backup_text,
    open_store,
    read_backup_file,
    restore,
    storage_file,
    write_backup,
)


async def back_up(storage: Path | str, file: Path) -> int:
    """Write what a store holds into a file; how many records. Raises wire.PodwrightError."""
    snapshot = await open_store(storage).peek()
    write_backup(file, backup_text(snapshot))
    return len(snapshot.records)


async def restore_from(storage: Path | str, file: Path, *, replace: bool) -> int:
    """Put a backup into a store that no server uses; how many records.

    replace: although the store holds something. Raises wire.AlreadyExists when a server uses
    it, and as store.restore does; the store is then as it was.
    """
    backup = read_backup_file(file)
    path = storage_file(storage)
    lock = None
    if path is not None:
        prepare_folder(path.parent, mode=0o700)
        lock = Lock(path, f"the store {path}", inode=True)
        lock.take()
    try:
        store = open_store(storage, owner=owner_name("restore", 0), ttl=LEASE)
        await restore(store, backup, replace=replace)
    finally:
        if lock is not None:
            lock.release()
    return len(backup.records)


async def compare(storage: Path | str, file: Path) -> tuple[int, int]:
    """How many records a backup has, and how many the store; nothing is changed.

    Raises wire.InvalidRequest for a file that could not be restored.
    """
    backup = read_backup_file(file)
    path = storage_file(storage)
    if path is not None and not path.exists():
        return len(backup.records), 0
    return len(backup.records), len((await open_store(storage).peek()).records)
