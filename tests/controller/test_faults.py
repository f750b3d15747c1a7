"""Machines that fail, fall silent, hang, lose replies or come back, and stores that fail."""

from __future__ import annotations

import pytest

from podwright.agents import Fault
from podwright.controller import Controller
from podwright.errors import Fenced, PodwrightError, Unavailable, WrongState
from podwright.store import MemoryStore, Put
from podwright.wire import OperationState, ReadyState
from tests.controller.world import ALICE, ALL, ROOT, World, claim, virtually

ERROR = (ReadyState.ERROR, OperationState.FAILED)


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.SILENT, Fault.LOST_REPLY])
async def test_a_machine_that_does_not_configure_leaves_an_error(
    world: World, fault: Fault
) -> None:
    world.machines["ag2"].fail_next("configure", fault=fault)
    info = await world.create("p1", 8, auto_reset=False)
    assert (info.ready_state, info.operation_state) == ERROR
    assert "ag2" in info.errors[0]
    await world.check()
    await world.time.advance(60)
    assert (await world.get("p1")).ready_state is ReadyState.ERROR
    assert (await world.reset("p1")).ready_state is ReadyState.ACTIVE


@virtually
async def test_a_machine_that_hangs_is_given_up_and_fenced() -> None:
    world = World(driver_timeout=0.02)
    await world.start()
    world.machines["ag1"].fail_next("configure", fault=Fault.HANG)
    info = await world.create("p1", 4, auto_reset=False)
    assert (info.ready_state, info.operation_state) == ERROR
    assert "does not answer within" in info.errors[0]
    await world.reset("p1")
    with pytest.raises(Fenced):  # what hung comes to life, too late
        await world.machines["ag1"].configure("p1", info.epoch, [0, 1, 2, 3])
    await world.stop()


async def test_an_unhealthy_device_is_shown_and_named(world: World) -> None:
    world.machines["ag1"].set_healthy(2, False)
    info = await world.create("p1", 4)
    assert "2 of machine ag1 is unhealthy" in info.errors[0]


async def test_the_server_resets_by_itself_a_few_times(world: World) -> None:
    world.machines["ag1"].fail_next("configure", 3)
    assert (await world.create("p1", 4)).ready_state is ReadyState.ERROR
    await world.time.advance(60)
    info = await world.get("p1")
    assert info.ready_state is ReadyState.ACTIVE
    assert (info.auto_reset_count, info.auto_reset_max) == (3, 3)
    assert info.auto_reset_last > 0
    world.machines["ag1"].fail_next("reset", 50)
    await world.reset("p1")
    await world.time.advance(600)
    info = await world.get("p1")
    assert (info.ready_state, info.auto_reset_count) == (ReadyState.ERROR, 3)
    world.machines["ag1"].heal()
    info = await world.reset("p1")
    assert (info.ready_state, info.auto_reset_count) == (ReadyState.ACTIVE, 0)


async def test_a_held_partition_is_never_reset_automatically(world: World) -> None:
    await world.create("r", 8, reconfigurable=True)
    holder = await world.acquire("r", 4)
    world.machines["ag2"].fail_next("configure")
    with pytest.raises(WrongState):
        await world.acquire("r", 4)
    for _ in range(10):
        await world.time.advance(5)
        await world.controller.renew(ROOT, claim(holder))
    assert (await world.get("r")).ready_state is ReadyState.ERROR
    await world.release(holder)
    await world.time.advance(20)
    assert (await world.get("r")).ready_state is ReadyState.ACTIVE


async def test_removal_from_a_silent_machine_fails_unless_forced(world: World) -> None:
    await world.create("p1", 8, auto_reset=False)
    world.machines["ag2"].set_down(True)
    with pytest.raises(WrongState, match="ag2 does not answer") as caught:
        await world.remove("p1")
    assert "force" in caught.value.would_work
    assert (await world.get("p1")).ready_state is ReadyState.ERROR
    await world.remove("p1", force=True)
    assert await world.names() == []
    # The devices of the other machine are free at once; those of the silent one only when
    # they were reset.
    assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == 12
    await world.check()
    await world.restart()
    await world.check()
    assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == 12
    world.machines["ag2"].set_down(False)
    await world.time.advance(3)
    assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == 16
    assert [d.partition for d in world.machines["ag2"].devices] == [""] * 4
    await world.create("p2", 16)


async def test_a_machine_that_fails_to_release_keeps_its_devices_from_everybody(
    world: World,
) -> None:
    reply = await world.acquire("", 4, create=True)
    world.use(reply)
    world.machines["ag1"].fail_next("release", 2)
    await world.release(reply)
    assert await world.names() == []
    assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == 12
    await world.time.advance(5)
    assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == 16


async def test_a_silent_machine_at_the_start_turns_its_partitions_to_error(world: World) -> None:
    await world.create("p1", 4)
    await world.create("p2", 4)
    world.machines["ag1"].set_down(True)
    await world.restart()
    info = await world.get("p1")
    assert (info.ready_state, info.operation_state) == ERROR
    assert info.errors == ["machine ag1 does not answer"]
    assert (await world.get("p2")).ready_state is ReadyState.ACTIVE
    world.machines["ag1"].set_down(False)
    await world.time.advance(10)
    assert (await world.get("p1")).ready_state is ReadyState.ACTIVE


