"""A partition moves to healthy devices when its own fail, if its creator allowed it."""

from __future__ import annotations

import pytest

from podwright.agents import Fault
from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.state._machine_calls import MachineFault as Silent
from podwright.errors import Fenced, PodwrightError
from podwright.wire import DeviceInfo, EventsRequest, ReadyState
from tests.controller.world import ALICE, ALL, ROOT, World, claim


async def fails(world: World, name: str) -> None:
    """A machine of the partition dies, and the server notices."""
    info = await world.get(name)
    machine = info.gcds[0][0].machine
    world.machines[machine].set_down(True)
    with pytest.raises(PodwrightError):
        await world.acquire(name, 0, reset=True, ttl=1000)


def places(info: object) -> set[str]:
    return {d.machine for gcd in info.gcds for d in gcd}  # type: ignore[attr-defined]


async def test_a_broken_partition_moves_and_its_old_devices_are_reset_before_reuse(
    world: World,
) -> None:
    before = await world.create("p1", 4, relocatable=True, caller=ALICE, num_gcds=2)
    await fails(world, "p1")
    await world.time.advance(10)
    after = await world.get("p1")
    assert after.ready_state is ReadyState.ACTIVE
    assert places(after).isdisjoint(places(before))
    assert (after.owner, after.num_gcds, after.size) == ("alice", 2, 4)
    (old,) = places(before)
    states = {d.device.machine: d.state for d in await devices(world)}
    assert states[old] == "DOWN"
    world.machines[old].heal()
    await world.time.advance(5)
    states = {d.device.machine: d.state for d in await devices(world)}
    assert states[old] == "FREE"
    await world.check()
    events = (await world.controller.list_events(ALICE, EventsRequest())).events
    assert "Relocate" in [e.what for e in events]


async def devices(world: World) -> list[DeviceInfo]:
    reply: list[DeviceInfo] = (await world.controller.list_devices(ROOT, ALL)).devices
    return reply


async def test_the_holder_of_a_partition_that_moves_is_told(world: World) -> None:
    await world.create("p1", 4, relocatable=True)
    held = await world.acquire("p1", 4, ttl=1000)
    machine = held.partition.gcds[0][0].machine
    world.machines[machine].set_down(True)
    state = world.controller._state
    state.mark_down(machine)
    await steps.mark_partition_broken(
        state, state.partitions["p1"], [Silent(machine, "it is silent", True)]
    )
    await world.time.advance(10)
    assert (await world.get("p1")).ready_state is ReadyState.ACTIVE
    with pytest.raises(Fenced):
        await world.controller.renew(ROOT, claim(held))
    again = await world.acquire("p1", 4)
    assert world.used(again) == []


async def test_a_partition_that_is_not_relocatable_stays_in_error(world: World) -> None:
    before = await world.create("p1", 4)
    await fails(world, "p1")
    await world.time.advance(30)
    after = await world.get("p1")
    assert after.ready_state is ReadyState.ERROR
    assert places(after) == places(before)


async def test_a_partition_that_finds_no_room_moves_once_there_is_some(world: World) -> None:
    await world.create("p1", 8, relocatable=True)
    await world.create("p2", 8)
    await fails(world, "p1")
    await world.time.advance(20)
    assert (await world.get("p1")).ready_state is ReadyState.ERROR
    await world.remove("p2")
    await world.time.advance(20)
    assert (await world.get("p1")).ready_state is ReadyState.ACTIVE


async def test_resets_that_keep_failing_move_a_partition_too(world: World) -> None:
    before = await world.create("p1", 4, relocatable=True)
    (machine,) = places(before)
    world.machines[machine].fail_next("reset", 1000, Fault.FAIL)
    assert (await world.reset("p1")).ready_state is ReadyState.ERROR
    await world.time.advance(120)
    after = await world.get("p1")
    assert after.ready_state is ReadyState.ACTIVE
    assert places(after) != {machine}
    world.machines[machine].heal()
    await world.time.advance(10)


@pytest.mark.parametrize("at", range(1, 8))
@pytest.mark.parametrize("after", [False, True])
async def test_a_move_arrives_although_the_server_is_killed_on_the_way(
    world: World, at: int, after: bool
) -> None:
    await world.create("p1", 4, relocatable=True)
    await fails(world, "p1")
    world.trigger.at, world.trigger.after = world.trigger.count + at, after
    ended = await world.until_killed(lambda: world.time.advance(12))
    world.trigger.at = 0
    if not ended:
        await world.start()
    await world.time.advance(30)
    info = await world.get("p1")
    assert info.ready_state is ReadyState.ACTIVE
    for machine in world.machines.values():
        machine.heal()
    await world.time.advance(10)
    await world.check()
    await world.remove("p1")
    await world.create("all", 16)
