"""Partitions that a scheduler makes for a job: its user's, and as long as the job."""

from __future__ import annotations

import pytest

from podwright.controller import Caller, Role
from podwright.wire import (
    CreateRequest,
    Denied,
    InvalidRequest,
    PartitionInfo,
    PartitionSpec,
    RemoveRequest,
    ResetRequest,
)
from tests.controller.world import ALICE, BOB, ROOT, World

SLURM = Caller(name="slurm", uid=64030, role=Role.SCHEDULER)
OTHER = Caller(name="pbs", uid=64031, role=Role.SCHEDULER)


async def made(world: World, caller: Caller = SLURM, owner: str = ALICE.name) -> PartitionInfo:
    return await world.controller.create_partition(
        caller,
        CreateRequest(
            spec=PartitionSpec(name="slurm_7", devices=[(0, 4), (0, 5)]),
            owner=owner,
            owner_uid=ALICE.uid or 0,
            job="7",
        ),
    )


@pytest.mark.parametrize("caller", [SLURM, ROOT])
async def test_it_belongs_to_the_jobs_user(world: World, caller: Caller) -> None:
    info = await made(world, caller)
    assert (info.owner, info.owner_uid, info.job) == (ALICE.name, ALICE.uid, "7")
    assert info.creator == caller.name


async def test_only_schedulers_ask_in_the_name_of_others(world: World) -> None:
    with pytest.raises(Denied, match="only a scheduler"):
        await made(world, BOB)
    with pytest.raises(InvalidRequest):
        await made(world, SLURM, owner="")


async def test_its_user_resets_it_but_only_its_scheduler_removes_it(world: World) -> None:
    await made(world)
    remove = RemoveRequest(name="slurm_7", force=True)
    await world.controller.reset_partition(ALICE, ResetRequest(name="slurm_7"))
    for caller in (BOB, OTHER):
        with pytest.raises(Denied, match=f"belongs to {ALICE.name}"):
            await world.controller.remove_partition(caller, remove)
    with pytest.raises(Denied, match="goes when that ends"):
        await world.controller.remove_partition(ALICE, remove)
    await world.controller.remove_partition(SLURM, remove)
