"""The history beside the records is written whole or not at all, and stays within its limit."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import Unavailable
from podwright.store import History, MemoryHistory, Row, SQLiteHistory, SQLiteStore

MOST = 1_000_000


@pytest.fixture(params=["memory", "sqlite"])
async def history(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[History]:
    if request.param == "memory":
        yield MemoryHistory()
    else:
        yield SQLiteHistory(tmp_path / "state.db-history")


async def write(history: History, *rows: Row, since: int = 0, most: int = MOST) -> None:
    for row in rows:
        await history.write(row, since=since, most=most, epoch=1)


async def test_a_row_is_found_by_each_minute_that_it_tells_of(history: History) -> None:
    assert await history.at(5) is None
    assert await history.sums(0, 10) == []
    await write(history, Row(3, 5, b"s", b"one"), Row(8, 9, b"t", b"two"))
    assert [row and row.body for row in [await history.at(m) for m in range(2, 11)]] == [
        *(None, b"one", b"one", b"one", None, None, b"two", b"two", None)
    ]
    assert [row.sums for row in await history.sums(5, 8)] == [b"s", b"t"]
    assert [row.start for row in await history.sums(6, 7)] == []
    assert all(row.body == b"" for row in await history.sums(0, 10))


async def test_a_row_grows_in_its_place_and_its_end_moves_alone(history: History) -> None:
    await write(history, Row(3, 3, b"s", b"one"), Row(3, 4, b"st", b"more"))
    await write(history, Row(3, 7, b"", b""))
    assert await history.at(7) == Row(3, 7, b"st", b"more")
    await write(history, Row(4, 9, b"", b""))
    assert await history.at(9) is None


async def test_the_oldest_go_by_age_and_by_size(history: History) -> None:
    await write(history, *(Row(m, m, b"", b"x" * 100) for m in range(10)))
    await write(history, Row(10, 10, b"", b"x" * 100), since=4)
    assert [row.start for row in await history.sums(0, 99)] == list(range(4, 11))
    await write(history, Row(11, 11, b"", b"x" * 100), most=350)
    assert [row.start for row in await history.sums(0, 99)] == [9, 10, 11]


async def test_a_file_is_private_and_no_part_of_the_store(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state.db")
    await store.open()
    await write(store.history(), Row(1, 1, b"s", b"b"))
    assert (tmp_path / "state.db-history").stat().st_mode & 0o777 == 0o600
    assert not (await store.read()).records
    await store.close()


async def test_a_write_that_is_cut_off_leaves_what_was(tmp_path: Path) -> None:
    class Dies(sqlite3.Connection):
        """Cannot commit."""

        def execute(self, text: str, values: Any = ()) -> sqlite3.Cursor:
            if text == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(text, values)

    path = tmp_path / "history"
    await write(SQLiteHistory(path), Row(1, 1, b"s", b"first"))
    dying = SQLiteHistory(path, connect=lambda *a, **k: sqlite3.connect(*a, factory=Dies, **k))
    with pytest.raises(Unavailable, match="disk I/O error"):
        await write(dying, Row(1, 2, b"s", b"second"))
    assert await SQLiteHistory(path).at(1) == Row(1, 1, b"s", b"first")


@pytest.mark.parametrize("what", ["folder", "damaged"])
async def test_what_cannot_be_had_is_said(tmp_path: Path, what: str) -> None:
    path = tmp_path / "history"
    if what == "folder":
        path = tmp_path / "none" / "history"
    else:
        path.write_bytes(b"no database at all, and long enough to be seen as one" * 100)
        with pytest.raises(Unavailable, match="may be removed"):
            await SQLiteHistory(path).at(1)
    with pytest.raises(Unavailable, match=str(path)):
        await write(SQLiteHistory(path), Row(1, 1, b"s", b"b"))
