"""Explanations why a request cannot start: fragmentation, other partitions, machines, limits.

They also name what would start.
"""

from __future__ import annotations

from typing import Any

import pytest

from podwright.errors import InvalidRequest, NoCapacity, NotFound
from podwright.fabric import preset
from podwright.wire import (
    CreateRequest,
    DrainRequest,
    ExplainRequest,
    Explanation,
    PartitionSpec,
    WaitRequest,
)
from tests.controller.world import ALICE, BOB, ROOT, World


async def explain(world: World, size: int, **spec: Any) -> Explanation:
    request = ExplainRequest(spec=PartitionSpec(name="", size=size, **spec))
    reply: Explanation = await world.controller.explain(ALICE, request)
    return reply


async def test_what_would_start_says_so_and_takes_nothing(world: World) -> None:
    found = await explain(world, 16)
    assert found.starts_now
    assert (await explain(world, 16)).starts_now


async def test_fragmentation_and_whose_partitions(world: World) -> None:
    for n in range(4):
        await world.create(f"p{n}", 4, caller=(ALICE, BOB)[n % 2])
    await world.remove("p0")
    await world.remove("p2")
    held = await world.acquire("p1", 4, caller=BOB, holder="train")
    found = await explain(world, 8)
    assert not found.starts_now
    assert (found.free, found.largest, found.fragmented) == (8, 4, True)
    assert [(p.partition, p.owner, p.holders) for p in found.partitions] == [
        ("p1", "bob", ["train"]),
        ("p3", "bob", []),
    ]
    assert found.nearest is not None
    assert found.nearest.size == 4
    assert any("scattered" in line for line in found.lines)
    await world.release(held, caller=BOB)


async def test_a_refusal_carries_the_same(world: World) -> None:
    await world.create("p1", 8, caller=ALICE)
    found = await explain(world, 16)
    with pytest.raises(NoCapacity) as caught:
        await world.create("p2", 16)
    data = caught.value.data
    assert data["nearest"]["size"] == 8 == found.largest
    assert data["partitions"][0]["partition"] == "p1" == found.partitions[0].partition
    assert found.problem == caught.value.problem


async def test_the_nearest_would_really_start(world: World) -> None:
    await world.create("p1", 8)
    for size in (1, 2, 4, 8, 16):
        found = await explain(world, size)
        if not found.starts_now:
            assert found.nearest is not None
            spec = PartitionSpec(
                **{
                    **{f: getattr(found.nearest, f) for f in found.nearest.__struct_fields__},
                    "name": "near",
                }
            )
            await world.controller.create_partition(ROOT, CreateRequest(spec=spec))
            await world.remove("near")


async def test_an_allocations_bounds() -> None:
    halves = {"pod16": {"a1": ["ag1", "ag2"], "a2": ["ag3", "ag4"]}}
    world = World([preset("pod16")], allocations=halves)
    await world.start()
    await world.create("p1", 8, allocation="a1")
    found = await explain(world, 8, allocation="a1")
    assert found.nearest is not None
    assert (found.nearest.size, found.nearest.allocation) == (8, "")
    assert "elsewhere" in found.would_work
    with pytest.raises(InvalidRequest):
        await explain(world, 16, allocation="a1")
    await world.check()
    await world.stop()


async def test_machines_that_are_drained_or_silent(world: World) -> None:
    await world.controller.drain_machine(ROOT, DrainRequest(name="ag1"))
    found = await explain(world, 16)
    assert found.drained == ["ag1"]
    assert "machine ag1 is drained" in found.lines
    await world.controller.drain_machine(ROOT, DrainRequest(name="ag1", reason="fan 3 is loud"))
    found = await explain(world, 16)
    assert "machine ag1 is drained: fan 3 is loud" in found.lines
    assert found.drain_reasons == {"ag1": "fan 3 is loud"}


async def test_waiters_leases_and_partitions_by_name(world: World) -> None:
    await world.create("p1", 16, caller=ALICE)
    lease = await world.acquire("p1", 16, caller=ALICE, holder="train")
    wanted = CreateRequest(spec=PartitionSpec(name="p2", size=8))
    waiter = (await world.controller.wait(BOB, WaitRequest(create=wanted))).waiter
    for name, words in {
        "p1": ("held", "waiter"),
        lease.lease.id: ("train", waiter.id),
        waiter.id: ("place 1", "p1 of alice"),
    }.items():
        found = await world.controller.explain(BOB, ExplainRequest(name=name))
        text = " ".join(found.lines)
        assert name in found.asked
        for word in words[1:] if name == "p1" else words:
            assert word in text, (name, text)
    with pytest.raises(NotFound):
        await world.controller.explain(BOB, ExplainRequest(name="nobody"))


async def test_what_a_dead_machine_holds_is_promised_to_nobody(world: World) -> None:
    made = await world.create("p1", 4)
    machine = made.gcds[0][0].machine
    found = await world.controller.explain(ROOT, ExplainRequest(name="p1"))
    assert found.starts_now
    world.machines[machine].set_down(True)
    assert (await world.reset("p1")).ready_state.value == "ERROR"
    found = await world.controller.explain(ROOT, ExplainRequest(name="p1"))
    assert not found.starts_now
    assert f"machine {machine} does not answer" in found.lines
    assert "nobody holds it, and no launch can have it as it is" in found.lines
    assert not [line for line in found.lines if "at once" in line]
