"""What an administrator does once, before the first start: make a new store.

V-IPU's `vipu-server --init [--secure]` does the same (V-IPU administrator guide).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from podwright.controller import first_user
from podwright.errors import AlreadyExists
from podwright.server._shared_store import LEASE_TTL_S, owner_name
from podwright.server._socket_lock import prepare_folder
from podwright.store import Put, open_store, shown_place, storage_file

_RECORD_KIND, _RECORD_KEY = "server", "secure"


def is_secure(records: Mapping[tuple[str, str], bytes]) -> bool:
    """Return whether the store was made by `--init --secure`."""
    return (_RECORD_KIND, _RECORD_KEY) in records


async def make_store(storage_place: Path | str, user_name: str) -> str:
    """Make a new store.

    With a user's name it is a secure one, and the user's access key is returned.

    Raises wire.AlreadyExists when the store exists.
    """
    store_file = storage_file(storage_place)
    if store_file is not None:
        if store_file.exists():
            raise _store_exists_error(storage_place)
        prepare_folder(store_file.parent, folder_mode=0o700)
    store = open_store(storage_place, owner=owner_name("init", 0), ttl=LEASE_TTL_S)
    opened_store = await store.open()
    try:
        if opened_store.records or opened_store.epoch > 1:
            raise _store_exists_error(storage_place)
        if not user_name:
            return ""
        user_record, access_key = first_user(user_name, store.wall())
        await store.commit([Put(_RECORD_KIND, _RECORD_KEY, b"true"), user_record])
        return access_key
    finally:
        await store.close()


def _store_exists_error(storage_place: Path | str) -> AlreadyExists:
    return AlreadyExists(
        f"there is a store already: {shown_place(storage_place)}",
        operation="--init",
        would_work="give another --storage",
    )
