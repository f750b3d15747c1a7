"""A cluster in use gets more machines, or a replacement for one, and running programs go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from podwright.errors import Denied, InvalidRequest, NotFound, PodwrightError, WrongState
from podwright.wire import (
    AllocationRequest,
    ClusterChange,
    ClusterInfo,
    DrainRequest,
    ListRequest,
    Named,
    RemoveRequest,
)
from tests.controller.test_agents import SILENCE, Site
from tests.controller.world import ALICE, ALL, ROOT


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.start()
    await made.agents("ag1", "ag2", "ag3", "ag4")
    yield made
    await made.controller.close()


async def change(site: Site, name: str = "c1", **fields: Any) -> ClusterInfo:
    reply: ClusterInfo = await site.controller.change_cluster(
        ROOT, ClusterChange(name=name, **fields)
    )
    return reply


async def restarted(site: Site) -> None:
    await site.controller.close()
    await site.start()


async def where(site: Site, name: str) -> list[tuple[str, int]]:
    return [(d.machine, d.index) for gcd in (await site.partition(name)).gcds for d in gcd]


async def test_a_machine_joins_a_cluster_that_is_in_use(site: Site) -> None:
    await site.cluster("c1", "ag1", "ag2")
    await site.create("p1", 4)
    before = await where(site, "p1")
    preview = await change(site, add=["ag3"], dry_run=True)
    assert (preview.size, preview.free, preview.ild_sizes) == (12, 8, [12])
    (now,) = (await site.controller.list_clusters(ROOT, ALL)).clusters
    assert now.size == 8
    after = await change(site, add=["ag3", "ag4"])
    assert (after.size, after.free, after.ild_sizes, after.down) == (16, 12, [16], [])
    assert await where(site, "p1") == before
    await site.create("p2", 8)
    for _ in range(2):
        assert {m for m, _ in await where(site, "p2")} == {"ag3", "ag4"}
        assert await where(site, "p1") == before
        await restarted(site)
    await site.controller.remove_partition(ALICE, RemoveRequest(name="p2"))
    await site.controller.remove_partition(ALICE, RemoveRequest(name="p1"))
    (left,) = (await site.controller.list_clusters(ROOT, ALL)).clusters
    assert (left.size, left.free) == (16, 16)


async def test_machines_make_a_new_link_domain(site: Site) -> None:
    await site.cluster("c1", "ag1", "ag2", num_ilds=2)
    with pytest.raises(InvalidRequest, match="not clear where 2 machines belong"):
        await change(site, add=["ag3", "ag4"])
    assert (await change(site, add=["ag3"])).ild_sizes == [4, 4, 4]
    assert (await change(site, add=["ag4"], link_domain="ild0")).ild_sizes == [8, 4, 4]


async def test_another_machine_replaces_a_dead_one(site: Site) -> None:
    await site.cluster("c1", "ag1", "ag2", "ag3")
    halves = {"left": ["ag1"], "right": ["ag2"]}
    for name, agents in halves.items():
        request = AllocationRequest(name=name, cluster="c1", agents=agents)
        await site.controller.create_allocation(ROOT, request)
    await site.create("p1", 4)
    (one,) = {m for m, _ in await where(site, "p1")}
    other = "ag2" if one == "ag1" else "ag1"
    with pytest.raises(WrongState, match=f"machine {one} has p1 on it"):
        await change(site, replace=one, by="ag4")
    await site.controller.drain_machine(ROOT, DrainRequest(name=one))
    site.machines[one].set_down(True)
    await site.until(2 * SILENCE, lambda: one in site.controller._state.down)
    await site.controller.remove_partition(ROOT, RemoveRequest(name="p1", force=True))
    await change(site, replace=one, by="ag4", dry_run=True)
    after = await change(site, replace=one, by="ag4")
    assert set(after.machines) == {other, "ag3", "ag4"}
    assert (after.down, after.drained, after.free) == ([], [], 8)  # ag3 is in no allocation
    for _ in range(2):
        listed = (await site.controller.list_allocations(ROOT, ALL)).allocations
        assert sorted(a.agents[0] for a in listed) == sorted([other, "ag4"])
        states = await site.states()
        assert {states[f"ag4/{i}"] for i in range(4)} == {"FREE"}
        assert not any(name.startswith(f"{one}/") for name in states)
        await restarted(site)
    await site.create("p2", 4)
    await site.create("p3", 4)
    assert {m for p in ("p2", "p3") for m, _ in await where(site, p)} == {other, "ag4"}
    await site.controller.remove_agent(ROOT, Named(name=one))


async def test_what_came_with_devices_is_gone_before_they_serve(site: Site) -> None:
    """A machine that joins may contain somebody's data, so it is reset first."""
    await site.cluster("c1", "ag1")
    await site.machines["ag2"].configure("old", 1, [0, 1, 2, 3])
    await change(site, add=["ag2"])
    assert [d.partition for d in site.machines["ag2"].devices] == [""] * 4
    await site.create("p1", 8)
    assert site.machines["ag2"].violations == []


async def test_a_silent_machine_joins_and_serves_once_it_answers(site: Site) -> None:
    await site.cluster("c1", "ag1")
    site.machines["ag2"].set_down(True)
    assert (await change(site, add=["ag2"])).down == ["ag2"]
    site.machines["ag2"].set_down(False)
    await site.until(30, lambda: "ag2" not in site.controller._state.down)
    await site.create("p1", 8)


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({}, InvalidRequest, "adds machines, or replaces"),
        ({"add": ["ag3"], "replace": "ag1", "by": "ag4"}, InvalidRequest, "adds machines, or"),
        ({"replace": "ag1"}, InvalidRequest, "adds machines, or replaces"),
        ({"add": ["ag9"]}, NotFound, "there is no agent ag9"),
        ({"add": ["ag3", "ag3"]}, InvalidRequest, "named 2 times"),
        ({"add": ["ag1"]}, WrongState, "ag1 is in cluster c1 already"),
        ({"replace": "ag9", "by": "ag3"}, NotFound, "there is no machine ag9"),
        ({"name": "c9", "add": ["ag3"]}, NotFound, "there is no cluster c9"),
    ],
)
async def test_changes_that_cannot_be_change_nothing(
    site: Site, fields: dict[str, object], kind: type[PodwrightError], words: str
) -> None:
    await site.cluster("c1", "ag1", "ag2")
    await site.create("p1", 4)
    before = await site.controller.list_devices(ROOT, ListRequest())
    with pytest.raises(kind, match=words):
        await change(site, **fields)  # type: ignore[arg-type]
    with pytest.raises(Denied):
        await site.controller.change_cluster(ALICE, ClusterChange(name="c1", add=["ag3"]))
    assert await site.controller.list_devices(ROOT, ListRequest()) == before


async def test_a_creation_under_way_keeps_its_devices(site: Site) -> None:
    """Devices that are taken but not yet written down are kept too."""
    await site.cluster("c1", "ag1", "ag2")
    making = [asyncio.ensure_future(site.create(f"p{n}", 2)) for n in range(4)]
    await asyncio.sleep(0)
    await change(site, add=["ag3"])
    await asyncio.gather(*making)
    places = [place for n in range(4) for place in await where(site, f"p{n}")]
    assert len(set(places)) == 8
    (now,) = (await site.controller.list_clusters(ROOT, ALL)).clusters
    assert now.free == 4
