"""Where a store is, in one word: a path, `sqlite:///path`, `postgresql://…`, or the scheme of a
store that another package adds."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from podwright import plugins
from podwright.errors import InvalidRequest
from podwright.store._postgres import PostgresStore
from podwright.store._postgres_schema import has_password, shown
from podwright.store._protocol import Store
from podwright.store._sqlite import SQLiteStore

_POSTGRES = ("postgresql", "postgres")


def open_store(place: str | Path, *, owner: str = "", ttl: float = 0.0) -> Store:
    """The store of a place; it is not opened yet.

    owner, ttl: for a store that several servers share; see PostgresStore.
    Raises wire.InvalidRequest for a place that is none.
    """
    file = storage_file(place)
    if file is not None:
        return SQLiteStore(file)
    scheme = str(place).partition("://")[0]
    if scheme not in _POSTGRES:
        added: Store = plugins.load_function(plugins.STORES, scheme)(str(place))
        return added
    return PostgresStore(str(place), owner=owner, ttl=ttl)


def storage_file(place: str | Path) -> Path | None:
    """The file of a place, or None for a database. Raises wire.InvalidRequest.

    `sqlite:///var/lib/x.db` is the file /var/lib/x.db: what follows the two slashes is the path.
    """
    if isinstance(place, Path):
        return place
    scheme, mark, rest = place.partition("://")
    if not mark:
        return Path(place)
    if scheme in _POSTGRES or scheme in plugins.names(plugins.STORES):
        return None
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return Path("/" + unquote(urlsplit(place).path).lstrip("/"))
    added = "".join(f", or {name}://" for name in plugins.names(plugins.STORES))
    raise InvalidRequest(
        f"{shown_place(place)!r} is no place for a store",
        would_work=f"a path, sqlite:///path, or postgresql://user@host/database{added}",
    )


def shown_place(place: str | Path) -> str:
    """The place as messages may show it: without password."""
    return shown(str(place)) if "://" in str(place) else str(place)


def shows_password(place: str | Path) -> bool:
    """Does the place carry a password? Then it must not stand in an argument list."""
    return "://" in str(place) and has_password(str(place))
