"""The history in PostgreSQL: as every other, and of the active server alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from podwright.errors import Fenced, Unavailable
from podwright.store import History, PostgresStore, Row
from tests.outer.postgres import Postgres
from tests.store.test_history import (
    test_a_row_grows_in_its_place_and_its_end_moves_alone as test_grows,
)
from tests.store.test_history import (
    test_a_row_is_found_by_each_minute_that_it_tells_of as test_is_found,
)
from tests.store.test_history import test_the_oldest_go_by_age_and_by_size as test_the_oldest_go

__all__ = ["test_grows", "test_is_found", "test_the_oldest_go"]
pytestmark = pytest.mark.outer


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.url()


@pytest.fixture
async def history(url: str) -> AsyncIterator[History]:
    store = PostgresStore(url)
    await store.open()
    yield store.history()
    await store.close()


async def test_only_the_active_server_writes(url: str) -> None:
    first, second = PostgresStore(url), PostgresStore(url)
    old = (await first.open()).epoch
    await first.history().write(Row(1, 1, b"s", b"b"), since=0, most=100, epoch=old)
    new = (await second.open()).epoch
    for row in (Row(1, 2, b"s", b"late"), Row(1, 3, b"", b"")):
        with pytest.raises(Fenced):
            await first.history().write(row, since=0, most=100, epoch=old)
    await second.history().write(Row(1, 4, b"", b""), since=0, most=100, epoch=new)
    assert await first.history().at(4) == Row(1, 4, b"s", b"b"), "both read the same"
    assert not (await second.read()).records
    await first.close()
    await second.close()


async def test_a_database_that_is_gone_is_said() -> None:
    history = PostgresStore("postgresql://nobody@127.0.0.1:1/none").history()
    with pytest.raises(Unavailable):
        await history.at(1)
