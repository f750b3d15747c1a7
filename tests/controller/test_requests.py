"""A client that lost its reply repeats the request under the same id, and it is done only once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from podwright.agents import Fault
from podwright.controller.state._request_ids import REMEMBERED_S, REQUEST_KIND
from podwright.errors import InvalidRequest, NoCapacity, NotFound, WrongState
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    CreateRequest,
    PartitionInfo,
    PartitionSpec,
    RemoveRequest,
    ResetRequest,
)
from tests.controller.world import ALICE, ALL, ROOT, World, claim


@pytest.fixture
async def world() -> World:
    made = World()
    await made.start()
    return made


async def create(world: World, name: str, request_id: str, size: int = 4) -> PartitionInfo:
    spec = PartitionSpec(name=name, size=size)
    reply: PartitionInfo = await world.controller.create_partition(
        ROOT, CreateRequest(spec=spec, request_id=request_id)
    )
    return reply


async def remove(world: World, name: str, request_id: str, *, force: bool = False) -> None:
    request = RemoveRequest(name=name, request_id=request_id, force=force)
    await world.controller.remove_partition(ROOT, request)


async def reset(world: World, name: str, request_id: str) -> PartitionInfo:
    reply: PartitionInfo = await world.controller.reset_partition(
        ROOT, ResetRequest(name=name, request_id=request_id)
    )
    return reply


async def acquire(world: World, name: str, request_id: str, **options: Any) -> AcquireReply:
    request = AcquireRequest(
        spec=PartitionSpec(name=name, size=options.pop("size", 4)),
        request_id=request_id,
        **options,
    )
    reply: AcquireReply = await world.controller.acquire(ROOT, request)
    return reply


async def leases(world: World) -> int:
    return len((await world.controller.list_leases(ROOT, ALL)).leases)


async def test_a_repeated_request_is_not_carried_out_again(world: World) -> None:
    made = await create(world, "p", "1")
    assert await create(world, "p", "1") == made
    held = await acquire(world, "p", "2")
    again = await acquire(world, "p", "2")
    assert (again.lease.id, again.lease.epoch, again.created) == (
        held.lease.id,
        held.lease.epoch,
        False,
    )
    assert await leases(world) == 1
    await world.release(held)
    await remove(world, "p", "3")
    await remove(world, "p", "3")
    assert await world.names() == []


async def test_what_came_since_is_left_alone(world: World) -> None:
    await create(world, "p", "1")
    await remove(world, "p", "2")
    with pytest.raises(NotFound, match="was there, and has been removed since"):
        await create(world, "p", "1")
    await world.time.advance(1)
    other = await create(world, "p", "3", size=2)
    await remove(world, "p", "2")  # asked late: that one had gone long ago
    with pytest.raises(NotFound):
        await create(world, "p", "1")
    assert await create(world, "p", "3", size=2) == other


async def test_two_simultaneous_requests_of_one_id_are_carried_out_once(world: World) -> None:
    for machine in world.machines.values():
        machine.delay("configure", 1.0)
    both = asyncio.gather(*(create(world, "p", "1") for _ in range(3)))
    await world.time.advance(2)
    assert len({info.created_at for info in await both}) == 1
    replies = asyncio.gather(*(acquire(world, "x", "2", create=True) for _ in range(3)))
    await world.time.advance(2)
    assert {reply.created for reply in await replies} == {True}
    assert await leases(world) == 1


async def test_a_refusal_is_not_remembered(world: World) -> None:
    await create(world, "large", "1", size=16)
    with pytest.raises(NoCapacity):
        await create(world, "p", "2")
    await remove(world, "large", "3")
    assert (await create(world, "p", "2")).name == "p"


async def test_a_lease_that_is_over_is_acquired_anew(world: World) -> None:
    await create(world, "p", "1")
    held = await acquire(world, "p", "2")
    await world.release(held)
    again = await acquire(world, "p", "2")
    assert again.lease.epoch > held.lease.epoch
    assert await leases(world) == 1


async def test_a_removal_that_failed_is_tried_again(world: World) -> None:
    info = await create(world, "p", "1")
    machine = world.machines[info.gcds[0][0].machine]
    machine.fail_next("release", 1, Fault.FAIL)
    with pytest.raises(WrongState):
        await remove(world, "p", "2")
    await remove(world, "p", "2")
    assert await world.names() == []


async def test_an_id_belongs_to_one_request_of_one_caller(world: World) -> None:
    await create(world, "p", "1")
    with pytest.raises(InvalidRequest, match="was another request's"):
        await remove(world, "p", "1")
    with pytest.raises(InvalidRequest, match="was another request's"):
        await create(world, "q", "1")
    mine = await world.controller.create_partition(
        ALICE, CreateRequest(spec=PartitionSpec(name="a", size=1), request_id="1")
    )
    assert mine.owner == "alice"
    with pytest.raises(InvalidRequest, match="too long"):
        await create(world, "r", "x" * 65)
    with pytest.raises(InvalidRequest, match="not printable"):
        await create(world, "r", "x\n")


async def test_ids_are_forgotten_in_time(world: World) -> None:
    await create(world, "p", "old")
    await world.time.advance(REMEMBERED_S + 1)
    for number in range(3):
        await reset(world, "p", f"new-{number}")
    await world.stop()
    kept = {
        key for kind, key in (await world.store.reopened().open()).records if kind == REQUEST_KIND
    }
    assert kept == {f"root/new-{n}" for n in range(3)}


Step = Callable[[World], Awaitable[Any]]
STEPS: dict[str, tuple[Step, Step]] = {
    # name: (what is there before, what is asked for and may be asked again)
    "create": (lambda w: asyncio.sleep(0), lambda w: create(w, "p", "id")),
    "reset": (lambda w: create(w, "p", ""), lambda w: reset(w, "p", "id")),
    "remove": (lambda w: create(w, "p", ""), lambda w: remove(w, "p", "id")),
    "acquire": (lambda w: create(w, "p", ""), lambda w: acquire(w, "p", "id")),
    "unreset": (lambda w: create(w, "p", ""), lambda w: acquire(w, "p", "id", reset=False)),
    "make": (lambda w: asyncio.sleep(0), lambda w: acquire(w, "p", "id", create=True)),
    "update": (
        lambda w: create(w, "p", "", size=2),
        lambda w: acquire(w, "p", "id", update=True, keep=True),
    ),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", list(STEPS))
async def test_killed_anywhere_and_asked_again(step: str, after: bool) -> None:
    prepare, ask = STEPS[step]
    for k in range(1, 20):
        world = World()
        await world.start()
        await prepare(world)
        world.trigger.at = world.trigger.count + k
        world.trigger.after = after
        ended = await world.until_killed(lambda: ask(world))  # noqa: B023 (called within the loop)
        world.trigger.at = 0
        if not ended:
            await world.start()
        outcome = await ask(world)
        assert await world.names() == ([] if step == "remove" else ["p"])
        assert await leases(world) == isinstance(outcome, AcquireReply), (k, outcome)
        if isinstance(outcome, AcquireReply):
            world.use(outcome)
            await world.controller.renew(ROOT, claim(outcome))
            assert outcome.partition.size == 4
            assert outcome.created or step != "make"
        await world.check()
        await world.stop()
        if ended:
            break
    else:
        pytest.fail("it never came to its end")
    assert k > 2
