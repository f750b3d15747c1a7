"""Creating, listing, resetting and removing partitions, and the three parts of every refusal."""

from __future__ import annotations

import asyncio

import pytest

from podwright.controller import Caller, Role
from podwright.controller.state._records import PartitionRecord
from podwright.errors import (
    AlreadyExists,
    Denied,
    Held,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PodwrightError,
)
from podwright.fabric import preset
from podwright.wire import (
    GatewayRouting,
    ListRequest,
    OperationState,
    PartitionInfo,
    ReadyState,
    ResetRequest,
    Routing,
    SyncType,
)
from tests.controller.world import ALICE, ALL, BOB, NOBODY, ROOT, World, claim


def complete(error: PodwrightError) -> None:
    """Check that a refusal names the request, the obstacle, and what would work."""
    assert error.operation
    assert error.problem
    assert error.would_work


async def test_a_partition_is_complete_when_it_is_shown(world: World) -> None:
    info = await world.create("p1", 8, caller=ALICE, num_gcds=2, num_replicas=4)
    assert (info.name, info.cluster, info.allocation) == ("p1", "pod16", "pod16")
    assert (info.size, info.num_gcds, info.num_replicas, info.num_ilds) == (8, 2, 4, 1)
    assert (info.ready_state, info.operation_state) == (ReadyState.ACTIVE, OperationState.IDLE)
    assert (info.owner, info.owner_uid, info.creator) == ("alice", 1001, "alice")
    assert info.simulated
    assert info.server_version == "test"
    assert [len(gcd) for gcd in info.gcds] == [4, 4]
    flat = [ref for gcd in info.gcds for ref in gcd]
    assert [(r.domain, r.offset) for r in flat] == [(0, i) for i in range(8)]
    assert [(r.machine, r.index) for r in flat] == [(f"ag{i // 4 + 1}", i % 4) for i in range(8)]
    assert all(ref.ip == "127.0.0.1" and ref.server_port and ref.rdma_port for ref in flat)
    assert len({ref.chip_id for ref in flat}) == 8
    assert await world.get("p1") == info


async def test_creation_without_waiting_answers_pending(world: World) -> None:
    world.machines["ag1"].delay("configure", 3.0)
    info = await world.create("p1", 4, wait=False)
    assert (info.ready_state, info.operation_state) == (ReadyState.PENDING, OperationState.CREATING)
    assert (await world.get("p1")).ready_state is ReadyState.PENDING
    await world.time.advance(3.5)
    assert (await world.get("p1")).ready_state is ReadyState.ACTIVE


