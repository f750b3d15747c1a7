"""Backup, check and restore by a command, beside a running server or without one.

A backup and a check read the store and claim nothing, so a server goes on meanwhile. A restore
needs the store for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podwright.controller import (
    Gravity,
    ServedClusters,
    StoreFault,
    damaged,
    find_faults,
    orphans,
    with_new_chains,
)
from podwright.errors import PodwrightError
from podwright.server._shared_store import LEASE_TTL_S, owner_name
from podwright.server._socket_lock import Lock, prepare_folder
from podwright.server.machines._served_hardware import (
    HARDWARE_RECORD_KEY,
    ClustersSource,
    recorded_clusters,
)
from podwright.store import (
    Delete,
    backup_text,
    open_store,
    read_backup_file,
    restore,
    shown_place,
    storage_file,
    write_backup,
)


async def back_up(storage: Path | str, backup_file: Path) -> int:
    """Write the store's content into a file.

    Return the number of records. Raises wire.PodwrightError.
    """
    snapshot = await open_store(storage).peek()
    write_backup(backup_file, backup_text(snapshot))
    return len(snapshot.records)


async def check(storage: Path | str) -> tuple[int, list[StoreFault]]:
    """Return the number of a store's records, and the inconsistent ones.

    Raises as `back_up` does.
    """
    snapshot = await open_store(storage).peek()
    return len(snapshot.records), _faults_of(snapshot.records, snapshot.epoch + 1)


def _faults_of(records: dict[tuple[str, str], bytes], epoch: int) -> list[StoreFault]:
    try:
        served = ServedClusters(recorded_clusters(records))
    except PodwrightError:  # a damaged record is among the faults
        served = ServedClusters(known=False)
    return find_faults(records, epoch, served, {HARDWARE_RECORD_KEY: ClustersSource})


async def repair(storage: Path | str) -> list[StoreFault]:
    """Remove the records that are set aside from a store that no server uses, and return them.

    Raises wire.Unavailable for a store that a server would refuse, and as `restore_from` does.
    """
    with _own_store(storage):
        store = open_store(storage, owner=owner_name("repair", 0), ttl=LEASE_TTL_S)
        opened = await store.open()
        try:
            faults = _faults_of(opened.records, opened.epoch)
            if refused := [fault for fault in faults if fault.gravity is Gravity.REFUSED]:
                raise damaged(refused, shown_place(storage))
            set_aside = orphans(faults)
            if set_aside:
                await store.commit([Delete(*name) for name in sorted(set_aside)])
        finally:
            await store.close()
    return [fault for fault in faults if (fault.kind, fault.key) in set_aside]


@contextmanager
def _own_store(storage: Path | str) -> Iterator[None]:
    """Keep every server away from a store that is a file. Raises wire.AlreadyExists."""
    store_file = storage_file(storage)
    if store_file is None:
        yield
        return
    prepare_folder(store_file.parent, folder_mode=0o700)
    lock = Lock(store_file, f"the store {store_file}", locks_inode=True)
    lock.take()
    try:
        yield
    finally:
        lock.release()


async def restore_from(storage: Path | str, backup_file: Path, *, replace: bool) -> int:
    """Put a backup into a store that no server uses. Return the number of records.

    replace: overwrite a store that is not empty. Raises wire.AlreadyExists when a server uses the
    store, and as store.restore does; the store is then unchanged.
    """
    backup = read_backup_file(backup_file)
    with _own_store(storage):
        store = open_store(storage, owner=owner_name("restore", 0), ttl=LEASE_TTL_S)
        rechained_backup = backup._replace(
            records=with_new_chains(backup.records, str(backup_file))
        )
        await restore(store, rechained_backup, replace=replace)
    return len(backup.records)


async def compare(storage: Path | str, backup_file: Path) -> tuple[int, int]:
    """Return the numbers of records of a backup and of the store. Nothing is changed.

    Raises wire.InvalidRequest for a file that could not be restored.
    """
    backup = read_backup_file(backup_file)
    store_file = storage_file(storage)
    if store_file is not None and not store_file.exists():
        return len(backup.records), 0
    return len(backup.records), len((await open_store(storage).peek()).records)
