"""Each launch divides a partition whose counts were left open, and none divides one with counts."""

from __future__ import annotations

import pytest

from podwright.errors import InvalidRequest, WrongState
from podwright.fabric import preset
from tests.controller.test_partitions import complete
from tests.controller.world import World


async def test_a_launch_divides_what_was_left_open(world: World) -> None:
    made = await world.create("p1", 8)
    assert (made.num_gcds, made.num_replicas) == (1, 1)
    reply = await world.acquire("p1", 8, num_gcds=2, num_replicas=2)
    shown = reply.partition
    assert (shown.num_gcds, shown.num_replicas) == (2, 2)
    assert [[d.offset for d in gcd] for gcd in shown.gcds] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert not reply.created
    await world.release(reply)
    assert (await world.get("p1")).num_gcds == 2, "it stands until the next launch"
    again = await world.acquire("p1", 8, num_gcds=8, num_replicas=8, reset=False)
    assert again.partition.num_gcds == 8
    await world.check()
    await world.release(again)
    as_it_is = await world.acquire("p1", 8)
    assert as_it_is.partition.num_gcds == 8
    await world.release(as_it_is)
    await world.remove("p1")
    await world.create("all", 16)


async def test_the_division_is_written_down_with_the_lease(world: World) -> None:
    await world.create("p1", 8)
    await world.acquire("p1", 8, num_gcds=4)
    await world.restart()
    info = await world.get("p1")
    assert (info.num_gcds, len(info.gcds), len(info.leases)) == (4, 4, 1)
    await world.remove("p1", force=True)
    await world.create("all", 16)


async def test_counts_that_were_said_must_match(world: World) -> None:
    await world.create("p1", 8, num_gcds=2)
    with pytest.raises(WrongState, match="GCDs 2 instead of 4"):
        await world.acquire("p1", 8, num_gcds=4)
    reply = await world.acquire("p1", 8, num_gcds=2, num_replicas=4)
    assert reply.partition.num_replicas == 4, "replicas were left open"
    await world.create("p2", 8, num_replicas=2)
    with pytest.raises(WrongState, match="replicas 2 instead of 4"):
        await world.acquire("p2", 8, num_replicas=4)
    with pytest.raises(InvalidRequest) as caught:
        await world.acquire("p2", 8, num_gcds=8)
    complete(caught.value)
    assert caught.value.data["nearest"] == [1, 2]


async def test_a_division_that_cannot_be_changes_nothing(world: World) -> None:
    before = await world.create("p1", 4)
    for gcds in (3, 8):
        with pytest.raises(InvalidRequest) as caught:
            await world.acquire("p1", 4, num_gcds=gcds)
        complete(caught.value)
    with pytest.raises(InvalidRequest, match="replicas"):
        await world.acquire("p1", 4, num_gcds=2, num_replicas=3)
    assert await world.get("p1") == before


async def test_a_gcd_stays_in_its_link_domain() -> None:
    world = World([preset("pod128")])
    await world.start()
    made = await world.create("p1", 32, num_ilds=2)
    assert made.num_gcds == 2, "the fewest that two link domains allow"
    with pytest.raises(InvalidRequest):
        await world.acquire("p1", 32, num_gcds=1)
    reply = await world.acquire("p1", 32, num_gcds=4)
    assert [{d.domain for d in gcd} for gcd in reply.partition.gcds] == [{0}, {0}, {1}, {1}]
    assert (await world.create("p2", 8)).num_gcds == 1
    await world.check()
    await world.stop()


async def test_a_reconfigurable_partition_is_never_divided_into_gcds(world: World) -> None:
    await world.create("r", 4, reconfigurable=True)
    with pytest.raises(WrongState, match="GCDs"):
        await world.acquire("r", 4, num_gcds=2)
