"""What runs by itself, and what a person asks for, walks no partitions that it does not show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from podwright.controller import Caller, Role, Visible
from podwright.controller.hardware import _recovery
from podwright.controller.state import _partition_index as partition_index
from podwright.controller.state._records import LeaseRecord
from podwright.errors import NoCapacity, NotFound
from podwright.wire import (
    CreateRequest,
    EnqueueRequest,
    ExplainRequest,
    ListRequest,
    PartitionName,
    PartitionSpec,
    PoolHead,
    QuotaInfo,
    WaitRequest,
)
from tests.controller.world import ALICE, BOB, ROOT, World, virtually


class Walked(AssertionError):
    """All partitions were looked at."""


@pytest.fixture
def no_walk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call of this on, whoever walks all partitions fails."""

    def refuse(*_: object) -> NoReturn:
        raise Walked

    def begin() -> None:
        for name in ("records", "values", "items", "__iter__", "keys"):
            monkeypatch.setattr(partition_index.PartitionIndex, name, refuse)

    return begin


async def _filled(visible: Visible | None = None) -> World:
    world = World()
    await world.start()
    if visible is not None:
        world.controller._services.privacy.__init__(  # type: ignore[misc]
            world.controller._state, visible, world.controller._services.users.allocations_of
        )
    for number in range(6):
        await world.create(f"p{number}", 1, caller=BOB if number % 2 else ALICE)
    return world


@virtually
async def test_what_runs_by_itself_walks_no_partitions(no_walk: Callable[[], None]) -> None:
    world = await _filled()
    quota = QuotaInfo(user="alice", devices=5, partitions=4)
    await world.controller.set_quota(ROOT, quota)
    no_walk()
    await world.create("q0", 1, caller=ALICE)
    with pytest.raises(NoCapacity):
        await world.create("q1", 2, caller=ALICE)
    with pytest.raises(NoCapacity):
        await world.create("all", 16)
    await world.remove("q0")
    await world.time.advance(10.0)  # the timer, with its sweeps
    observer = world.controller.observer
    await observer.summary.refresh()
    assert observer.largest_owners() == [("alice", 3, 3), ("bob", 3, 3)]
    assert observer.lease_states() == {}
    assert observer.failed == 0
    assert sum(observer.partition_states.values()) == 6
    assert observer.machine_states()[1] == []
    await world.stop()


@virtually
async def test_a_freed_device_costs_what_waits_and_not_what_is_there(
    no_walk: Callable[[], None],
) -> None:
    """The timer and each freed device charge the guests for what they use."""
    world = await _filled()
    slurm = Caller("slurm", 64030, Role.SCHEDULER)
    head = PoolHead(cluster="pod16", job="job 7", owner="alice", sizes=[16], due=True)
    joined = WaitRequest(create=CreateRequest(spec=PartitionSpec(name="all", size=16)))
    await world.controller.enqueue(slurm, EnqueueRequest(guest="a", pools=[head]))
    await world.controller.wait(ALICE, joined)
    no_walk()
    await world.remove("p0")
    await world.time.advance(10.0)
    assert world.controller.observer.failed == 0
    await world.stop()


@virtually
async def test_what_is_asked_for_costs_what_is_shown(no_walk: Callable[[], None]) -> None:
    world = await _filled()
    controller = world.controller
    no_walk()
    page = await controller.list_partitions(ROOT, ListRequest(page_size=2, page_token="p1"))
    assert [one.name for one in page.partitions] == ["p2", "p3"]
    assert page.next_page_token == "p3"
    assert (await controller.get_partition(ROOT, PartitionName(name="p3"))).name == "p3"
    with pytest.raises(NotFound, match="p0, p1, p2, p3, p4 and 1 more"):
        await controller.get_partition(ROOT, PartitionName(name="none"))
    await controller.explain(ROOT, ExplainRequest(name="p3"))
    assert (await controller.list_leases(ROOT, ListRequest())).leases == []
    assert len((await controller.list_devices(ROOT, ListRequest(page_size=3))).devices) == 3
    await world.stop()


@virtually
async def test_who_sees_only_what_is_theirs_costs_only_that(no_walk: Callable[[], None]) -> None:
    world = await _filled(Visible(private=frozenset({"partitions"})))
    no_walk()
    page = await world.controller.list_partitions(BOB, ListRequest(page_size=2))
    assert [one.name for one in page.partitions] == ["p1", "p3"]
    page = await world.controller.list_partitions(
        BOB, ListRequest(page_size=2, page_token=page.next_page_token)
    )
    assert [one.name for one in page.partitions] == ["p5"]
    assert not page.next_page_token
    with pytest.raises(NotFound, match="There are: p1, p3, p5"):
        await world.controller.get_partition(BOB, PartitionName(name="p0"))
    await world.stop()


@virtually
async def test_a_start_makes_no_more_tasks_than_it_has_things_to_do() -> None:
    made, done = 0, []

    def counted(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        nonlocal made
        made += 1
        return asyncio.Task(coroutine, loop=loop, **more)

    async def work(thing: int) -> None:
        await asyncio.sleep(0)
        done.append(thing)

    asyncio.get_running_loop().set_task_factory(counted)
    await _recovery._for_each(range(3), work)
    assert (made, sorted(done)) == (3, [0, 1, 2])
    await _recovery._for_each(range(2 * _recovery.AT_ONCE), work)
    assert (made, len(done)) == (3 + _recovery.AT_ONCE, 3 + 2 * _recovery.AT_ONCE)


async def test_who_holds_a_lease_on_anothers_partition_finds_it() -> None:
    world = await _filled(Visible(private=frozenset({"partitions", "leases"})))
    slurm = Caller("slurm", 64030, Role.SCHEDULER)
    listed: Any = world.controller.list_partitions
    assert (await listed(slurm, ListRequest())).partitions == []
    entry = world.controller._state.partitions["p0"]
    lease = world.controller._state.add_lease(entry, _lease("p0", "slurm"))
    assert [one.name for one in (await listed(slurm, ListRequest())).partitions] == ["p0"]
    leases = (await world.controller.list_leases(slurm, ListRequest())).leases
    assert [one.id for one in leases] == [lease.record.id]
    world.controller._state.drop_leases(entry, [lease])
    assert (await listed(slurm, ListRequest())).partitions == []
    assert (await world.controller.list_leases(slurm, ListRequest())).leases == []
    await world.stop()


def _lease(partition: str, owner: str) -> LeaseRecord:
    return LeaseRecord(
        id="l1", partition=partition, epoch=1, owner=owner, first=0, count=1, ttl=300.0
    )