async def test_a_machine_that_forgot_is_set_up_again_at_the_start(world: World) -> None:
    await world.create("p1", 8)
    reply = await world.acquire("p1", 8)
    world.machines["ag2"].power_cycle()
    await world.restart()
    await world.check()
    await world.controller.renew(ROOT, claim(reply))


async def test_a_running_program_is_left_alone_by_a_restart(world: World) -> None:
    await world.create("p1", 4)
    reply = await world.acquire("p1", 4)
    world.use(reply)
    before = len(world.machines["ag1"].calls)
    await world.restart()  # within the time in which outcomes wait for company
    assert [c.kind for c in world.machines["ag1"].calls[before:]] == ["describe"]
    assert world.used(reply) == ["p1"] * 4
    assert (await world.get("p1")).ready_state is ReadyState.ACTIVE


async def test_strays_are_released_at_the_start(world: World) -> None:
    await world.machines["ag3"].configure("ghost", 1, [0, 1])
    await world.restart()
    assert world.machines["ag3"].devices[0].partition == ""
    await world.create("p1", 16)


@pytest.mark.parametrize("durable", [False, True])
async def test_a_commit_that_fails_stops_the_controller_and_a_new_one_knows_the_truth(
    world: World, durable: bool
) -> None:
    await world.create("p1", 4)
    await world.controller.list_partitions(ROOT, ALL)
    world.store.fail(durable=durable)
    with pytest.raises(Unavailable):
        await world.create("p2", 4)
    assert world.controller.failure is not None
    for work in (
        lambda: world.create("p3", 4),
        lambda: world.get("p1"),
        lambda: world.remove("p1"),
        lambda: world.acquire("p1", 4),
    ):
        with pytest.raises(Unavailable, match="its store failed") as caught:
            await work()
        assert "restart" in caught.value.would_work
    await world.restart()
    assert await world.names() == (["p1", "p2"] if durable else ["p1"])
    await world.check()


async def test_a_server_that_another_has_replaced_does_nothing_more(world: World) -> None:
    await world.create("p1", 4)
    await world.store.reopened().open()
    with pytest.raises(Fenced):
        await world.create("p2", 4)
    with pytest.raises(Unavailable):
        await world.names()
    assert [d.partition for d in world.machines["ag2"].devices] == [""] * 4
    await world.kill()


async def test_a_store_of_a_newer_version_is_refused() -> None:
    world = World()
    store = MemoryStore()
    await store.open()
    await store.commit([Put("meta", "schema", b'{"version":99}')])
    controller = Controller(store.reopened(), world.clusters, world.machines, version="test")
    with pytest.raises(Unavailable, match="newer Podwright"):
        await controller.start()


async def test_a_cluster_that_is_gone_leaves_its_partitions_to_be_removed() -> None:
    world = World()
    await world.start()
    await world.create("p1", 4)
    await world.stop()
    other = World([type(world.clusters[0])("other", world.clusters[0].family, ())])
    other.store = world.store
    await other.start()
    info = await other.get("p1")
    assert (info.ready_state, info.operation_state) == ERROR
    assert "no longer in cluster" in info.errors[0]
    await other.remove("p1")
    assert await other.names() == []
    await other.stop()


async def test_before_the_start_and_after_the_end_nothing_is_served(world: World) -> None:
    fresh = Controller(MemoryStore(), world.clusters, world.machines, version="test")
    with pytest.raises(Unavailable, match="not started"):
        await fresh.list_partitions(ROOT, ALL)
    await world.stop()
    with pytest.raises(Unavailable, match="closed"):
        await world.create("p1", 4, caller=ALICE)


async def test_an_orderly_end_leaves_a_store_that_needs_no_repair(world: World) -> None:
    await world.create("p1", 4)
    await world.stop()
    calls = {name: len(m.calls) for name, m in world.machines.items()}
    commits = world.store.commits
    await world.start()
    assert world.store.commits == 0
    assert commits > 0
    assert {
        name: [c.kind for c in m.calls[calls[name] :]] for name, m in world.machines.items()
    } == {name: ["describe"] for name in world.machines}


async def test_errors_are_refusals_and_nothing_else(world: World) -> None:
    world.machines["ag1"].fail_next("configure", 10)
    for _ in range(3):
        with pytest.raises(PodwrightError):
            await world.acquire("p1", 4, create=True)


async def test_a_full_disk_stops_changes_and_nothing_else(world: World) -> None:
    """Memory equals the written state, so reads work, and leases are renewed."""
    reply = await world.acquire("", 4, create=True)
    full = Unavailable("the disk of the store x is full", full=True)
    world.store.fail(1, lasting=True, error=full)
    with pytest.raises(Unavailable, match="is full"):
        await world.create("p2", 4)
    controller = world.controller
    assert controller.read_only is full
    assert await world.names() == [reply.partition.name]
    await controller.renew(ROOT, claim(reply))
    with pytest.raises(Unavailable, match="store failed"):
        await world.create("p3", 4)
    await world.restart()
    assert await world.names() == [reply.partition.name]
    await world.create("p2", 4)
