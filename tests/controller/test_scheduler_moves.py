"""A scheduler names the jobs that can move, and where to. The server asks only those."""

from __future__ import annotations

import asyncio

import pytest

from podwright.controller import Caller, Role
from podwright.errors import Denied, InvalidRequest, NotFound
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    AskToMoveRequest,
    CallOffMoveRequest,
    CreateRequest,
    DrainRequest,
    JobMovesRequest,
    LeaseInfo,
    LeaseRequest,
    MachineName,
    MoveRequest,
    MoveRow,
    MovesAllowed,
    PartitionInfo,
    PartitionSpec,
    RemoveRequest,
)
from tests.controller.world import ALICE, ROOT, World

SLURM = Caller(name="slurm", uid=64030, role=Role.SCHEDULER)
OTHER = Caller(name="pbs", uid=64031, role=Role.SCHEDULER)
HERE, THERE = [(0, 0), (0, 1), (0, 2), (0, 3)], [(0, 8), (0, 9), (0, 10), (0, 11)]


class Job:
    """A job of four devices, with a launch of its user."""

    def __init__(self, world: World, reply: AcquireReply) -> None:
        self.world, self.reply = world, reply

    async def renew(self, seconds: float = 60.0) -> LeaseInfo:
        lease = self.reply.lease
        request = LeaseRequest(id=lease.id, epoch=lease.epoch, move_seconds=seconds)
        reply: LeaseInfo = await self.world.controller.renew(ALICE, request)
        return reply

    async def end(self, word: str) -> PartitionInfo:
        lease = self.reply.lease
        request = MoveRequest(id=lease.id, epoch=lease.epoch, move=word)
        reply: PartitionInfo = await self.world.controller.move(ALICE, request)
        return reply


async def started(world: World, *, movable: bool = True) -> Job:
    spec = PartitionSpec(name="slurm_7", devices=HERE, movable=movable)
    await world.controller.create_partition(
        SLURM, CreateRequest(spec=spec, owner=ALICE.name, owner_uid=ALICE.uid or 0, job="7")
    )
    wanted = AcquireRequest(spec=PartitionSpec(name="slurm_7"), ttl=3600)
    return Job(world, await world.controller.acquire(ALICE, wanted))


async def ask(
    world: World, devices: list[tuple[int, int]] = THERE, caller: Caller = SLURM, job: str = "7"
) -> str:
    request = AskToMoveRequest(
        partition="slurm_7", job=job, devices=devices, room_for="Slurm job 9"
    )
    reply: str = (await world.controller.ask_to_move(caller, request)).state
    return reply


async def call_off(world: World) -> None:
    await world.controller.call_off_move(SLURM, CallOffMoveRequest(partition="slurm_7", job="7"))


async def rows(world: World, caller: Caller = SLURM) -> list[MoveRow]:
    reply: list[MoveRow] = (await world.controller.list_job_moves(caller, JobMovesRequest())).moves
    return reply


async def states(world: World, caller: Caller = SLURM) -> list[str]:
    return [row.state for row in await rows(world, caller)]


def devices(partition: PartitionInfo) -> list[tuple[int, int]]:
    return sorted((ref.domain, ref.offset) for gcd in partition.gcds for ref in gcd)


async def test_a_job_moves_to_the_devices_that_its_scheduler_names(world: World) -> None:
    job = await started(world)
    assert await states(world) == []
    assert await ask(world) == "STAYS"  # nothing says yet that its instances can be told
    await job.renew()
    (able,) = await rows(world)
    assert (able.partition, able.state, able.seconds, able.size) == ("slurm_7", "ABLE", 60.0, 4)
    assert await ask(world) == "ASKED"
    assert await ask(world) == "ASKED"  # whose answer was lost asks again
    (asked,) = await rows(world)
    assert (asked.state, asked.waiter) == ("ASKED", "Slurm job 9")
    await world.time.advance(5)
    word = (await job.renew()).move
    assert word
    moved = await job.end(word)
    assert devices(moved) == THERE
    assert (moved.job, moved.owner, moved.movable) == ("7", ALICE.name, True)
    await world.time.advance(5)
    await world.check()
    whole = PartitionSpec(name="slurm_9", devices=[(0, at) for at in range(8)])
    made = await world.controller.create_partition(
        SLURM, CreateRequest(spec=whole, owner=ALICE.name, owner_uid=1001, job="9")
    )
    assert made.size == 8
    assert not (await job.renew()).move


