"""Finding or creating a partition and holding it: PopRun's rules of partition settings, and
ours.
"""

from __future__ import annotations

import asyncio
from math import inf, nan

import pytest

from podwright.errors import Held, InvalidRequest, NoCapacity, NotFound, PodwrightError, WrongState
from podwright.wire import OperationState, ReadyState
from tests.controller.test_partitions import complete
from tests.controller.world import ALICE, ALL, BOB, ROOT, World, claim


async def test_the_only_partition_is_used(world: World) -> None:
    await world.create("a", 4, caller=ALICE)
    await world.create("b", 4, caller=BOB)
    reply = await world.acquire("", 4, caller=ALICE, holder="train")
    assert (reply.partition.name, reply.created) == ("a", False)
    assert (reply.lease.holder, reply.lease.owner, reply.lease.devices) == ("train", "alice", [])
    assert [lease.id for lease in reply.partition.leases] == [reply.lease.id]


async def test_who_has_several_partitions_must_name_one(world: World) -> None:
    await world.create("a", 4)
    await world.create("b", 4)
    with pytest.raises(InvalidRequest, match="several partitions: a, b") as caught:
        await world.acquire("", 4, create=True)
    complete(caught.value)
    assert caught.value.data["partitions"] == ["a", "b"]


async def test_a_partition_is_created_where_there_is_none_and_goes_with_its_lease(
    world: World,
) -> None:
    with pytest.raises(NotFound) as caught:
        await world.acquire("", 4)
    complete(caught.value)
    assert "--update-partition=yes" in caught.value.would_work
    reply = await world.acquire("", 4, create=True)
    assert reply.created
    assert reply.partition.ready_state is ReadyState.ACTIVE
    # A second launch gets its own: what came with a lease is nobody else's to find.
    other = await world.acquire("", 4, create=True)
    assert other.partition.name != reply.partition.name
    await world.release(reply)
    assert await world.names() == [other.partition.name]
    await world.release(other)
    assert await world.names() == []


async def test_a_created_partition_may_be_kept(world: World) -> None:
    reply = await world.acquire("p1", 4, create=True, keep=True)
    await world.release(reply)
    assert await world.names() == ["p1"]


async def test_a_missing_partition_is_created_if_that_is_allowed(world: World) -> None:
    await world.create("p2", 1)
    with pytest.raises(NotFound) as caught:
        await world.acquire("p1", 4)
    complete(caught.value)
    assert "p2" in caught.value.would_work
    assert (await world.acquire("p1", 4, create=True)).created
    assert (await world.acquire("p3", 4, update=True)).created


async def test_within_a_job_or_a_launch_nobody_is_told_to_replace_the_partition(
    world: World,
) -> None:
    """The partition is held by the job, or by the launch around this one."""
    await world.create("p1", 4, num_gcds=1, num_replicas=1)
    outer = await world.acquire("p1", 4)
    for parent in (outer.lease.id, ""):
        with pytest.raises(WrongState) as caught:
            await world.acquire("p1", 8, parent=parent, num_gcds=2, num_replicas=2)
        complete(caught.value)
        assert "--update-partition" not in caught.value.message
        assert "ask for what it has" in caught.value.would_work


async def test_a_partition_that_does_not_fit_is_refused_with_the_difference(world: World) -> None:
    await world.create("p1", 4, num_gcds=1, num_replicas=1)
    with pytest.raises(WrongState) as caught:
        await world.acquire("p1", 8, num_gcds=2, num_replicas=2, num_ilds=2)
    error = caught.value
    complete(error)
    assert "--update-partition=yes" in error.would_work
    assert {d["property"]: (d["has"], d["wanted"]) for d in error.data["differences"]} == {
        "size": ("4", "8"),
        "GCDs": ("1", "2"),
        "replicas": ("1", "2"),
        "link domains": ("1", "2"),
    }


