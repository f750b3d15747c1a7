"""The ways in which the memory store can be told to fail."""

from __future__ import annotations

import pytest

from podwright.errors import Internal, Unavailable
from podwright.store import MemoryStore, Put


def put(key: str) -> list[Put]:
    return [Put("a", key, b"1"), Put("b", key, b"1")]


async def kept(store: MemoryStore) -> set[str]:
    return {key for _, key in (await store.reopened().open()).records}


async def test_the_nth_commit_fails_before_it_is_durable() -> None:
    store = MemoryStore()
    await store.open()
    store.fail(2)
    await store.commit(put("1"))
    with pytest.raises(Unavailable):
        await store.commit(put("2"))
    await store.commit(put("3"))
    assert await kept(store) == {"1", "3"}
    assert store.commits == 2


async def test_the_answer_gets_lost_after_it_is_durable() -> None:
    store = MemoryStore()
    await store.open()
    store.fail(durable=True, error=Internal("as asked"))
    with pytest.raises(Internal, match="as asked"):
        await store.commit(put("1"))
    await store.commit(put("2"))
    assert await kept(store) == {"1", "2"}


@pytest.mark.parametrize(("durable", "left"), [(False, {"1"}), (True, {"1", "2"})])
async def test_a_store_whose_failure_lasts_refuses_everything(
    durable: bool, left: set[str]
) -> None:
    store = MemoryStore()
    await store.open()
    store.fail(2, durable=durable, lasting=True)
    await store.commit(put("1"))
    for key in ("2", "3", "4"):
        with pytest.raises(Unavailable):
            await store.commit(put(key))
    assert await kept(store) == left
