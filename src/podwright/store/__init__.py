"""Durable state behind the controller."""

from ._backup import backup_text as backup_text
from ._backup import read_backup as read_backup
from ._backup import read_backup_file as read_backup_file
from ._backup import restore as restore
from ._backup import write_backup as write_backup
from ._history_rows import History as History
from ._history_rows import MemoryHistory as MemoryHistory
from ._history_rows import Row as Row
from ._history_rows import SQLiteHistory as SQLiteHistory
from ._memory import MemoryStore as MemoryStore
from ._postgres import PostgresStore as PostgresStore
from ._postgres import Turn as Turn
from ._read_only import ReadOnlyStore as ReadOnlyStore
from ._sqlite import SQLiteStore as SQLiteStore
from ._store_interface import Change as Change
from ._store_interface import Delete as Delete
from ._store_interface import Opened as Opened
from ._store_interface import Put as Put
from ._store_interface import Snapshot as Snapshot
from ._store_interface import Store as Store
from ._url import open_store as open_store
from ._url import shown_place as shown_place
from ._url import shows_password as shows_password
from ._url import storage_file as storage_file
