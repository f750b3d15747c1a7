"""The queue in virtual time: order, no starvation, nothing held while waiting, leaving."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.controller import Caller
from podwright.errors import (
    Denied,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PodwrightError,
    WrongState,
)
from podwright.fabric import preset
from podwright.wire import (
    AcquireRequest,
    CreateRequest,
    ExplainRequest,
    PartitionSpec,
    QuotaInfo,
    ReadyState,
    WaiterInfo,
    WaiterName,
    WaitReply,
    WaitRequest,
)
from tests.controller.test_partitions import complete
from tests.controller.world import ALICE, ALL, BOB, ROOT, VirtualLoop, World


class Queue:
    """The waiters of a world, by the name of what they want."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ids: dict[str, str] = {}
        self.callers: dict[str, Caller] = {}

    async def join(
        self,
        name: str,
        size: int = 4,
        *,
        caller: Caller = ROOT,
        priority: int = 0,
        duration: float = 0.0,
        **spec: Any,
    ) -> WaitReply:
        wanted = CreateRequest(spec=PartitionSpec(name=name, size=size, **spec), duration=duration)
        request = WaitRequest(create=wanted, priority=priority)
        return await self._joined(name, caller, request)

    async def join_lease(
        self, name: str, size: int = 4, *, caller: Caller = ROOT, create: bool = False
    ) -> WaitReply:
        spec = PartitionSpec(name=name, size=size)
        request = WaitRequest(acquire=AcquireRequest(spec=spec, create=create, ttl=100))
        return await self._joined(name, caller, request)

    async def _joined(self, name: str, caller: Caller, request: WaitRequest) -> WaitReply:
        reply = await self.world.controller.wait(caller, request)
        self.ids[name], self.callers[name] = reply.waiter.id, caller
        await self.settle()
        return await self.ask(name)

    async def ask(self, name: str) -> WaitReply:
        request = WaitRequest(id=self.ids[name])
        reply: WaitReply = await self.world.controller.wait(self.callers[name], request)
        return reply

    async def leave(self, name: str) -> None:
        caller = self.callers[name]
        await self.world.controller.leave(caller, WaiterName(id=self.ids[name]))
        await self.settle()

    async def state(self, name: str) -> str:
        return (await self.ask(name)).waiter.state

    async def names(self) -> list[str]:
        """Return the waiters, in order."""
        by_id = {number: name for name, number in self.ids.items()}
        return [by_id[w.id] for w in await self.line()]

    async def line(self) -> list[WaiterInfo]:
        reply: list[WaiterInfo] = (await self.world.controller.list_waiters(ROOT, ALL)).waiters
        return reply

    async def settle(self) -> None:
        """Let everything that was begun end."""
        tasks = self.world.controller._state.tasks
        while tasks:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)


@pytest.fixture
def queue(world: World) -> Queue:
    return Queue(world)


async def test_what_is_free_starts_at_once(world: World, queue: Queue) -> None:
    reply = await queue.join("p1", 4)
    assert reply.waiter.state == "DONE"
    assert reply.partition is not None
    assert reply.partition.name == "p1"
    assert reply.lease is None
    assert await queue.line() == []


async def test_it_waits_and_starts_when_devices_are_free(world: World, queue: Queue) -> None:
    await world.create("big", 16, caller=ALICE)
    reply = await queue.join("p1", 8, caller=BOB)
    assert (reply.waiter.state, reply.waiter.place) == ("WAITING", 1)
    assert "big" in reply.waiter.needs
    assert reply.waiter.owner == "bob"
    assert await world.names() == ["big"], "nothing is held while waiting"
    await world.remove("big", caller=ALICE)
    await queue.settle()
    assert await queue.state("p1") == "DONE"
    assert (await world.get("p1")).owner == "bob"


async def test_priority_then_age(world: World, queue: Queue) -> None:
    await world.create("all", 16)
    for name, priority in (("a", 0), ("b", 0), ("c", 5), ("d", -3)):
        await world.time.advance(0.25)
        await queue.join(name, 16, priority=priority)
    assert await queue.names() == ["c", "a", "b", "d"]
    started = []
    previous = "all"
    for _ in range(4):
        await world.remove(previous)
        await queue.settle()
        (previous,) = await world.names()
        started.append(previous)
    assert started == ["c", "a", "b", "d"]


