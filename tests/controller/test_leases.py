"""Leases that end by themselves, in virtual time, and the arithmetic of subsets."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.controller._reconciler import Reconciler
from podwright.controller.state._leases import free_subset, mask_of
from podwright.errors import Denied, Fenced
from podwright.wire import LeaseRequest
from tests.controller.world import ALICE, ALL, BOB, ROOT, World, claim


async def test_a_lease_ends_within_a_second_of_its_ttl(world: World) -> None:
    await world.create("p1", 4)
    reply = await world.acquire("p1", 4, ttl=10)
    await world.time.advance(9.5)
    assert len((await world.controller.list_leases(ROOT, ALL)).leases) == 1
    await world.time.advance(1.5)
    assert (await world.controller.list_leases(ROOT, ALL)).leases == []
    with pytest.raises(Fenced, match="the lease is over"):
        await world.controller.renew(ROOT, claim(reply))
    assert await world.names() == ["p1"]


async def test_renewing_moves_the_end_and_costs_no_commit(world: World) -> None:
    reply = await world.acquire("p1", 4, create=True, ttl=10)
    await world.controller._state.journal.flush()
    commits = world.store.commits
    for _ in range(20):
        await world.time.advance(8)
        info = await world.controller.renew(ROOT, claim(reply))
        assert info.expires_in == pytest.approx(10)
    assert world.store.commits == commits
    await world.time.advance(11)
    assert await world.names() == []


async def test_a_partition_that_came_with_a_lease_goes_with_it(world: World) -> None:
    await world.acquire("p1", 4, create=True, ttl=5)
    await world.time.advance(6)
    assert await world.names() == []
    assert world.controller.idle


async def test_a_child_that_is_renewed_ends_with_its_parent(world: World) -> None:
    job = await world.acquire("p1", 4, create=True, ttl=5)
    step = await world.acquire("", 4, parent=job.lease.id, ttl=100)
    await world.time.advance(6)
    with pytest.raises(Fenced):
        await world.controller.renew(ROOT, claim(step))
    assert await world.names() == []


async def test_after_a_restart_a_lease_has_a_full_ttl(world: World) -> None:
    reply = await world.acquire("p1", 4, create=True, ttl=10)
    await world.time.advance(9)
    await world.restart()
    await world.time.advance(9)
    assert (await world.controller.renew(ROOT, claim(reply))).expires_in == pytest.approx(10)
    await world.restart()
    await world.time.advance(11)
    assert await world.names() == []


async def test_a_wall_clock_that_jumps_ends_no_lease(world: World) -> None:
    reply = await world.acquire("p1", 4, create=True, ttl=10)
    for error in (86400.0, -86400.0):
        world.time.wall_error = error
        await world.time.advance(4)
        assert (await world.controller.renew(ROOT, claim(reply))).expires_in <= 10
        await world.restart()
        assert (await world.controller.renew(ROOT, claim(reply))).expires_in <= 10


async def test_only_its_owner_with_its_epoch_renews_and_releases(world: World) -> None:
    await world.create("p1", 4, caller=ALICE)
    reply = await world.acquire("p1", 4, caller=ALICE)
    old = LeaseRequest(id=reply.lease.id, epoch=reply.lease.epoch - 1)
    for work in (world.controller.renew, world.controller.release):
        with pytest.raises(Fenced) as caught:
            await work(ALICE, old)
        assert caught.value.would_work
        with pytest.raises(Fenced):
            await work(ALICE, LeaseRequest(id="none", epoch=1))
        with pytest.raises(Denied):
            await work(BOB, claim(reply))
    await world.release(reply, caller=ALICE)
    with pytest.raises(Fenced):
        await world.release(reply, caller=ALICE)


async def test_nothing_is_held_within_a_lease_that_ended_meanwhile(world: World) -> None:
    """The end of a job and a launch within the job wait for the same partition."""
    await world.create("r", 8, reconfigurable=True)
    job = await world.acquire("r", 4)
    async with world.controller._state.partitions["r"].lock:
        end = asyncio.create_task(world.release(job))
        launch = asyncio.create_task(world.acquire("r", 0, parent=job.lease.id))
        for _ in range(10):
            await asyncio.sleep(0)
    await end
    with pytest.raises(Fenced, match="the lease is over"):
        await launch
    assert (await world.controller.list_leases(ROOT, ALL)).leases == []


async def test_machines_refuse_the_holder_before(world: World) -> None:
    for reconfigurable in (False, True):
        await world.create("p1", 4, reconfigurable=reconfigurable)
        old = await world.acquire("p1", 4, ttl=1)
        world.use(old)
        await world.time.advance(2)
        for reset in (None, False):
            new = await world.acquire("p1", 4, reset=reset)
            with pytest.raises(Fenced):
                world.use(old)
            world.use(new)
            await world.release(new)
        await world.remove("p1")


async def test_many_end_at_the_same_time_though_a_machine_hangs(world: World) -> None:
    replies = [await world.acquire("", 4, create=True, ttl=5) for _ in range(4)]
    world.machines["ag1"].delay("release", 1000)
    await world.time.advance(6)
    left = await world.names()
    assert left == [r.partition.name for r in replies if world.covered(r)[0][0] == "ag1"]
    await world.time.advance(1000)
    assert await world.names() == []


@given(
    st.integers(0, 6), st.integers(0, 6), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 63)))
)
def test_a_free_subset_is_found_exactly_when_there_is_one(
    size_log: int, wanted_log: int, held: list[tuple[int, int]]
) -> None:
    size, wanted = 1 << size_log, 1 << wanted_log
    taken = 0
    for log, at in held:
        taken |= mask_of(at - at % (1 << log), 1 << log)
    found = free_subset(0, size, wanted, taken)
    free = [
        at
        for at in range(0, size - wanted + 1, wanted)
        if not any(taken >> i & 1 for i in range(at, at + wanted))
    ]
    assert (found in free) if free else found is None


def test_the_tightest_hole_is_taken() -> None:
    taken = mask_of(0, 1) | mask_of(8, 2)
    assert free_subset(0, 16, 1, taken) == 1
    assert free_subset(0, 16, 2, taken) in (2, 10)
    assert free_subset(0, 16, 4, taken) in (4, 12)
    assert free_subset(4, 4, 4, taken) == 4


async def test_a_fault_in_one_tick_lets_no_lease_live_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.acquire("p1", 4, create=True, ttl=5)
    faults = [RuntimeError("a fault")]
    tick = Reconciler.tick

    def faulty(self: Reconciler) -> None:
        while faults:
            raise faults.pop()
        tick(self)

    monkeypatch.setattr(Reconciler, "tick", faulty)
    await world.time.advance(6)
    assert await world.names() == []
    assert "RuntimeError: a fault" in caplog.text


async def test_leases_that_were_released_are_not_watched_until_their_end(world: World) -> None:
    """A lease may be granted for an hour and held for a moment, again and again."""
    leases = world.controller._state.leases
    kept = await world.acquire("p1", 4, create=True, ttl=3000)
    await world.create("p2", 4)
    for _ in range(4 * leases.STALE_ALLOWANCE):
        reply = await world.acquire("p2", 4, ttl=3600)
        await world.controller.release(ROOT, claim(reply))
    assert leases.watched <= leases.STALE_ALLOWANCE + 6
    await world.time.advance(3001)
    with pytest.raises(Fenced, match="the lease is over"):
        await world.controller.renew(ROOT, claim(kept))