async def test_the_devices_of_a_move_are_nobodys_until_the_move_is_called_off(world: World) -> None:
    job = await started(world)
    await job.renew()
    await ask(world)
    word = (await job.renew()).move
    taken = CreateRequest(spec=PartitionSpec(name="p", devices=THERE))
    with pytest.raises(Exception, match="free"):
        await world.controller.create_partition(ROOT, taken)
    await call_off(world)
    await call_off(world)
    assert not (await job.renew()).move
    assert devices(await job.end(word)) == HERE
    await world.controller.create_partition(ROOT, taken)
    assert await ask(world) == "STAYS"
    await world.check()


async def test_the_server_itself_moves_no_job(world: World) -> None:
    job = await started(world)
    await job.renew()
    (machine,) = {ref.machine for gcd in job.reply.partition.gcds for ref in gcd}
    await world.controller.drain_machine(ROOT, DrainRequest(name=machine))
    await world.time.advance(20)
    assert not (await job.renew()).move
    await world.controller.resume_machine(ROOT, MachineName(name=machine))
    await world.controller.allow_moves(ROOT, MovesAllowed(allowed=False))
    assert await ask(world) == "STAYS"
    await world.controller.allow_moves(ROOT, MovesAllowed(allowed=True))
    assert await ask(world) == "ASKED"
    await world.controller.allow_moves(ROOT, MovesAllowed(allowed=False))
    assert not (await job.renew()).move
    await world.check()


async def test_neither_flag_nor_handler_alone_moves_anything(world: World) -> None:
    job = await started(world, movable=False)
    await job.renew()
    assert await states(world) == []
    assert await ask(world) == "STAYS"
    with pytest.raises(InvalidRequest, match="chosen one by one"):
        await world.controller.create_partition(
            ALICE, CreateRequest(spec=PartitionSpec(name="p", devices=THERE, movable=True))
        )


async def test_only_a_jobs_own_scheduler_moves_it_and_only_its_present_start(world: World) -> None:
    job = await started(world)
    await job.renew()
    assert await states(world, OTHER) == []
    assert await states(world, ROOT) == ["ABLE"]
    for caller in (OTHER, ALICE):
        with pytest.raises((Denied, NotFound)):
            await ask(world, caller=caller, job="7/1")
    with pytest.raises(Denied):
        await ask(world, caller=OTHER)
    with pytest.raises(NotFound):
        await ask(world, job="7/1")


@pytest.mark.parametrize(
    "wrong", [HERE, THERE[:2], [(0, 6), (0, 7), (0, 8), (0, 9)], [(0, 99)]], ids=str
)
async def test_other_devices_are_free_and_a_legal_partition_of_its_size(
    world: World, wrong: list[tuple[int, int]]
) -> None:
    job = await started(world)
    await job.renew()
    assert await ask(world, wrong) == "STAYS"
    assert await ask(world) == "ASKED"
    await world.check()


async def test_a_job_that_ends_leaves_nothing_of_its_move(world: World) -> None:
    job = await started(world)
    await job.renew()
    await ask(world)
    remove = RemoveRequest(name="slurm_7", force=True, job="7")
    await world.controller.remove_partition(SLURM, remove)
    await world.time.advance(5)
    assert await states(world) == []
    await world.create("all", 16)
    await world.check()


async def test_a_move_that_has_begun_ends_although_it_is_called_off(world: World) -> None:
    job = await started(world)
    await job.renew()
    await ask(world)
    word = (await job.renew()).move
    ending = asyncio.create_task(job.end(word))
    seen = await states(world)
    for _ in range(100):
        if seen == ["MOVING"]:
            break
        await asyncio.sleep(0)
        seen = await states(world)
    assert seen == ["MOVING"]
    await call_off(world)
    assert devices(await world.get("slurm_7")) == THERE
    assert devices(await ending) == THERE