async def test_small_ones_do_not_starve_a_large_one(world: World, queue: Queue) -> None:
    for n in range(4):
        await world.create(f"s{n}", 4)
    large = await queue.join("large", 16)
    assert large.waiter.state == "WAITING"
    for n in range(3):
        await world.remove(f"s{n}")
        await queue.settle()
        waits = await queue.join(f"new{n}", 4)
        assert waits.waiter.state == "WAITING", "what is free is kept for the large one"
        with pytest.raises(NoCapacity) as caught:
            await world.create("now", 4)
        complete(caught.value)
        assert (await queue.ask("large")).waiter.reserved == 4 * (n + 1)
    await world.check()
    await world.remove("s3")
    await queue.settle()
    assert await queue.state("large") == "DONE"
    await world.remove("large")
    await queue.settle()
    assert [await queue.state(f"new{n}") for n in range(3)] == ["DONE"] * 3


async def test_one_may_start_beside_what_is_kept(world: World, queue: Queue) -> None:
    await world.create("a", 8)
    await world.create("b", 4)
    assert (await queue.join("large", 8)).waiter.state == "WAITING"
    await world.remove("b")
    await queue.settle()
    assert await queue.state("large") == "DONE", "it lies beside a"


async def test_nothing_new_starts_on_a_kept_place_however_short_it_is(
    world: World, queue: Queue
) -> None:
    """Who is there may end earlier than announced, and the place is to be free then."""
    for name, seconds in (("long", 1000), ("longer", 3600)):
        request = CreateRequest(spec=PartitionSpec(name=name, size=8), duration=seconds)
        await world.controller.create_partition(ROOT, request)
    large = await queue.join("large", 16)
    assert large.waiter.estimate == pytest.approx(3600, abs=2)
    await world.remove("long")
    assert (await queue.join("short", 4, duration=500)).waiter.state == "WAITING"
    assert (await queue.join("unknown", 4)).waiter.state == "WAITING"
    await world.remove("longer")
    await queue.settle()
    assert await queue.state("large") == "DONE"
    assert await queue.state("short") == "WAITING"


async def test_the_time_of_a_place_moves_earlier_with_each_early_end(
    world: World, queue: Queue
) -> None:
    for name, seconds in (("long", 1000), ("longer", 3600)):
        request = CreateRequest(spec=PartitionSpec(name=name, size=8), duration=seconds)
        await world.controller.create_partition(ROOT, request)
    await queue.join("large", 16)
    await world.remove("longer")
    assert (await queue.ask("large")).waiter.estimate == pytest.approx(1000, abs=2)


async def test_leaving_frees_what_was_kept(world: World, queue: Queue) -> None:
    await world.create("a", 8)
    await queue.join("large", 16)
    assert (await queue.join("small", 4)).waiter.state == "WAITING"
    await queue.leave("large")
    assert await queue.state("small") == "DONE"
    with pytest.raises(NotFound) as caught:
        await queue.ask("large")
    complete(caught.value)


async def test_who_is_taken_out_hears_of_it_at_once(world: World, queue: Queue) -> None:
    """Somebody else removes the waiter while one of its questions is being answered."""
    await world.create("all", 16)
    await queue.join("p1", 4)
    asked = world.controller.wait(ROOT, WaitRequest(id=queue.ids["p1"], timeout=20))
    asking = asyncio.create_task(asyncio.wait_for(asked, 1))
    await asyncio.sleep(0)
    await queue.leave("p1")
    with pytest.raises(NotFound) as caught:
        await asking
    complete(caught.value)


async def test_who_stops_asking_has_left(world: World, queue: Queue) -> None:
    await world.create("a", 16)
    await queue.join("p1", 16)
    await world.time.advance(20)
    assert await queue.state("p1") == "WAITING"
    await world.time.advance(40)
    await queue.settle()
    assert await queue.line() == []
    await world.remove("a")
    await queue.settle()
    assert await world.names() == []