async def test_an_update_replaces_a_partition_and_keeps_its_name_and_owner(world: World) -> None:
    await world.create("p1", 16, caller=ALICE)
    reply = await world.acquire("p1", 8, num_gcds=2, update=True, keep=True)
    assert reply.created
    assert (reply.partition.size, reply.partition.num_gcds) == (8, 2)
    assert reply.partition.owner == "alice"
    assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == 8
    with pytest.raises(Held):
        await world.acquire("p1", 4, update=True)
    await world.release(reply)
    grown = await world.acquire("p1", 16, update=True)
    assert grown.partition.size == 16
    await world.release(grown)
    assert await world.names() == []


async def test_an_update_that_finds_no_room_changes_nothing(world: World) -> None:
    before = await world.create("p1", 4)
    await world.create("p2", 4)
    calls = len(world.machines["ag1"].calls)
    with pytest.raises(NoCapacity) as caught:
        await world.acquire("p1", 16, update=True)
    complete(caught.value)
    with pytest.raises(InvalidRequest):
        await world.acquire("p1", 3, update=True)
    assert await world.get("p1") == before
    assert len(world.machines["ag1"].calls) == calls
    await world.check()


async def test_a_refusal_names_the_holder_of_the_partition(world: World) -> None:
    await world.create("p1", 4)
    await world.acquire("p1", 4, holder="poprun 1")
    with pytest.raises(Held) as caught:
        await world.acquire("p1", 4, holder="poprun 2")
    complete(caught.value)
    assert caught.value.data["holder"] == "poprun 1"


async def test_of_two_simultaneous_requests_one_gets_the_lease(world: World) -> None:
    await world.create("p1", 4)
    answers = await asyncio.gather(
        *(world.acquire("p1", 4, holder=f"h{i}") for i in range(8)), return_exceptions=True
    )
    assert sum(isinstance(a, Held) for a in answers) == 7


async def test_two_may_create_at_the_same_time_and_share_nothing(world: World) -> None:
    answers = await asyncio.gather(*(world.acquire("", 4, create=True) for _ in range(4)))
    assert len({a.partition.name for a in answers}) == 4
    assert len({d for a in answers for d in world.covered(a)}) == 16


async def test_a_partition_is_reset_before_its_use_unless_told_otherwise(world: World) -> None:
    await world.create("p1", 4)
    first = await world.acquire("p1", 4)
    world.use(first)
    await world.release(first)
    second = await world.acquire("p1", 4, reset=False)
    assert world.used(second) == ["p1"] * 4
    await world.release(second)
    third = await world.acquire("p1", 4)
    assert world.used(third) == []
    assert first.lease.epoch < second.lease.epoch < third.lease.epoch


async def test_leases_take_subsets_of_a_reconfigurable_partition(world: World) -> None:
    await world.create("r", 8, reconfigurable=True)
    one = await world.acquire("r", 1)
    two = await world.acquire("r", 2)
    four = await world.acquire("r", 4)
    assert (one.lease.devices, two.lease.devices) == ([0], [2, 3])
    assert four.lease.devices == [4, 5, 6, 7]
    with pytest.raises(Held) as caught:
        await world.acquire("r", 2)
    complete(caught.value)
    small = await world.acquire("r", 1)
    assert small.lease.devices == [1]
    await world.release(two)
    again = await world.acquire("r", 2)
    assert again.lease.devices == [2, 3]
    for bad in (3, 16):
        with pytest.raises(WrongState, match="aligned part"):
            await world.acquire("r", bad)
    with pytest.raises(WrongState, match="GCDs"):
        await world.acquire("r", 2, num_gcds=2)
    await world.check()


async def test_a_subset_that_was_used_is_reset_for_the_next_and_others_go_on(
    world: World,
) -> None:
    await world.create("r", 8, reconfigurable=True)
    one = await world.acquire("r", 4)
    two = await world.acquire("r", 4)
    world.use(one)
    world.use(two)
    await world.release(one)
    resets = [c for m in world.machines.values() for c in m.calls if c.kind == "reset"]
    assert resets == []
    again = await world.acquire("r", 4)
    assert world.used(again) == []
    assert world.used(two) == ["r"] * 4
    world.use(two)  # its epoch is still the newest on its devices


