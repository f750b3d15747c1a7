"""Launches that can be moved make room. Whatever is killed meanwhile, no device is held twice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.agents import Fault
from podwright.errors import Denied, Fenced, InvalidRequest, NoCapacity
from podwright.wire import (
    AcquireReply,
    CreateRequest,
    DrainRequest,
    EventsRequest,
    ExplainRequest,
    LeaseInfo,
    LeaseRequest,
    MachineName,
    MoveRequest,
    MovesAllowed,
    MovesRequest,
    MoveTable,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    WaiterName,
    WaitReply,
    WaitRequest,
)
from tests.controller.world import (
    ALICE,
    ALL,
    BOB,
    ROOT,
    VirtualLoop,
    World,
    virtually,
)


class Launch:
    """The part of poprun and its keeper in a lease. seconds: the cost of a move; 0: it cannot
    move.
    """

    def __init__(self, world: World, reply: AcquireReply, seconds: float) -> None:
        self.world, self.reply, self.seconds = world, reply, seconds

    @property
    def name(self) -> str:
        return self.reply.partition.name

    async def renew(self) -> LeaseInfo:
        lease = self.reply.lease
        reply: LeaseInfo = await self.world.controller.renew(
            ROOT,
            LeaseRequest(id=lease.id, epoch=lease.epoch, move_seconds=self.seconds),
        )
        return reply

    async def obey(self) -> PartitionInfo | None:
        """Renew the lease. When asked to move, end and report that."""
        info = await self.renew()
        return await self.end(info.move) if info.move else None

    async def end(self, word: str) -> PartitionInfo:
        lease = self.reply.lease
        request = MoveRequest(id=lease.id, epoch=lease.epoch, move=word)
        reply: PartitionInfo = await self.world.controller.move(ROOT, request)
        return reply


async def launch(
    world: World, name: str, size: int = 4, *, movable: bool = True, seconds: float = 1.0
) -> Launch:
    reply = await world.acquire(name, size, create=True, ttl=3600, movable=movable)
    return Launch(world, reply, seconds)


async def wait_for(world: World, name: str, size: int) -> WaitReply:
    wanted = CreateRequest(spec=PartitionSpec(name=name, size=size))
    reply: WaitReply = await world.controller.wait(ALICE, WaitRequest(create=wanted))
    return reply


async def ask(world: World, waiter: WaitReply) -> WaitReply:
    reply: WaitReply = await world.controller.wait(ALICE, WaitRequest(id=waiter.waiter.id))
    return reply


async def scattered(world: World, *, movable: bool = True, seconds: float = 1.0) -> list[Launch]:
    """Two launches of four devices that leave eight of sixteen free, but no block of eight."""
    made = [await launch(world, f"p{at}", movable=movable, seconds=seconds) for at in range(4)]
    made.sort(key=lambda one: devices(one.reply.partition)[0])
    for one in (made[0], made[2]):
        await world.release(one.reply)
    await world.time.advance(100)  # so that they are likely to last
    left = [made[1], made[3]]
    for one in left:
        await one.renew()
    return left


def devices(partition: PartitionInfo) -> list[tuple[int, int]]:
    return sorted((ref.domain, ref.offset) for gcd in partition.gcds for ref in gcd)


async def table(world: World) -> MoveTable:
    reply: MoveTable = await world.controller.show_moves(ROOT, MovesRequest())
    return reply


async def asked(world: World, launches: Sequence[Launch]) -> list[Launch]:
    return [one for one in launches if (await one.renew()).move]


async def test_what_stands_in_the_way_moves(world: World) -> None:
    left = await scattered(world)
    before = {one.name: devices(one.reply.partition) for one in left}
    waiter = await wait_for(world, "big", 8)
    assert waiter.waiter.state == "WAITING"
    await world.time.advance(5)
    (mover,) = await asked(world, left)
    shown = await table(world)
    assert [(row.partition, row.state, row.waiter) for row in shown.moves] == [
        (mover.name, "ASKED", waiter.waiter.id)
    ]
    told = (await ask(world, waiter)).waiter
    assert f"{mover.name} to move to other devices by " in told.needs
    assert told.needs.endswith(" at the latest (4 of 8 devices are there)")
    why = await world.controller.explain(ROOT, ExplainRequest(name=mover.name))
    assert any("asked to move" in line for line in why.lines)
    await world.check()
    world.use(mover.reply)
    moved = await mover.obey()
    assert moved is not None
    assert devices(moved) != before[mover.name]
    assert (moved.name, moved.owner, moved.size) == (mover.name, "root", 4)
    assert moved.epoch > mover.reply.partition.epoch
    await world.time.advance(5)
    done = await ask(world, waiter)
    assert done.partition is not None
    assert done.partition.size == 8
    assert world.used(AcquireReply(lease=mover.reply.lease, partition=done.partition)) == []
    await world.check()
    assert not (await mover.renew()).move, "it is asked once"
    assert ((await table(world)).done, (await table(world)).moves) == (1, [])
    events = [e.what for e in (await world.controller.list_events(ROOT, EventsRequest())).events]
    assert {"AskToMove", "Moved"} <= set(events)


@pytest.mark.parametrize(("movable", "seconds"), [(True, 0.0), (False, 1.0)])
async def test_neither_flag_nor_handler_alone_moves_anything(
    world: World, movable: bool, seconds: float
) -> None:
    left = await scattered(world, movable=movable, seconds=seconds)
    await wait_for(world, "big", 8)
    await world.time.advance(20)
    assert await asked(world, left) == []
    assert (await table(world)).movable == 0


async def test_what_does_not_end_in_time_stays(world: World) -> None:
    left = await scattered(world)
    waiter = await wait_for(world, "big", 8)
    await world.time.advance(5)
    (mover,) = await asked(world, left)
    word = (await mover.renew()).move
    for _ in range(13):
        await ask(world, waiter)
        await world.time.advance(5)
    assert (await mover.renew()).move != word
    here = devices(await world.get(mover.name))
    assert devices(await mover.end(word)) == here == devices(mover.reply.partition)
    events = [e.what for e in (await world.controller.list_events(ROOT, EventsRequest())).events]
    assert "MoveCalledOff" in events
    await world.check()


async def test_one_launch_is_asked_twice_an_hour_at_most(world: World) -> None:
    left = await scattered(world)
    waiter = await wait_for(world, "big", 8)
    words: set[str] = set()
    for _ in range(150):
        await ask(world, waiter)
        await world.time.advance(5)
        words |= {info.move for one in left if (info := await one.renew()).move}
    assert len(words) == 4


async def test_whoever_can_move_only_later_is_asked_too(world: World) -> None:
    """The estimated end of both has passed by then, but they still run."""
    left = await scattered(world, seconds=0.0)
    waiter = await wait_for(world, "big", 8)
    for _ in range(30):
        await world.time.advance(5)
        await ask(world, waiter)
        assert await asked(world, left) == []
    for one in left:
        one.seconds = 1.0
        await one.renew()
    await world.time.advance(5)
    assert len(await asked(world, left)) == 1


async def test_a_waiter_that_leaves_needs_no_room(world: World) -> None:
    left = await scattered(world)
    waiter = await wait_for(world, "big", 8)
    await world.time.advance(5)
    (mover,) = await asked(world, left)
    word = (await mover.renew()).move
    await world.controller.leave(ALICE, WaiterName(id=waiter.waiter.id))
    await world.time.advance(3)
    assert await asked(world, left) == []
    assert devices(await mover.end(word)) == devices(mover.reply.partition)
    await world.check()


async def test_nothing_moves_at_a_loss(world: World) -> None:
    """Both are expected to last another hundred seconds, and a move loses a thousand."""
    left = await scattered(world, seconds=1000.0)
    await wait_for(world, "big", 8)
    await world.time.advance(5)
    assert await asked(world, left) == []
    assert (await table(world)).movable == 2


async def test_a_site_that_forbids_moves_has_none_also_after_a_restart(world: World) -> None:
    left = await scattered(world)
    await world.controller.allow_moves(ROOT, MovesAllowed(allowed=False))
    waiter = await wait_for(world, "big", 8)
    await world.time.advance(5)
    assert await asked(world, left) == []
    shown = await table(world)
    assert [row.state for row in shown.moves] == ["PLANNED"]
    await world.check()
    await world.restart()
    for one in left:
        await one.renew()
    await ask(world, waiter)
    await world.time.advance(5)
    assert not (await table(world)).allowed
    assert await asked(world, left) == []
    await world.controller.allow_moves(ROOT, MovesAllowed(allowed=True))
    assert len(await asked(world, left)) == 1
    await world.controller.allow_moves(ROOT, MovesAllowed(allowed=False))
    assert await asked(world, left) == []
    await world.check()
    with pytest.raises(Denied):
        await world.controller.allow_moves(ALICE, MovesAllowed(allowed=True))


async def test_a_drained_machine_is_emptied(world: World) -> None:
    one = await launch(world, "p1")
    await one.renew()
    (machine,) = {ref.machine for gcd in one.reply.partition.gcds for ref in gcd}
    await world.controller.drain_machine(ROOT, DrainRequest(name=machine))
    await world.time.advance(3)
    moved = await one.obey()
    assert moved is not None
    assert machine not in {ref.machine for gcd in moved.gcds for ref in gcd}
    await world.time.advance(5)
    assert world.machines[machine].devices[0].partition == ""
    assert not (await one.renew()).move
    await world.check()


async def test_a_machine_that_is_resumed_in_time_is_not_emptied(world: World) -> None:
    one = await launch(world, "p1")
    await one.renew()
    (machine,) = {ref.machine for gcd in one.reply.partition.gcds for ref in gcd}
    await world.controller.drain_machine(ROOT, DrainRequest(name=machine))
    await world.time.advance(3)
    assert (await one.renew()).move
    await world.controller.resume_machine(ROOT, MachineName(name=machine))
    await world.time.advance(3)
    assert not (await one.renew()).move
    await world.check()


async def test_a_launch_stays_where_it_is_if_the_other_machine_fails(world: World) -> None:
    left = await scattered(world)
    await wait_for(world, "big", 8)
    await world.time.advance(5)
    (mover,) = await asked(world, left)
    (to,) = (row.to for row in (await table(world)).moves)
    world.machines[to].fail_next("configure", 1, Fault.FAIL)
    after = await mover.obey()
    assert after is not None
    assert devices(after) == devices(mover.reply.partition)
    assert after.ready_state is ReadyState.ACTIVE
    assert (await table(world)).failed == 1
    await world.time.advance(5)
    await world.check()
    assert [d for d in world.machines[to].devices if d.partition == mover.name] == []


async def test_only_the_holder_of_a_lease_says_that_its_launch_has_ended(world: World) -> None:
    left = await scattered(world)
    await wait_for(world, "big", 8)
    await world.time.advance(5)
    (mover,) = await asked(world, left)
    lease, word = mover.reply.lease, (await mover.renew()).move
    with pytest.raises(Denied):
        await world.controller.move(BOB, MoveRequest(id=lease.id, epoch=lease.epoch, move=word))
    with pytest.raises(Fenced):
        await world.controller.move(ROOT, MoveRequest(id=lease.id, epoch=1, move=word))
    mover.seconds = -1.0
    with pytest.raises(InvalidRequest):
        await mover.renew()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@virtually
async def test_killed_at_every_commit_and_every_call(after: bool) -> None:
    arrived = stayed = 0
    for at in range(1, 12):
        world = World()
        await world.start()
        left = await scattered(world)
        waiter = await wait_for(world, "big", 8)
        await world.time.advance(5)
        (mover,) = await asked(world, left)
        before = devices(mover.reply.partition)
        word = (await mover.renew()).move
        world.trigger.at, world.trigger.after = world.trigger.count + at, after

        async def step(world: World = world, mover: Launch = mover, word: str = word) -> None:
            await mover.end(word)
            await world.time.advance(4)

        if not await world.until_killed(step):
            await world.start()
        world.trigger.at = 0
        now = await mover.end(word)  # whose answer was lost asks again
        arrived, stayed = arrived + (devices(now) != before), stayed + (devices(now) == before)
        assert now.ready_state is ReadyState.ACTIVE
        for one in left:
            await one.renew()
        await world.time.advance(6)
        await world.check()
        for one in left:
            await world.release(one.reply)
        await world.controller.leave(ALICE, WaiterName(id=waiter.waiter.id))
        await world.time.advance(6)
        for name in await world.names():
            await world.remove(name)
        await world.create("all", 16)
        await world.check()
        await world.stop()
    assert arrived
    assert stayed


_ACTS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 7), st.sampled_from([1, 2, 4, 8])), max_size=40
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(_ACTS)
def test_whatever_happens_no_device_is_held_twice(acts: list[tuple[int, int, int]]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(_at_random(acts))
    finally:
        loop.close()


async def _at_random(acts: list[tuple[int, int, int]]) -> None:
    world = World()
    await world.start()
    launches: list[Launch] = []
    waiters: list[WaitReply] = []
    for number, (act, which, size) in enumerate(acts):
        free = sum(c.free for c in (await world.controller.list_clusters(ROOT, ALL)).clusters)
        if act <= 1 and free >= 2 * size:
            with suppress(NoCapacity):  # free devices may be scattered, which is the point
                launches.append(await launch(world, f"p{number}", size))
        elif act == 2 and launches:
            await world.release(launches.pop(which % len(launches)).reply)
        elif act == 3:
            waiters.append(await wait_for(world, f"w{number}", size))
        elif act == 4:
            await world.time.advance(25)  # who does not ask for 30 s has left the line
        elif act == 5:
            await world.restart()
        for one in launches:
            await (one.renew() if act == 6 else one.obey())
        for waiter in [w for w in waiters if w.partition is None]:
            waiters[waiters.index(waiter)] = await ask(world, waiter)
        await world.time.advance(3)
        await world.check()
    await world.stop()