async def test_what_nobody_heard_of_is_given_back(world: World, queue: Queue) -> None:
    await world.create("a", 16)
    await queue.join("p1", 8)
    await queue.join_lease("p2", 8, create=True)
    await world.remove("a")
    await queue.settle()
    assert await world.names() == ["p1", "p2"]
    await world.time.advance(60)
    await queue.settle()
    assert await world.names() == []


async def test_a_held_partition_is_waited_for(world: World, queue: Queue) -> None:
    await world.create("p1", 4)
    first = await world.acquire("p1", 4)
    second = await queue.join_lease("p1", caller=ROOT)
    assert second.waiter.state == "WAITING"
    assert "p1" in second.waiter.needs
    queue.ids["p1b"], queue.callers["p1b"] = queue.ids["p1"], queue.callers["p1"]
    third = await queue.join_lease("p1")
    assert third.waiter.place == 2
    await world.release(first)
    await queue.settle()
    got = await queue.ask("p1b")
    assert got.waiter.state == "DONE"
    assert got.lease is not None
    assert got.lease.partition == "p1"
    assert await queue.state("p1") == "WAITING"
    await world.remove("p1", force=True)
    await queue.settle()
    with pytest.raises(NotFound):
        await queue.ask("p1")


async def test_what_can_never_be_is_refused_at_once(world: World, queue: Queue) -> None:
    for size in (3, 32):
        with pytest.raises(InvalidRequest) as caught:
            await queue.join("p1", size)
        complete(caught.value)
    await world.create("p1", 4)
    with pytest.raises(PodwrightError, match="already"):
        await queue.join("p1", 4)
    assert await queue.line() == []


async def test_only_administrators_raise_their_priority(world: World, queue: Queue) -> None:
    with pytest.raises(Denied) as caught:
        await queue.join("p1", 4, caller=ALICE, priority=1)
    complete(caught.value)
    await world.create("all", 16)
    await queue.join("p1", 4, caller=ALICE, priority=-1)
    with pytest.raises(Denied):
        await world.controller.leave(BOB, WaiterName(id=queue.ids["p1"]))


async def test_places_outlive_a_restart(world: World, queue: Queue) -> None:
    await world.create("all", 16)
    for name in ("a", "b"):
        wanted = CreateRequest(spec=PartitionSpec(name=name, size=16))
        reply = await world.controller.wait(ALICE, WaitRequest(create=wanted))
        queue.ids[name], queue.callers[name] = reply.waiter.id, ALICE
    await world.restart()  # with the last word said, nothing is lost
    assert await queue.names() == ["a", "b"]
    await world.remove("all")
    await queue.settle()
    assert await queue.state("a") == "DONE"
    assert (await world.get("a")).owner == "alice"
    assert await queue.state("b") == "WAITING"


async def test_a_replacement_that_fails_gives_nothing_to_waiters(
    world: World, queue: Queue
) -> None:
    await world.create("p1", 8)
    await world.create("p2", 8)
    await queue.join("p3", 4)
    world.machines["ag1"].fail_next("release", 1)
    with pytest.raises(WrongState):
        await world.acquire("p1", 4, update=True)
    await queue.settle()
    info = await world.get("p1")
    assert (info.ready_state, info.size) == (ReadyState.ERROR, 8)
    assert await queue.state("p3") == "WAITING"
    await world.check()
    await world.reset("p1")
    await world.remove("p1")
    await queue.settle()
    assert await queue.state("p3") == "DONE"


@pytest.mark.parametrize("told", [True, False])
async def test_what_was_made_when_the_server_was_killed_is_its_waiters(
    world: World, queue: Queue, told: bool
) -> None:
    await world.create("big", 16)
    await queue.join("p1", 4)
    await world.remove("big")
    await queue.settle()
    if told:
        assert await queue.state("p1") == "DONE"
    await world.restart()
    reply = await queue.ask("p1")
    assert reply.waiter.state == "DONE"
    assert reply.partition is not None
    assert reply.partition.name == "p1"
    await world.time.advance(60)  # its client heard of it: it stays, although nobody asks any more
    await queue.settle()
    assert await world.names() == ["p1"]