async def test_a_whole_reconfigurable_partition_can_be_held(world: World) -> None:
    await world.create("r", 8, reconfigurable=True)
    whole = await world.acquire("r", 0)
    assert whole.lease.devices == []
    with pytest.raises(Held):
        await world.acquire("r", 1)


async def test_a_partition_in_error_is_reset_before_it_is_leased(world: World) -> None:
    world.machines["ag1"].fail_next("configure")
    assert (await world.create("p1", 4)).ready_state is ReadyState.ERROR
    reply = await world.acquire("p1", 4, reset=False)
    assert reply.partition.ready_state is ReadyState.ACTIVE
    await world.check()


async def test_a_partition_that_stays_in_error_is_not_leased(world: World) -> None:
    await world.create("p1", 4)
    world.machines["ag1"].fail_next("reset")
    with pytest.raises(WrongState, match="failed to reset") as caught:
        await world.acquire("p1", 4)
    complete(caught.value)
    info = await world.get("p1")
    assert (info.ready_state, info.operation_state) == (ReadyState.ERROR, OperationState.FAILED)
    assert info.leases == []
    await world.acquire("p1", 4)


async def test_a_partition_that_was_created_for_a_lease_and_failed_is_removed(world: World) -> None:
    world.machines["ag1"].fail_next("configure")
    with pytest.raises(WrongState, match="failed to configure") as caught:
        await world.acquire("p1", 8, create=True, keep=True)
    complete(caught.value)
    assert await world.names() == []
    assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == 16


@pytest.mark.parametrize("ttl", [0.0, -1.0, 3600.1, inf, nan])
async def test_a_lease_lasts_at_most_an_hour(world: World, ttl: float) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await world.acquire("p1", 4, create=True, ttl=ttl)
    complete(caught.value)


@pytest.mark.parametrize("holder", ["x" * 201, "a\nb", "\x1b[31m", "\udc80"])
async def test_holders_have_printable_names(world: World, holder: str) -> None:
    with pytest.raises(InvalidRequest):
        await world.acquire("p1", 4, create=True, holder=holder)


async def test_children_lie_in_their_parent_and_end_with_it(world: World) -> None:
    await world.create("r", 8, reconfigurable=True, caller=ALICE)
    job = await world.acquire("r", 4, caller=ALICE, holder="job 1")
    one = await world.acquire("", 2, caller=ALICE, parent=job.lease.id)
    two = await world.acquire("r", 2, caller=ALICE, parent=job.lease.id)
    assert sorted(one.lease.devices + two.lease.devices) == job.lease.devices
    with pytest.raises(Held):
        await world.acquire("", 1, caller=ALICE, parent=job.lease.id)
    with pytest.raises(InvalidRequest, match="parent lease"):
        await world.acquire("", 8, caller=ALICE, parent=job.lease.id)
    with pytest.raises(InvalidRequest, match="is on partition r"):
        await world.acquire("other", 1, caller=ALICE, parent=job.lease.id)
    with pytest.raises(PodwrightError, match="you are bob"):
        await world.acquire("", 1, caller=BOB, parent=job.lease.id)
    await world.release(one, caller=ALICE)
    await world.acquire("", 2, caller=ALICE, parent=job.lease.id)
    await world.check()
    await world.release(job, caller=ALICE)
    assert (await world.controller.list_leases(ROOT, ALL)).leases == []
    with pytest.raises(PodwrightError, match="the lease is over"):
        await world.controller.renew(ALICE, claim(two))
    with pytest.raises(PodwrightError, match="the lease is over"):
        await world.acquire("", 1, caller=ALICE, parent=job.lease.id)


async def test_a_launch_within_a_job_on_a_whole_partition(world: World) -> None:
    job = await world.acquire("p1", 4, create=True, holder="job 1")
    step = await world.acquire("", 4, parent=job.lease.id)
    assert step.partition.name == "p1"
    with pytest.raises(Held):
        await world.acquire("", 4, parent=job.lease.id)
    await world.release(step)
    again = await world.acquire("", 0, parent=job.lease.id)
    assert await world.names() == ["p1"]
    await world.release(job)
    assert await world.names() == []
    with pytest.raises(PodwrightError, match="the lease is over"):
        await world.release(again)
