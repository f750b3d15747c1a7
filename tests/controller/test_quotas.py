"""Quotas hold, however many calls arrive at once and by whichever way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.controller import Caller, Role
from podwright.errors import NoCapacity, PodwrightError
from podwright.wire import (
    AcquireReply,
    CreateRequest,
    LeaseRequest,
    PartitionSpec,
    QuotaInfo,
    RemoveRequest,
    WaiterName,
    WaitRequest,
)
from tests.controller.world import ALICE, ALL, BOB, ROOT, World, virtually

SCHEDULER = Caller("slurm", 64030, Role.SCHEDULER)


async def settled(*calls: Awaitable[Any]) -> list[Any]:
    """Return the results of simultaneous calls. Refusals for now are among them."""
    return await asyncio.gather(*calls, return_exceptions=True)


def granted(outcomes: list[Any]) -> list[Any]:
    refused = [o for o in outcomes if isinstance(o, BaseException)]
    assert all(isinstance(o, NoCapacity) for o in refused), refused
    return [o for o in outcomes if not isinstance(o, BaseException)]


async def limit(world: World, **quota: Any) -> None:
    await world.controller.set_quota(ROOT, QuotaInfo(**quota))


async def used(world: World) -> tuple[int, int]:
    (quota,) = (await world.controller.list_quotas(ROOT, ALL)).quotas
    return quota.used_devices, quota.used_partitions


@pytest.mark.parametrize("quota", [{"devices": 3}, {"partitions": 3}])
async def test_thirty_creations_at_once(world: World, quota: dict[str, int]) -> None:
    await limit(world, user="alice", **quota)
    outcomes = await settled(*(world.create(f"p{i}", 1, caller=ALICE) for i in range(30)))
    assert len(granted(outcomes)) == 3
    assert await used(world) == (3, 3)


async def test_thirty_acquisitions_at_once(world: World) -> None:
    await limit(world, user="alice", devices=3)
    outcomes = await settled(
        *(world.acquire(f"p{i}", 1, create=True, caller=ALICE) for i in range(30))
    )
    assert len(granted(outcomes)) == 3


async def test_updates_that_grow_at_once(world: World) -> None:
    await limit(world, user="alice", devices=6)
    for i in range(4):
        await world.create(f"p{i}", 1, caller=ALICE)
    outcomes = await settled(
        *(world.acquire(f"p{i}", 2, update=True, keep=True, caller=ALICE) for i in range(4))
    )
    assert len(granted(outcomes)) == 2
    assert await used(world) == (6, 4)


async def test_an_update_that_shrinks_gives_nothing_away_before_it_is_done(world: World) -> None:
    """If its machines fail, the partition keeps what it had."""
    await limit(world, user="alice", devices=4)
    await world.create("p1", 4, caller=ALICE)
    world.machines["ag1"].fail_next("release")
    outcomes = await settled(
        world.acquire("p1", 2, update=True, caller=ALICE),
        world.create("p2", 2, caller=ALICE),
    )
    assert [isinstance(o, PodwrightError) for o in outcomes] == [True, True]
    assert await used(world) == (4, 1)


async def test_waiters_who_are_served_at_once(world: World) -> None:
    await limit(world, user="alice", devices=4)
    await world.create("first", 4, caller=ALICE)
    waiters = []
    for i in range(8):
        wanted = CreateRequest(spec=PartitionSpec(name=f"w{i}", size=2))
        waiters.append((await world.controller.wait(ALICE, WaitRequest(create=wanted))).waiter.id)
    others = [world.create(f"p{i}", 1, caller=ALICE) for i in range(8)]
    await settled(world.remove("first", caller=ALICE), *others)
    for _ in range(50):
        await asyncio.sleep(0)
        assert (await used(world))[0] <= 4
    for name in waiters:
        await world.controller.leave(ALICE, WaiterName(id=name))


async def test_who_is_over_quota_keeps_nobody_else_waiting(world: World) -> None:
    """She came first and asks for as much, but she is over her quota."""
    await limit(world, user="alice", devices=4)
    await world.create("a1", 4, caller=ALICE)
    await world.create("b1", 4, caller=BOB)
    await world.create("b2", 8, caller=BOB)
    waiters = []
    for who, name in ((ALICE, "a2"), (ALICE, "a3"), (BOB, "b3")):
        wanted = CreateRequest(spec=PartitionSpec(name=name, size=4))
        waiters.append((await world.controller.wait(who, WaitRequest(create=wanted))).waiter.id)
    await world.remove("b1", caller=BOB)
    answer = await world.controller.wait(BOB, WaitRequest(id=waiters[2], timeout=5))
    assert answer.waiter.state == "DONE"
    await world.remove("a1", caller=ALICE)
    answer = await world.controller.wait(ALICE, WaitRequest(id=waiters[0], timeout=5))
    assert answer.waiter.state == "DONE"


async def test_an_allocations_quota_binds_those_who_slip_past_a_reservation(world: World) -> None:
    """They name no allocation, and meanwhile use what is kept for somebody else."""
    await limit(world, allocation="pod16", devices=9)
    wanted = CreateRequest(spec=PartitionSpec(name="long", size=8), duration=1000)
    await world.controller.create_partition(BOB, wanted)
    wanted = CreateRequest(spec=PartitionSpec(name="big", size=16), duration=1000)
    await limit(world, allocation="pod16", devices=24)
    waiter = (await world.controller.wait(BOB, WaitRequest(create=wanted))).waiter.id
    await asyncio.sleep(0)
    await limit(world, allocation="pod16", devices=10)

    async def slip(i: int) -> None:
        short = CreateRequest(spec=PartitionSpec(name=f"s{i}", size=1), duration=10)
        await world.controller.create_partition(ALICE, short)

    await settled(*(slip(i) for i in range(6)))
    assert (await used(world))[0] <= 10
    await world.controller.leave(BOB, WaiterName(id=waiter))


async def test_a_schedulers_jobs_count_for_their_users(world: World) -> None:
    await limit(world, user="alice", devices=3)

    async def job(i: int) -> None:
        request = CreateRequest(
            spec=PartitionSpec(name=f"j{i}", size=1), owner="alice", owner_uid=1001, job=str(i)
        )
        await world.controller.create_partition(SCHEDULER, request)

    direct = (world.create(f"p{i}", 1, caller=ALICE) for i in range(10))
    assert len(granted(await settled(*(job(i) for i in range(10)), *direct))) == 3


async def test_what_was_refused_or_asked_about_counts_no_more(world: World) -> None:
    """A failed store, failed machines and an explanation leave nothing that counts against a
    user.
    """
    await limit(world, user="alice", devices=4)
    for machine in world.machines.values():
        machine.fail_next("configure")
    outcomes = await settled(*(world.acquire("", 4, create=True, caller=ALICE) for _ in range(3)))
    assert all(isinstance(o, PodwrightError) for o in outcomes)
    for machine in world.machines.values():
        machine.heal()
    await world.time.advance(10)
    await world.create("p1", 4, caller=ALICE)
    await world.remove("p1", caller=ALICE)
    assert world.controller._state.admitted == set()


SIZES = st.sampled_from([1, 1, 2, 4])
WHO = st.sampled_from([ALICE, BOB])
CALLS = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "acquire", "update", "wait", "slip", "job", "remove", "release"]
        ),
        WHO,
        st.integers(0, 5),
        SIZES,
        st.integers(0, 6),
    ),
    min_size=5,
    max_size=40,
)


@given(CALLS, st.integers(0, 6), st.integers(0, 3), st.integers(2, 10))
@settings(max_examples=60, deadline=None)
def test_no_interleaving_goes_beyond_a_quota(
    calls: list[tuple[str, Caller, int, int, int]], devices: int, partitions: int, together: int
) -> None:
    """Calls of many kinds start at the same time, each after a few turns of the loop."""
    _lives(calls, devices, partitions, together)


@virtually
async def _lives(
    calls: list[tuple[str, Caller, int, int, int]], devices: int, partitions: int, together: int
) -> None:
    world = World()
    await world.start()
    controller = world.controller
    await limit(world, user="alice", devices=devices)
    await limit(world, user="bob", partitions=partitions)
    await limit(world, allocation="pod16", devices=together)
    leases: list[AcquireReply] = []
    waiters: list[tuple[Caller, str]] = []

    def within() -> None:
        """Check the records against the quota, at any moment."""
        records = list(controller._state.partitions.records())
        mine = [r.size for r in records if r.owner == "alice"]
        assert sum(mine) <= devices
        assert len([r for r in records if r.owner == "bob"]) <= partitions
        assert sum(r.size for r in records) <= together

    async def one(kind: str, who: Caller, at: int, size: int, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        name = f"p{at}"
        spec = PartitionSpec(name=name, size=size)
        try:
            match kind:
                case "create":
                    await world.create(name, size, caller=who)
                case "acquire":
                    leases.append(await world.acquire("", size, create=True, caller=who, ttl=5))
                case "update":
                    await world.acquire(name, size, update=True, keep=True, caller=who, ttl=1)
                case "wait":
                    wanted = WaitRequest(create=CreateRequest(spec=spec))
                    waiters.append((who, (await controller.wait(who, wanted)).waiter.id))
                case "slip":
                    wish = CreateRequest(spec=spec, duration=3)
                    await controller.create_partition(who, wish)
                case "job":
                    wish = CreateRequest(
                        spec=spec, owner=who.name, owner_uid=who.uid or 0, job=str(at)
                    )
                    await controller.create_partition(SCHEDULER, wish)
                case "remove":
                    await controller.remove_partition(ROOT, RemoveRequest(name=name, force=True))
                case "release" if leases:
                    lease = leases.pop().lease
                    await controller.release(ROOT, LeaseRequest(id=lease.id, epoch=lease.epoch))
        except PodwrightError:
            pass
        within()

    await asyncio.gather(*(one(*call) for call in calls))
    for _ in range(8):
        await world.time.advance(1)
        within()
    for who, waiter in waiters:
        try:
            await controller.leave(who, WaiterName(id=waiter))
        except PodwrightError:
            continue
    await world.time.advance(40)
    within()
    assert controller._state.admitted == set()
    for quota in (await controller.list_quotas(ROOT, ALL)).quotas:
        mine = [r for r in controller._state.partitions.records() if quota.user in ("", r.owner)]
        assert (quota.used_devices, quota.used_partitions) == (
            sum(r.size for r in mine),
            len(mine),
        )
    await world.stop()
