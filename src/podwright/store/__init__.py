"""Durable state behind the controller."""

from podwright.store._backup import (
    backup_text,
    read_backup,
    read_backup_file,
    restore,
    write_backup,
)
from podwright.store._history_rows import History, MemoryHistory, Row, SQLiteHistory
from podwright.store._memory import MemoryStore
from podwright.store._postgres import PostgresStore, Turn
from podwright.store._read_only import ReadOnlyStore
from podwright.store._sqlite import SQLiteStore
from podwright.store._store_interface import Change, Delete, Opened, Put, Snapshot, Store
from podwright.store._url import open_store, shown_place, shows_password, storage_file

__all__ = [
    "Change",
    "Delete",
    "History",
    "MemoryHistory",
    "MemoryStore",
    "Opened",
    "PostgresStore",
    "Put",
    "ReadOnlyStore",
    "Row",
    "SQLiteHistory",
    "SQLiteStore",
    "Snapshot",
    "Store",
    "Turn",
    "backup_text",
    "open_store",
    "read_backup",
    "read_backup_file",
    "restore",
    "shown_place",
    "shows_password",
    "storage_file",
    "write_backup",
]
