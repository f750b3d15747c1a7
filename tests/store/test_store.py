"""What every store must do, whichever database is behind; each test runs on each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from podwright.errors import Fenced, Unavailable
from podwright.store import Delete, MemoryStore, Put, SQLiteStore, Store


class Clocks:
    """Time that stands still until told."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.monotonic = 50.0


#: Makes one more server's handle on the same records; closed at the end of the test.
Handle = Callable[[], Store]


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture(params=["memory", "sqlite"])
async def handle(
    request: pytest.FixtureRequest, tmp_path: Path, clocks: Clocks
) -> AsyncIterator[Handle]:
    memory = MemoryStore(wall=lambda: clocks.wall, monotonic=lambda: clocks.monotonic)
    async with AsyncExitStack() as stack:

        def make() -> Store:
            store: Store
            if request.param == "memory":
                store = memory.reopened()
            else:
                store = SQLiteStore(
                    tmp_path / "state.db",
                    wall=lambda: clocks.wall,
                    monotonic=lambda: clocks.monotonic,
                )
            close: Callable[[], Awaitable[None]] = store.close
            stack.push_async_callback(close)
            return store

        yield make


async def test_records_outlive_the_handle(handle: Handle) -> None:
    first = handle()
    opened = await first.open()
    assert opened.records == {}
    await first.commit([Put("partition", "p1", b'{"n":1}'), Put("lease", "p1", b"{}")])
    await first.commit([Put("partition", "p1", b'{"n":2}'), Delete("lease", "p1")])
    await first.close()
    again = await handle().open()
    assert again.records == {("partition", "p1"): b'{"n":2}'}
    assert again.epoch == opened.epoch + 1


async def test_the_last_change_of_a_record_counts(handle: Handle) -> None:
    store = handle()
    await store.open()
    await store.commit([Put("a", "x", b"1"), Delete("a", "x"), Put("a", "y", b"1")])
    await asyncio.gather(
        store.commit([Put("b", "x", b"1")]),
        store.commit([Put("b", "x", b"2"), Put("b", "y", b"2")]),
        store.commit([Delete("b", "y")]),
    )
    assert (await handle().open()).records == {("a", "y"): b"1", ("b", "x"): b"2"}


async def test_deleting_what_is_not_there_is_no_error(handle: Handle) -> None:
    store = handle()
    await store.open()
    await store.commit([Delete("partition", "none")])
    await store.commit([])
    assert (await handle().open()).records == {}


async def test_any_text_and_bytes_come_back(handle: Handle) -> None:
    store = handle()
    await store.open()
    await store.commit([Put("k'ä\n", 'key"; DROP TABLE records', bytes(range(256)))])
    assert (await handle().open()).records == {
        ("k'ä\n", 'key"; DROP TABLE records'): bytes(range(256))
    }


async def test_a_commit_may_have_many_changes(handle: Handle) -> None:
    store = handle()
    await store.open()
    await store.commit([Put("n", str(i), str(i).encode()) for i in range(1234)])
    await store.commit([Delete("n", str(i)) for i in range(0, 1234, 2)])
    left = (await handle().open()).records
    assert left == {("n", str(i)): str(i).encode() for i in range(1, 1234, 2)}


async def test_a_newer_server_fences_the_older(handle: Handle) -> None:
    old, new = handle(), handle()
    await old.open()
    await old.commit([Put("a", "x", b"old")])
    await new.open()
    with pytest.raises(Fenced, match="newer server"):
        await old.commit([Put("a", "x", b"too late"), Put("a", "y", b"too late")])
    await new.commit([Put("a", "z", b"new")])
    with pytest.raises(Fenced):
        await old.commit([Delete("a", "x")])
    assert (await handle().open()).records == {("a", "x"): b"old", ("a", "z"): b"new"}


async def test_one_handle_may_open_anew(handle: Handle) -> None:
    store = handle()
    first = await store.open()
    await store.commit([Put("a", "x", b"1")])
    again = await store.open()
    assert (again.epoch, again.records) == (first.epoch + 1, {("a", "x"): b"1"})
    await store.commit([Put("a", "y", b"1")])


async def test_a_store_that_is_not_open_refuses(handle: Handle) -> None:
    store = handle()
    with pytest.raises(Unavailable, match="not open"):
        await store.commit([])
    with pytest.raises(Unavailable, match="not open"):
        store.now()
    await store.open()
    await store.close()
    with pytest.raises(Unavailable, match="not open"):
        await store.commit([])
    with pytest.raises(Unavailable, match="not open"):
        store.now()


async def test_closing_finishes_what_is_under_way(handle: Handle) -> None:
    store = handle()
    await store.open()
    commits = [asyncio.ensure_future(store.commit([Put("a", str(i), b"1")])) for i in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(*commits)
    await store.close()
    assert len((await handle().open()).records) == 20


async def test_time_follows_the_monotonic_clock(handle: Handle, clocks: Clocks) -> None:
    store = handle()
    await store.open()
    assert store.now() == 1_000_000.0
    clocks.monotonic += 2.5
    clocks.wall -= 3600  # somebody sets the clock back: no lease lives longer for it
    assert store.now() == 1_000_002.5


async def test_time_never_falls_below_what_was_committed(handle: Handle, clocks: Clocks) -> None:
    store = handle()
    await store.open()
    clocks.monotonic += 100
    await store.commit([Put("a", "x", b"1")])
    await store.close()
    clocks.wall -= 3600
    clocks.monotonic = 7.0  # another boot
    later = handle()
    await later.open()
    assert later.now() == 1_000_100.0
    await later.close()
    clocks.wall += 2 * 3600
    latest = handle()
    await latest.open()
    assert latest.now() == 1_003_600.0


async def test_all_records_are_read_as_of_one_instant(handle: Handle) -> None:
    store = handle()
    opened = await store.open()
    await store.commit([Put("a", "x", b"1"), Put("a", "y", b"1")])
    seen, _ = await asyncio.gather(store.read(), store.commit([Put("a", "z", b"1")]))
    assert seen.epoch == opened.epoch
    assert seen.time == store.now()
    assert len(seen.records) in (2, 3)
    assert len((await store.read()).records) == 3


async def test_all_can_be_replaced_and_the_next_epoch_is_higher(handle: Handle) -> None:
    store = handle()
    opened = await store.open()
    await store.commit([Put("a", "old", b"1")])
    records = {("a", str(i)): bytes([i]) for i in range(250)} | {("b", "ä\n"): b""}
    await store.replace(records, epoch=opened.epoch + 40)
    with pytest.raises(Fenced):
        await store.commit([Put("a", "late", b"1")])
    again = await handle().open()
    assert again.records == records
    assert again.epoch == opened.epoch + 41


async def test_a_fenced_server_replaces_nothing(handle: Handle) -> None:
    old, new = handle(), handle()
    await old.open()
    await old.commit([Put("a", "x", b"1")])
    await new.open()
    with pytest.raises(Fenced):
        await old.replace({}, epoch=99)
    assert (await handle().open()).records == {("a", "x"): b"1"}


async def test_commits_count_transactions(handle: Handle) -> None:
    store = handle()
    await store.open()
    assert store.commits == 0
    await store.commit([Put("a", "x", b"1")])
    assert store.commits == 1
    await asyncio.gather(*(store.commit([Put("a", str(i), b"1")]) for i in range(30)))
    assert 2 <= store.commits <= 31
