"""The controller over machines with GPUs, with the sizes and shapes of these machines."""

from __future__ import annotations

import asyncio
import random

import pytest

from podwright.errors import InvalidRequest, NoCapacity
from podwright.fabric import gpu_family, preset, simulated_gpus
from podwright.wire import CreateRequest, PartitionSpec, ReadyState, WaitRequest
from tests.controller.world import ALL, ROOT, World


@pytest.fixture
async def row() -> World:
    """Four machines of 8 GPUs on a network."""
    world = World([preset("hgx8x4")])
    await world.start()
    return world


async def test_sizes_that_are_no_power_of_two(row: World) -> None:
    made = await row.create("p1", 3)
    assert (made.size, made.num_gcds, made.num_ilds) == (3, 1, 1)
    many = await row.create("p2", 24)
    assert (many.num_gcds, many.num_ilds) == (3, 3)
    assert [{d.machine for d in gcd} for gcd in many.gcds] == [{"gpu2"}, {"gpu3"}, {"gpu4"}]
    with pytest.raises(NoCapacity, match="6 GPUs are asked for and 5 are free"):
        await row.create("p3", 6)
    with pytest.raises(InvalidRequest, match="whole machines of 8"):
        await row.create("p3", 12)
    with pytest.raises(InvalidRequest, match="not reconfigurable"):
        await row.create("p3", 4, reconfigurable=True)
    await row.check()
    await row.stop()


async def test_a_rack_gives_no_more_than_is_asked_for() -> None:
    """A partition that does not consist of whole trays has GCDs as large as its last tray
    allows.
    """
    world = World([preset("nvl72")])
    await world.start()
    made = [await world.create(f"p{size}", size) for size in (6, 7, 2, 13)]
    assert [info.num_gcds for info in made] == [3, 7, 1, 13]
    assert [{d.machine for gcd in info.gcds for d in gcd} for info in made[:3]] == [
        {"gpu1", "gpu2"},
        {"gpu3", "gpu4"},
        {"gpu2"},
    ]
    await world.restart()
    assert [await world.get(info.name) for info in made] == made
    with pytest.raises(InvalidRequest, match="of 72 at most"):
        await world.create("more", 74)
    for info in made:
        await world.remove(info.name)
    assert (await world.create("all", 71)).size == 71
    await world.check()
    await world.stop()


async def test_a_restart_finds_partitions_of_gpus_as_they_were(row: World) -> None:
    before = [await row.create("p1", 5, num_gcds=5), await row.create("p2", 16)]
    await row.restart()
    assert [await row.get(info.name) for info in before] == before
    for info in before:
        assert info.ready_state is ReadyState.ACTIVE
        await row.remove(info.name)
    assert (await row.create("all", 32)).num_gcds == 4
    await row.check()
    await row.stop()


async def test_a_launch_divides_a_partition_of_gpus_as_it_needs(row: World) -> None:
    await row.create("p1", 6)
    for gcds in (6, 2, 3, 1):
        reply = await row.acquire("p1", 6, num_gcds=gcds, num_replicas=gcds)
        assert [len(gcd) for gcd in reply.partition.gcds] == [6 // gcds] * gcds
        await row.release(reply)
    with pytest.raises(InvalidRequest, match="do not divide into 4 GCDs"):
        await row.acquire("p1", 6, num_gcds=4)
    await row.check()
    await row.stop()


async def test_everybody_who_waits_gets_something() -> None:
    """Random sizes and lives run on small machines, with a queue that keeps devices."""
    rng = random.Random(5)
    world = World([simulated_gpus("small", gpu_family("gpu4", 4, 12), 2)])
    await world.start()
    longest, ended = 0, 0
    for step in range(250):
        size = rng.choice((1, 1, 2, 3, 3, 4, 8, 12, 16))
        wanted = CreateRequest(
            spec=PartitionSpec(name=f"w{step}", size=size), duration=rng.choice((0.0, 5.0, 50.0))
        )
        if rng.random() < 0.6:
            await world.controller.wait(ROOT, WaitRequest(create=wanted))
        names = await world.names()
        if names and rng.random() < 0.5:
            await world.remove(rng.choice(names))
            ended += 1
        line = await world.controller.list_waiters(ROOT, ALL)
        longest = max(longest, len(line.waiters))
        await world.time.advance(rng.choice((0.25, 1.0)))
        while world.controller._state.tasks:
            await asyncio.wait(world.controller._state.tasks)
        if step % 50 == 49:
            await world.restart()
    for _ in range(400):  # all end in the end
        for name in await world.names():
            await world.remove(name)
        await world.time.advance(1.0)
        while world.controller._state.tasks:
            await asyncio.wait(world.controller._state.tasks)
        if not (await world.controller.list_waiters(ROOT, ALL)).waiters:
            break
    assert (await world.controller.list_waiters(ROOT, ALL)).waiters == []
    assert longest > 10
    assert ended > 50
    for name in await world.names():
        await world.remove(name)
    assert (await world.create("all", 24)).size == 24
    await world.check()
    await world.stop()
