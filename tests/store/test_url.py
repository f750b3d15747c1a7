"""The address of a store in one word, and the part of it that may be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.store import (
    PostgresStore,
    SQLiteStore,
    open_store,
    shown_place,
    shows_password,
    storage_file,
)


@pytest.mark.parametrize(
    ("place", "file"),
    [
        ("pod.db", "pod.db"),
        ("/var/lib/pod.db", "/var/lib/pod.db"),
        ("sqlite:///var/lib/pod.db", "/var/lib/pod.db"),
        ("sqlite:////var/lib/pod.db", "/var/lib/pod.db"),
        ("sqlite:///a%20b.db", "/a b.db"),
    ],
)
def test_a_file_is_a_file_however_it_is_written(place: str, file: str) -> None:
    assert storage_file(place) == Path(file)
    store = open_store(place)
    assert isinstance(store, SQLiteStore)
    assert store.path == Path(file)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_database_is_reached_by_its_url(scheme: str) -> None:
    store = open_store(f"{scheme}://me@db.example/pods")
    assert isinstance(store, PostgresStore)
    assert storage_file(f"{scheme}://me@db.example/pods") is None
    assert store.name == f"{scheme}://me@db.example/pods"


@pytest.mark.parametrize("place", ["mysql://x/y", "sqlite://", "sqlite:///", "sqlite://host"])
def test_a_store_that_is_no_place_is_refused(place: str) -> None:
    with pytest.raises(InvalidRequest, match=r"is not an address of a store\. Use a path"):
        open_store(place)


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("postgresql://me:secret@h:5432/d", "postgresql://me@h:5432/d"),
        ("postgresql://me:se%40c@h1,h2:1/d?target=x", "postgresql://me@h1,h2:1/d?target=x"),
        ("postgresql:///d?user=me&password=secret", "postgresql:///d?user=me"),
        ("postgresql:///d?host=/run/pg&sslpassword=s", "postgresql:///d?host=/run/pg"),
    ],
)
def test_a_password_is_never_shown(place: str, shown: str) -> None:
    assert shows_password(place)
    assert shown_place(place) == shown
    assert not shows_password(shown)


def test_a_path_is_shown_as_it_is() -> None:
    assert shown_place("/a:b@c") == "/a:b@c"
    assert not shows_password("/a:b@c")
