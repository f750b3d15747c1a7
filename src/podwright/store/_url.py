"""The place of a store in one word: a path, `sqlite:///path` or `postgresql://…`.

Another package may add a store with a scheme of its own.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from podwright.errors import InvalidRequest
from podwright.ground import plugins
from podwright.store._postgres import PostgresStore
from podwright.store._postgres_schema import has_password, shown
from podwright.store._sqlite import SQLiteStore
from podwright.store._store_interface import Store

_POSTGRES_SCHEMES = ("postgresql", "postgres")


def open_store(place: str | Path, *, owner: str = "", ttl: float = 0.0) -> Store:
    """Return the store of a place. It is not opened yet.

    owner, ttl: for a store that several servers share; see PostgresStore. Raises
    wire.InvalidRequest for a malformed place.
    """
    database_file = storage_file(place)
    if database_file is not None:
        return SQLiteStore(database_file)
    scheme = str(place).partition("://")[0]
    if scheme not in _POSTGRES_SCHEMES:
        plugin_store: Store = plugins.load_function(plugins.STORES, scheme)(str(place))
        return plugin_store
    return PostgresStore(str(place), owner=owner, ttl=ttl)


def storage_file(place: str | Path) -> Path | None:
    """Return the file of a place, or None for a database. Raises wire.InvalidRequest.

    `sqlite:///var/lib/x.db` is the file /var/lib/x.db: the path follows the two slashes.
    """
    if isinstance(place, Path):
        return place
    scheme, separator, path_text = place.partition("://")
    if not separator:
        return Path(place)
    if scheme in _POSTGRES_SCHEMES or scheme in plugins.names(plugins.STORES):
        return None
    if scheme == "sqlite" and path_text.startswith("/") and len(path_text) > 1:
        return Path("/" + unquote(urlsplit(place).path).lstrip("/"))
    plugin_schemes = "".join(
        f", or {plugin_scheme}://" for plugin_scheme in plugins.names(plugins.STORES)
    )
    raise InvalidRequest(
        f"{shown_place(place)!r} is not an address of a store",
        would_work=f"use a path, sqlite:///path, or postgresql://user@host/database{plugin_schemes}",
    )


def shown_place(place: str | Path) -> str:
    """Return the place for messages, without its password."""
    return shown(str(place)) if "://" in str(place) else str(place)


def shows_password(place: str | Path) -> bool:
    """Return whether the place carries a password. It must then not be in an argument list."""
    return "://" in str(place) and has_password(str(place))