async def test_a_long_question_is_answered_when_it_is_done(world: World, queue: Queue) -> None:
    await world.create("all", 16)
    await queue.join("p1", 16)
    request = WaitRequest(id=queue.ids["p1"], timeout=50)
    asking = asyncio.ensure_future(world.controller.wait(ROOT, request))
    await asyncio.sleep(0)
    await world.remove("all")
    assert (await asking).waiter.state == "DONE"


async def test_a_machine_that_comes_back_lets_waiters_start(world: World, queue: Queue) -> None:
    world.machines["ag1"].set_down(True)
    with pytest.raises(PodwrightError):
        await world.acquire("p0", 16, create=True)
    waits = await queue.join("p1", 16)
    assert waits.waiter.state == "WAITING"
    world.machines["ag1"].set_down(False)
    await world.time.advance(5)
    await queue.settle()
    assert await queue.state("p1") == "DONE"


SIZES = st.sampled_from([1, 2, 4, 8, 16, 32, 64])


@settings(max_examples=25)
@given(
    arrivals=st.lists(st.tuples(SIZES, st.sampled_from([0.0, 5.0, 60.0])), min_size=5, max_size=40),
    lengths=st.lists(st.integers(1, 20), min_size=40, max_size=40),
)
def test_everybody_is_served_and_nobody_waits_for_ever(
    arrivals: list[tuple[int, float]], lengths: list[int]
) -> None:
    loop = VirtualLoop()

    async def body() -> None:
        world = World([preset("pod64")])
        await world.start()
        queue = Queue(world)
        ends: dict[str, int] = {}
        for at, (size, duration) in enumerate(arrivals):
            await queue.join(f"p{at}", size, duration=duration)
            await world.time.advance(0.25)
        for turn in range(3000):
            for name in await world.names():
                ends.setdefault(name, turn + lengths[int(name[1:])])
                if ends[name] <= turn:
                    await world.remove(name)
                    await queue.settle()
            if len(ends) == len(arrivals):
                break
            for waiting in await queue.names():
                await queue.ask(waiting)
            await world.time.advance(1)
            await queue.settle()
            await world.check()
        assert len(ends) == len(arrivals), "somebody waits for ever"
        for name in await world.names():
            await world.remove(name)
        assert world.controller._state.reservations == {}
        assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == 64
        await world.stop()

    loop.run_until_complete(body())
    loop.close()


async def test_a_waiters_numbers_make_sense(world: World) -> None:
    """Regression: "12 of 20 devices are there" on a pod of 16."""
    for n in range(4):
        await world.create(f"p{n}", 4)
    request = WaitRequest(create=CreateRequest(spec=PartitionSpec(name="all", size=16)))
    await world.controller.wait(ROOT, request)
    for n in range(3):
        (info,) = (await world.controller.list_waiters(ROOT, ALL)).waiters
        left = " and ".join(f"p{one}" for one in range(n, 4))
        assert info.needs == f"{left} to end ({4 * n} of 16 devices are there)"
        await world.remove(f"p{n}")


async def test_the_first_of_the_queue_is_told_its_own_obstacle(world: World, queue: Queue) -> None:
    """Nobody is ahead, and devices are free: it waits for its quota, as explain says."""
    controller = world.controller
    await controller.set_quota(ROOT, QuotaInfo(user=ALICE.name, devices=4))
    await queue.join("first", 4, caller=ALICE)
    assert (await queue.ask("first")).partition is not None
    waiting = (await queue.join("second", 4, caller=ALICE)).waiter
    assert (waiting.place, waiting.reserved) == (1, 0)
    assert waiting.needs == "user alice may have 4 devices, and has 4"
    explained = await controller.explain(ALICE, ExplainRequest(name=waiting.id))
    assert explained.lines[0] == f"place 1 in the queue: {waiting.needs}"
    assert explained.problem == waiting.needs