async def test_a_step_goes_on_although_its_caller_goes_away(world: World) -> None:
    world.machines["ag1"].delay("configure", 3.0)
    call = asyncio.ensure_future(world.create("p1", 4))
    await world.time.advance(1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await world.time.advance(3)
    assert (await world.get("p1")).ready_state is ReadyState.ACTIVE


async def test_a_name_is_taken_once_even_by_two_at_the_same_time(world: World) -> None:
    answers = await asyncio.gather(
        world.create("p1", 4), world.create("p1", 4), return_exceptions=True
    )
    refused = [a for a in answers if isinstance(a, BaseException)]
    assert len(refused) == 1
    assert isinstance(refused[0], AlreadyExists)
    complete(refused[0])
    assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == 12


@pytest.mark.parametrize(
    "name", ["", "-p", ".p", "p 1", "p/1", "ü", "p\n", "a" * 65, "p1;rm", "\udcff"]
)
async def test_bad_names_are_refused(world: World, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await world.create(name, 4)
    assert "1 to 64" in caught.value.would_work
    assert await world.names() == []


@pytest.mark.parametrize("name", ["a" * 64, "p.1_x-Y", "0", "_"])
async def test_good_names_are_taken(world: World, name: str) -> None:
    assert (await world.create(name, 1)).name == name


@pytest.mark.parametrize(
    "spec",
    [
        {"size": 0},
        {"size": -4},
        {"size": 3},
        {"size": 1 << 40},
        {"size": 32},
        {"size": 4, "num_gcds": -1},
        {"size": 4, "devices": [(0, 0), (0, 1), (0, 2), (0, 3)], "relocatable": True},
        {"size": 4, "devices": [(0, 0), (0, 1), (0, 2), (0, 4)]},
        {"size": 4, "devices": [(0, 2), (0, 3), (0, 4), (0, 5)], "reconfigurable": True},
        {"size": 1_000_000_000_000},
        {"size": 4, "num_gcds": 3},
        {"size": 4, "num_gcds": 8},
        {"size": 4, "num_replicas": 3},
        {"size": 8, "num_gcds": 4, "num_replicas": 2},
        {"size": 4, "num_ilds": -1},
        {"size": 4, "num_ilds": 2},
        {"size": 4, "num_ilds": 3},
        {"size": 4, "routing": Routing.RINGSWNC},
        {"size": 4, "gw_routing": GatewayRouting.SWRING},
        {"size": 4, "gw_routing": GatewayRouting.RING},
        {"size": 4, "sync_type": SyncType.GS2_INDEPENDENT_RAILS},
        {"size": 4, "reconfigurable": True, "num_gcds": 2},
        {"size": 4, "reconfigurable": True, "num_replicas": 2},
        {"size": 4, "reconfigurable": True, "sync_type": SyncType.POD_NATIVE_DEFAULT},
        {"size": 0, "devices": [(0, 99)]},
        {"size": 0, "devices": [(7, 0)]},
        {"size": 0, "devices": [(0, 0), (0, 0)]},
        {"size": 4, "devices": [(0, 0)]},
        {"size": 0, "devices": [(0, 1), (0, 2)]},
    ],
    ids=str,
)
async def test_what_can_never_be_is_invalid_and_changes_nothing(
    world: World, spec: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await world.create("p1", **spec)  # type: ignore[arg-type]
    complete(caught.value)
    assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == 16
    assert await world.names() == []


async def test_explicit_devices_are_the_ones_taken(world: World) -> None:
    info = await world.create("p1", 0, devices=[(0, 6), (0, 7)])
    assert [(r.domain, r.offset) for gcd in info.gcds for r in gcd] == [(0, 6), (0, 7)]


async def test_unknown_places_are_not_found(world: World) -> None:
    for cluster, allocation in (("nowhere", ""), ("", "none")):
        with pytest.raises(NotFound, match="there is no") as caught:
            await world.create("p1", 4, cluster=cluster, allocation=allocation)
        complete(caught.value)
    with pytest.raises(NotFound) as caught:
        await world.get("p1")
    complete(caught.value)


async def test_a_full_pod_says_what_is_free_and_who_stands_in_the_way(world: World) -> None:
    await world.create("p1", 8, caller=ALICE)
    await world.create("p2", 4, caller=BOB)
    with pytest.raises(NoCapacity) as caught:
        await world.create("p3", 8)
    error = caught.value
    complete(error)
    assert "cluster pod16 has 16, 4 of them free" in error.problem
    assert "p1 (alice, 8), p2 (bob, 4)" in error.problem
    assert error.data["free"] == 4
    first = error.data["partitions"][0]
    assert (first["partition"], first["owner"], first["size"]) == ("p1", "alice", 8)


async def test_defaults_of_routing_and_sync() -> None:
    world = World([preset("pod64")])
    await world.start()
    small = await world.create("p1", 16)
    assert (small.routing, small.gw_routing) == (Routing.DNC, GatewayRouting.DEFAULT)
    assert small.sync_type is SyncType.POD_NATIVE_DEFAULT
    loose = await world.create("p2", 16, reconfigurable=True)
    assert (loose.sync_type, loose.num_gcds) == (SyncType.GS2_DEFAULT, 1)
    await world.remove("p1")
    await world.remove("p2")
    assert (await world.create("p3", 64)).routing is Routing.RINGSWNC
    await world.stop()


async def test_over_two_link_domains() -> None:
    world = World([preset("pod128")])
    await world.start()
    info = await world.create("part3", 32, num_ilds=2, num_gcds=2)
    assert (info.num_ilds, info.ilds, info.routing) == (2, [0, 1], Routing.DNC)
    assert [{r.domain for r in gcd} for gcd in info.gcds] == [{0}, {1}]
    rails = await world.create("rails", 2, sync_type=SyncType.POD_NATIVE_REPLICATED_PIPELINE)
    assert rails.sync_type is SyncType.POD_NATIVE_REPLICATED_PIPELINE
    ring = await world.create("ring", 2, gw_routing=GatewayRouting.RING)
    assert ring.gw_routing is GatewayRouting.RING
    await world.check()
    await world.stop()


async def test_several_clusters_and_allocations() -> None:
    small, large = preset("pod4"), preset("pod16")
    renamed = type(small)(
        name="small",
        family=small.family,
        domains=(
            type(small.domains[0])("ild0", (type(small.domains[0].machines[0])("small-ag1"),)),
        ),
        simulated=True,
    )
    world = World(
        [renamed, large],
        allocations={"pod16": {"a": ["ag1", "ag2"], "b": ["ag3"]}},
    )
    await world.start()
    assert (await world.create("p1", 4)).cluster == "small"
    assert (await world.create("p2", 4)).allocation == "a"
    assert (await world.create("p3", 4, allocation="b")).allocation == "b"
    assert (await world.create("p4", 4, cluster="pod16")).allocation == "a"
    with pytest.raises(NoCapacity):
        await world.create("p5", 4)
    with pytest.raises(NotFound, match="no allocation b in cluster small"):
        await world.create("p5", 4, cluster="small", allocation="b")
    with pytest.raises(InvalidRequest, match="not their cluster"):
        await world.create("p5", 0, devices=[(0, 0)])
    allocations = (await world.controller.list_allocations(ROOT, ALL)).allocations
    assert [(a.name, a.cluster, a.size, a.free, a.agents) for a in allocations] == [
        ("small", "small", 4, 0, ["small-ag1"]),
        ("a", "pod16", 8, 0, ["ag1", "ag2"]),
        ("b", "pod16", 4, 0, ["ag3"]),
    ]
    only = await world.controller.list_partitions(ROOT, ListRequest(allocation="b"))
    assert [p.name for p in only.partitions] == ["p3"]
    only = await world.controller.list_partitions(ROOT, ListRequest(cluster="small"))
    assert [p.name for p in only.partitions] == ["p1"]
    await world.stop()


async def test_listings_of_clusters_and_devices(world: World) -> None:
    await world.create("p1", 4)
    (cluster,) = (await world.controller.list_clusters(ROOT, ALL)).clusters
    assert (cluster.name, cluster.family, cluster.size, cluster.free) == ("pod16", "ipu", 16, 12)
    assert cluster.machines == ["ag1", "ag2", "ag3", "ag4"]
    assert cluster.ild_sizes == [16]
    devices = (await world.controller.list_devices(ROOT, ALL)).devices
    assert [d.device.offset for d in devices] == list(range(16))
    assert [d.state for d in devices] == ["IN_USE"] * 4 + ["FREE"] * 12
    assert devices[0].partition == "p1"
    assert devices[0].attributes["board type"] == "SIMULATED"
    assert "firmware version" in devices[0].attributes
    world.machines["ag2"].set_down(True)
    with pytest.raises(PodwrightError):
        await world.acquire("p2", 4, create=True)
    devices = (await world.controller.list_devices(ROOT, ALL)).devices
    assert [d.state for d in devices[4:8]] == ["DOWN"] * 4
    await world.create("p3", 8)  # lies elsewhere, since ag2 is out of service


async def test_a_reset_takes_the_traces_and_grows_the_epoch(world: World) -> None:
    before = await world.create("p1", 4)
    world.machines["ag1"].use(before.epoch, [0, 1])
    after = await world.reset("p1")
    assert after.epoch > before.epoch
    assert (after.ready_state, after.auto_reset_count) == (ReadyState.ACTIVE, 0)
    assert {d.used_by for d in world.machines["ag1"].devices} == {""}


async def test_a_reset_may_make_a_partition_relocatable_but_not_the_reverse(world: World) -> None:
    await world.create("p1", 4)
    reset = world.controller.reset_partition
    assert not (await reset(ROOT, ResetRequest(name="p1"))).relocatable
    assert (await reset(ROOT, ResetRequest(name="p1", relocatable=True))).relocatable
    assert (await reset(ROOT, ResetRequest(name="p1"))).relocatable


async def test_whose_partition_it_is_decides_who_may_change_it(world: World) -> None:
    await world.create("a", 1, caller=ALICE)
    await world.create("n", 1, caller=NOBODY)
    for caller, name in ((BOB, "a"), (NOBODY, "a"), (ALICE, "n")):
        for work in (
            lambda c=caller, n=name: world.reset(n, caller=c),
            lambda c=caller, n=name: world.remove(n, caller=c, force=True),
            lambda c=caller, n=name: world.acquire(n, 1, caller=c),
        ):
            with pytest.raises(Denied) as caught:
                await work()
            complete(caught.value)
    reader = Caller("carol", 1003, Role.READER)
    with pytest.raises(Denied, match="reader"):
        await world.create("c", 1, caller=reader)
    with pytest.raises(Denied, match="reader"):
        await world.acquire("", 1, caller=reader, create=True)
    await world.reset("n", caller=NOBODY)
    await world.remove("n", caller=NOBODY)
    await world.reset("a", caller=ALICE)
    await world.remove("a", caller=ROOT)


async def test_what_is_held_is_reset_and_removed_only_by_force(world: World) -> None:
    await world.create("p1", 4, caller=ALICE)
    lease = await world.acquire("p1", 4, caller=ALICE, holder="poprun 77 on host1")
    for caller in (ALICE, ROOT):
        for work in (
            lambda c=caller: world.reset("p1", caller=c),
            lambda c=caller: world.remove("p1", caller=c),
        ):
            with pytest.raises(Held) as caught:
                await work()
            complete(caught.value)
            assert caught.value.data["holder"] == "poprun 77 on host1"
            assert "poprun 77 on host1" in caught.value.problem
    with pytest.raises(Denied):
        await world.remove("p1", caller=BOB, force=True)
    await world.reset("p1", caller=ALICE, force=True)
    with pytest.raises(PodwrightError, match="the lease is over"):
        await world.controller.renew(ALICE, claim(lease))
    await world.acquire("p1", 4, caller=ALICE)
    await world.remove("p1", caller=ROOT, force=True)
    assert (await world.controller.list_leases(ROOT, ALL)).leases == []


async def test_a_partition_that_came_with_a_lease_stays_after_a_reset_by_force(
    world: World,
) -> None:
    await world.acquire("p1", 4, create=True)
    await world.reset("p1", force=True)
    await world.time.advance(12)
    assert await world.names() == ["p1"]
    await world.restart()
    assert await world.names() == ["p1"]


async def test_filters_that_lead_nowhere_are_refused(world: World) -> None:
    await world.create("p1", 4)
    for request in (ListRequest(allocation="nope"), ListRequest(cluster="nope")):
        for listing in ("partitions", "leases", "clusters", "allocations", "devices"):
            with pytest.raises(NotFound, match="nope") as caught:
                await getattr(world.controller, f"list_{listing}")(ROOT, request)
            complete(caught.value)
    found = await world.controller.list_partitions(ROOT, ListRequest(allocation="pod16"))
    assert [p.name for p in found.partitions] == ["p1"]


async def test_a_size_beyond_all_pods_is_called_so(world: World) -> None:
    with pytest.raises(InvalidRequest, match="no partition has more than"):
        await world.create("p1", 1_000_000_000_000)


async def test_what_callers_see_of_a_partition_is_what_its_record_has(world: World) -> None:
    """Fields with the same name have the same value, whichever are added to both."""
    seen = await world.create("p1", 4, caller=ALICE, relocatable=True)
    record = world.controller._state.partitions["p1"].known
    common = set(PartitionInfo.__struct_fields__) & set(PartitionRecord.__struct_fields__)
    assert common >= {"name", "owner", "owner_uid", "errors", "gcds", "epoch", "movable"}
    for name in common - {"gcds"}:
        value = getattr(record, name)
        assert getattr(seen, name) == (list(value) if isinstance(value, tuple) else value), name
