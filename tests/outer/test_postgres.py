"""The second store: all that every store must do, and what only PostgreSQL can get wrong."""

# ruff: noqa: ASYNC110 (what is waited for happens in another process)

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import psycopg
import pytest

from podwright.errors import AlreadyExists, Fenced, InvalidRequest, Unavailable
from podwright.store import Delete, PostgresStore, Put, Store, open_store
from podwright.store._postgres_schema import MIGRATIONS
from tests.outer.postgres import Postgres
from tests.store.test_store import *  # noqa: F403  (the same tests, on this database)
from tests.store.test_store import Clocks, Handle

pytestmark = pytest.mark.outer


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> str:
    return postgres.url()


@pytest.fixture
def url(database: str) -> str:
    """An empty database. One for all tests: making one takes longer than most of them."""
    with psycopg.connect(database) as db:
        db.execute("DROP SCHEMA IF EXISTS podwright CASCADE")
    return database


@pytest.fixture  # type: ignore[no-redef]
async def handle(url: str, clocks: Clocks) -> AsyncIterator[Handle]:
    async with AsyncExitStack() as stack:

        def make() -> Store:
            store = PostgresStore(url, wall=lambda: clocks.wall, monotonic=lambda: clocks.monotonic)
            stack.push_async_callback(store.close)
            return store

        yield make


@pytest.fixture(scope="module")
def own() -> Iterator[Postgres]:
    """A cluster that tests may break, if they leave it running."""
    with Postgres() as cluster:
        yield cluster


def put(key: str, size: int = 1) -> list[Put | Delete]:
    return [Put("a", key, b"x" * size)]


def name_of(url: str) -> str:
    return urlsplit(url).path[1:]


async def records(url: str) -> set[str]:
    store = PostgresStore(url)
    try:
        return {key for _, key in (await store.open()).records}
    finally:
        await store.close()


# -- durability ------------------------------------------------------------------------------


