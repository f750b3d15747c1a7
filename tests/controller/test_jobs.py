"""Partitions that a scheduler makes for a job: they belong to the job's user, and last as long as
it.
"""

from __future__ import annotations

import pytest

from podwright.controller import Caller, Role
from podwright.errors import Denied, InvalidRequest, NotFound
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    CreateRequest,
    PartitionInfo,
    PartitionSpec,
    RemoveRequest,
    ResetRequest,
)
from tests.controller.world import ALICE, BOB, ROOT, World

SLURM = Caller(name="slurm", uid=64030, role=Role.SCHEDULER)
OTHER = Caller(name="pbs", uid=64031, role=Role.SCHEDULER)


async def made(world: World, caller: Caller = SLURM, owner: str = ALICE.name) -> PartitionInfo:
    reply: PartitionInfo = await world.controller.create_partition(
        caller,
        CreateRequest(
            spec=PartitionSpec(name="slurm_7", devices=[(0, 4), (0, 5)]),
            owner=owner,
            owner_uid=ALICE.uid or 0,
            job="7",
        ),
    )
    return reply


@pytest.mark.parametrize("caller", [SLURM, ROOT])
async def test_a_partition_for_a_job_belongs_to_the_jobs_user(world: World, caller: Caller) -> None:
    info = await made(world, caller)
    assert (info.owner, info.owner_uid, info.job) == (ALICE.name, ALICE.uid, "7")
    assert info.creator == caller.name


async def test_only_schedulers_ask_in_the_name_of_others(world: World) -> None:
    with pytest.raises(Denied, match="only a scheduler"):
        await made(world, BOB)
    with pytest.raises(InvalidRequest):
        await made(world, SLURM, owner="")


async def test_a_jobs_partition_is_reset_by_its_user_and_removed_by_its_scheduler_alone(
    world: World,
) -> None:
    await made(world)
    remove = RemoveRequest(name="slurm_7", force=True)
    await world.controller.reset_partition(ALICE, ResetRequest(name="slurm_7"))
    for caller in (BOB, OTHER):
        with pytest.raises(Denied, match=f"belongs to {ALICE.name}"):
            await world.controller.remove_partition(caller, remove)
    with pytest.raises(Denied, match="goes when that ends"):
        await world.controller.remove_partition(ALICE, remove)
    await world.controller.remove_partition(SLURM, remove)


async def leased(world: World, caller: Caller = ROOT) -> AcquireReply:
    request = AcquireRequest(
        spec=PartitionSpec(name="pool", size=2),
        holder="Slurm job 7",
        ttl=3600,
        owner=ALICE.name,
        owner_uid=ALICE.uid or 0,
    )
    reply: AcquireReply = await world.controller.acquire(caller, request)
    return reply


async def test_a_lease_for_a_job_is_its_users_on_a_partition_that_is_not_his(world: World) -> None:
    await world.create("pool", 8, reconfigurable=True)
    job = await leased(world)
    assert (job.lease.owner, len(job.lease.devices)) == (ALICE.name, 2)
    launch = await world.acquire("pool", 1, caller=ALICE, parent=job.lease.id)
    assert set(launch.lease.devices) < set(job.lease.devices)
    with pytest.raises(Denied):
        await world.acquire("pool", 1, caller=BOB, parent=job.lease.id)
    with pytest.raises(Denied):
        await world.acquire("pool", 1, caller=ALICE)
    with pytest.raises(Denied, match="for Slurm job 7"):
        await world.release(job, caller=ALICE)
    await world.restart()
    await world.release(job)
    assert (await world.get("pool")).leases == []


async def test_only_schedulers_lease_in_the_name_of_others(world: World) -> None:
    await world.create("pool", 8, reconfigurable=True)
    with pytest.raises(Denied, match="only a scheduler"):
        await leased(world, BOB)
    named = AcquireRequest(
        spec=PartitionSpec(name="new", size=2), create=True, owner="alice", owner_uid=5
    )
    with pytest.raises(InvalidRequest, match="on a partition that is there"):
        await world.controller.acquire(ROOT, named)


async def test_what_is_for_another_start_by_now_is_not_removed(world: World) -> None:
    await made(world)
    with pytest.raises(NotFound, match="is not for job 6"):
        await world.controller.remove_partition(
            SLURM, RemoveRequest(name="slurm_7", force=True, job="6")
        )
    assert (await world.get("slurm_7")).job == "7"
    await world.controller.remove_partition(
        SLURM, RemoveRequest(name="slurm_7", force=True, job="7")
    )
    with pytest.raises(NotFound):
        await world.get("slurm_7")
