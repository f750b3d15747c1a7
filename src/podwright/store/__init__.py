"""Durable state behind the controller."""

from podwright.store._door import Change, Delete, Opened, Put, Snapshot, Store
from podwright.store._memory import MemoryStore
from podwright.store._sqlite import SQLiteStore

__all__ = ["Change", "Delete", "MemoryStore", "Opened", "Put", "SQLiteStore", "Snapshot", "Store"]