async def test_commits_that_wait_together_share_a_transaction(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await asyncio.gather(*(store.commit(put(str(i))) for i in range(500)))
    assert store.commits == 1
    await store.close()
    assert len(await records(url)) == 500


async def test_what_was_answered_survives_a_crash_of_the_database(own: Postgres) -> None:
    url = own.url("crash")
    store = PostgresStore(url)
    await store.open()
    acknowledged = set()

    async def client(name: int) -> None:
        for n in range(1000):
            await store.commit(put(f"{name}-{n}"))
            acknowledged.add(f"{name}-{n}")

    clients = [asyncio.ensure_future(client(i)) for i in range(8)]
    while len(acknowledged) < 200:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(own.stop, signal.SIGQUIT)
    ended = await asyncio.gather(*clients, return_exceptions=True)
    assert all(isinstance(error, Unavailable) for error in ended), ended
    with pytest.raises(Unavailable, match="Open it anew"):
        await store.commit(put("later"))
    own.start()
    found = {key for _, key in (await store.open()).records}
    assert acknowledged <= found
    assert "later" not in found
    await store.commit(put("after"))
    await store.close()


async def test_a_database_told_to_forget_is_overruled(own: Postgres) -> None:
    own.stop(signal.SIGINT)
    own.start("synchronous_commit=off")
    store = PostgresStore(own.url())
    await store.open()
    assert store._db is not None
    assert store._db.execute("SHOW synchronous_commit").fetchone() == ("on",)
    await store.close()


# -- lost connections ------------------------------------------------------------------------


async def test_after_a_lost_connection_only_opening_anew_helps(
    postgres: Postgres, url: str
) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.commit(put("before"))
    assert postgres.cut(name_of(url)) == 1
    with pytest.raises(Unavailable, match=r"connection to the store .* was lost"):
        await store.commit(put("lost"))
    with pytest.raises(Unavailable, match="Open it anew"):
        await store.commit(put("later"))
    with pytest.raises(Unavailable, match="Open it anew"):
        await store.read()
    assert ("a", "before") in (await store.open()).records
    await store.commit(put("after"))
    await store.close()


async def test_a_commit_that_waits_when_its_connection_ends_is_told_as_unknown(
    postgres: Postgres, url: str
) -> None:
    store = PostgresStore(url)
    await store.open()
    with psycopg.connect(url) as blocker:
        blocker.execute("SELECT 1 FROM podwright.server FOR UPDATE")
        commit = asyncio.ensure_future(store.commit(put("x")))
        while not postgres.admin(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "
            f"'{name_of(url)}'"
        ):
            await asyncio.sleep(0.01)
        postgres.cut(name_of(url))
        with pytest.raises(Unavailable, match="was lost"):
            await commit
        blocker.close()
    await store.close()
    assert await records(url) == set()


async def test_a_refusal_of_the_database_leaves_nothing_and_the_store_goes_on(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    with psycopg.connect(url) as db:
        db.execute("ALTER TABLE podwright.records ADD CHECK (length(body) < 100)")
    with pytest.raises(Unavailable, match="violates check constraint"):
        await store.commit([*put("small"), *put("large", 200)])
    await store.commit(put("later"))
    await store.close()
    assert await records(url) == {"later"}


# -- whose turn it is ------------------------------------------------------------------------


async def test_one_of_two_servers_is_active(url: str) -> None:
    first = PostgresStore(url, owner="one", ttl=30)
    second = PostgresStore(url, owner="two", ttl=30)
    assert await second.turn() == ("", 0.0), "an empty database is anybody's"
    await first.open()
    turn = await second.turn()
    assert turn.owner == "one"
    assert 0 < turn.left <= 30
    with pytest.raises(AlreadyExists, match=r"another server \(one\) is active") as caught:
        await second.open()
    assert caught.value.data["holder"] == "one"
    await first.commit(put("x"))
    assert (await first.open()).epoch == 2, "the active one may open anew"
    await first.close()
    assert (await second.turn()).left == 0.0, "given back at once"
    assert (await second.open()).epoch == 3
    await second.close()


async def test_the_active_server_counts_who_stands_by(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podwright.store._postgres._COUNT", 0.0)
    first = PostgresStore(url, owner="one", ttl=30)
    assert first.standbys is None, "not known yet"
    await first.open()
    await first.renew()
    assert first.standbys == 0
    others = [PostgresStore(url, owner=name, ttl=30) for name in ("two", "three")]
    for other in others:
        await other.turn()
    await first.renew()
    assert first.standbys == 2
    for other in others:
        await other.close()
    deadline = time.monotonic() + 300
    while first.standbys:  # PostgreSQL ends a connection a moment later
        assert time.monotonic() < deadline
        await first.renew()
        await asyncio.sleep(0.02)
    await first.close()


async def test_a_lease_that_runs_out_is_anybodys_and_the_old_server_is_fenced(url: str) -> None:
    first = PostgresStore(url, owner="one", ttl=3)
    second = PostgresStore(url, owner="two", ttl=30)
    await first.open()
    await first.renew()
    assert first.lease_lives
    deadline = time.monotonic() + 300
    while (await second.turn()).left:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert not first.lease_lives, "by its own clock it is over no later than by the database's"
    await second.open()
    for attempt in (first.commit(put("late")), first.renew()):
        with pytest.raises(Fenced, match="newer server"):
            await attempt
    await first.close()
    assert (await second.turn()).owner == "two", "an old server gives back nothing of the new one's"
    assert (await second.turn()).left > 0
    await second.commit(put("new"))
    await second.close()
    assert await records(url) == {"new"}


async def test_commits_renew_the_lease(url: str) -> None:
    store = PostgresStore(url, owner="one", ttl=30)
    await store.open()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE podwright.server SET deadline = 0")
    await store.commit(put("x"))
    assert (await store.turn()).left > 20
    await store.close()


async def test_of_many_that_want_it_one_gets_it(url: str) -> None:
    stores = [PostgresStore(url, owner=f"s{i}", ttl=30) for i in range(6)]
    outcomes = await asyncio.gather(*(s.open() for s in stores), return_exceptions=True)
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 5, outcomes
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_hung_commit_of_the_old_server_changes_nothing_later(url: str) -> None:
    """The old server's statement is held up in the database until the new one has begun."""
    old = PostgresStore(url, owner="old", ttl=0.2)
    new = PostgresStore(url, owner="new", ttl=30)
    await old.open()
    blocker = psycopg.connect(url)
    blocker.execute("SELECT 1 FROM podwright.server FOR UPDATE")
    late = asyncio.ensure_future(old.commit(put("late")))
    await asyncio.sleep(0.3)  # its lease is over
    blocker.execute("UPDATE podwright.server SET epoch = epoch + 1, owner = 'new'")
    blocker.commit()
    blocker.close()
    with pytest.raises(Fenced):
        await late
    assert (await new.open()).records == {}
    await asyncio.gather(old.close(), new.close())


# -- whose database it is --------------------------------------------------------------------


async def test_an_older_schema_is_brought_up_to_date(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.commit(put("kept"))
    await store.close()
    step = ("ALTER TABLE podwright.records ADD COLUMN note text",)
    monkeypatch.setattr("podwright.store._postgres_schema.MIGRATIONS", (*MIGRATIONS, step))
    assert await records(url) == {"kept"}
    with psycopg.connect(url) as db:
        assert db.execute("SELECT note FROM podwright.records").fetchall() == [(None,)]
    monkeypatch.undo()
    with pytest.raises(Unavailable, match="written by a newer Podwright"):
        await store.open()


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await records(url) == set()
    steps = ("ALTER TABLE podwright.records ADD COLUMN note text", "ALTER TABLE missing ADD x int")
    with monkeypatch.context() as broken:
        broken.setattr("podwright.store._postgres_schema.MIGRATIONS", (*MIGRATIONS, steps))
        with pytest.raises(Unavailable, match="missing"):
            await PostgresStore(url).open()
    assert await records(url) == set()


async def test_another_programs_schema_is_refused(url: str) -> None:
    with psycopg.connect(url) as db:
        db.execute("CREATE SCHEMA podwright")
        db.execute("CREATE TABLE podwright.theirs (x int)")
    with pytest.raises(Unavailable, match="another program's"):
        await PostgresStore(url).open()


async def test_a_user_who_may_not_is_told_what_is_missing(postgres: Postgres, url: str) -> None:
    postgres.admin("CREATE ROLE nobody_special LOGIN")
    place = postgres.place(name_of(url), "nobody_special")
    with pytest.raises(Unavailable, match=r"refuses this user .*permission denied"):
        await PostgresStore(place).open()


async def test_no_message_carries_a_password(postgres: Postgres) -> None:
    secret = "s3cret-word"
    for place in (
        f"postgresql://postgres:{secret}@/none?host={postgres.folder}",
        f"postgresql://postgres@/none?host={postgres.folder}&password={secret}",
        f"postgresql://postgres:{secret}@127.0.0.1:1/none",
        f"postgresql://postgres:{secret}@/none?nonsense=1",
    ):
        store = open_store(place)
        assert isinstance(store, PostgresStore)
        with pytest.raises((Unavailable, InvalidRequest)) as caught:
            await store.open()
        told = f"{caught.value} {caught.value.to_json()} {store.name}"
        assert secret not in told
        assert "none" in told
