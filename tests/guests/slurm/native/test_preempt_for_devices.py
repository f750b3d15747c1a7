"""An urgent job's victims end as Slurm's configuration says, once their block is kept for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from podwright.guests.slurm.service import Service, Site
from podwright.guests.slurm.service._preempt_for_devices import DevicePreemption
from podwright.guests.slurm.service._queue_large_job_room import QueueRoom
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.slurm.site.commands import CommandResult
from podwright.testing import FakePod, FakeSlurm
from podwright.wire import EnqueueReply, EnqueueRequest, KeptPlace
from tests.guests.slurm.native.test_room import Clock, listed
from tests.guests.slurm.native.test_service import POD, ask
from tests.guests.slurm.native.test_shared_room import devices

LATER, EARLIER = "2100-01-01T00:00:00", "2000-01-01T00:00:00"


class Cluster:
    """A Slurm with two partitions. where: each job's partition. exempt: jobs that may not be
    preempted yet. refusal: its answer to a requeue.
    """

    def __init__(self) -> None:
        self.preempt_type, self.preempt_mode = "preempt/partition_prio", "REQUEUE"
        self.low_mode, self.grace, self.private = "REQUEUE", 0, "none"
        self.where: dict[int, tuple[str, str]] = {}
        self.exempt: set[int] = set()
        self.refusal = ""
        self.parameters, self.version = "", "22.05.8"
        self.used = 0

    def __call__(self, argv: Sequence[str]) -> CommandResult | str:
        match argv:
            case ("scontrol", "show", "config"):
                return (
                    f"PreemptMode = {self.preempt_mode}\nPreemptType = {self.preempt_type}\n"
                    f"{self.parameters}PrivateData = {self.private}\n"
                    f"SLURM_VERSION = {self.version}\n"
                )
            case ("scontrol", _, "show", "partition"):
                return (
                    f"PartitionName=low GraceTime={self.grace} PriorityTier=1 "
                    f"PreemptMode={self.low_mode}\n"
                    "PartitionName=high GraceTime=0 PriorityTier=10 PreemptMode=REQUEUE\n"
                )
            case ("scontrol", _, "show", "job"):
                return "".join(self._job(job) for job in self.where)
            case ("scontrol", _, "show", "licenses", name):
                return f"LicenseName={name} Total=16 Used={self.used} Free=0"
            case ("sacctmgr", *_):
                return "low||cluster|00:00:00\nhigh|low|cluster|00:00:00\n"
            case ("scontrol", "requeue", _) if self.refusal:
                return CommandResult(1, "", self.refusal)
        return ""

    def _job(self, job: int) -> str:
        partition, state = self.where[job]
        since = LATER if job in self.exempt else EARLIER
        ran = f" PreemptEligibleTime={since} PreemptTime=None" if state == "RUNNING" else ""
        return (
            f"JobId={job} Priority=1 QOS={partition} JobState={state} Partition={partition}{ran}\n"
        )


class ChoosingPod(FakePod):
    """A server that keeps the block whose last job ends first, for a job that is due."""

    service: Service

    async def enqueue(self, request: EnqueueRequest) -> EnqueueReply:
        ends = {end.partition: end.seconds for end in request.end_times}
        holdings = self.service.books["pod16"].holdings.values()
        self.places = []
        for pool in request.pools:
            if not (pool.due and pool.sizes):
                continue
            (size,) = pool.sizes
            blocks = {first: (1 << size) - 1 << first for first in range(0, POD.devices, size)}
            holders = {
                first: [one.job for one in holdings if one.bits & bits]
                for first, bits in blocks.items()
            }
            first = min(
                blocks,
                key=lambda first: max(
                    (ends.get(f"slurm_{job}", float("inf")) for job in holders[first]), default=0.0
                ),
            )
            self.places.append(
                KeptPlace(
                    cluster=POD.cluster,
                    allocation=POD.allocation,
                    job=pool.job,
                    devices=devices(first, size),
                    offered=not holders[first],
                )
            )
        return await super().enqueue(request)


class World:
    """Four jobs of 4 devices, which fill the pod, and an urgent one of 8."""

    def __init__(self, service: Service, cluster: Cluster, slurm: FakeSlurm, clock: Clock) -> None:
        self.service, self.cluster, self.slurm, self.clock = service, cluster, slurm, clock
        self.preemption = DevicePreemption(service)
        self.room = QueueRoom(service, preemption=self.preemption)
        self.book = service.books["pod16"]
        self.jobs: dict[int, Listed] = {}

    async def fill(self) -> None:
        for job in (1, 2, 3, 4):
            await self.service.begin_job(ask(job, 4))
            self.book.holdings[job].began = float(job)
            self.jobs[job] = listed(job, 4, "RUNNING")
            self.cluster.where[job] = ("low", "RUNNING")
        self.cluster.used = 16
        self.jobs[9] = listed(9, 8, "PENDING")
        self.cluster.where[9] = ("high", "PENDING")

    async def sweep(self) -> None:
        await self.preemption.update(self.jobs, self.room.waiting)
        self.room.update(self.jobs)
        await self.room.exchange()
        await self.room.settle()
        await self.preemption.act()

    def said(self, *words: str) -> list[tuple[str, ...]]:
        return [command for command in self.slurm.commands if command[: len(words)] == words]

    @property
    def requeued(self) -> list[str]:
        return [job for _, _, job in self.said("scontrol", "requeue")]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock, cluster = Clock(), Cluster()
    slurm = FakeSlurm(cluster)
    site = Site(pods=(POD,), patience_s=0.05, room_s=300)
    server = ChoosingPod()
    server.sharing = True
    service = server.service = Service(site, server, slurm, clock=clock)
    await service.refresh()
    task = asyncio.create_task(service.counts.run())
    made = World(service, cluster, slurm, clock)
    await made.fill()
    yield made
    task.cancel()


async def test_the_youngest_jobs_that_join_end_and_their_block_is_kept(world: World) -> None:
    await world.sweep()
    assert (world.book.closed, world.book.closed_for) == (0xFF00, 9)
    assert sorted(world.requeued) == ["3", "4"]
    assert world.preemption.words(9) == "2 jobs of lower rank (3, 4) end for it"
    for job in (3, 4):
        world.jobs[job] = listed(job, 4, "COMPLETING")
    for _ in range(3):
        world.clock.now += 10
        await world.sweep()
    assert sorted(world.requeued) == ["3", "4"], "each is asked once"
    assert world.service.figures.preempted == 2
    await world.service.end_job(ask(3, 4))
    assert world.service.hidden()["ipu_x4"] == 4, "what is free is kept for job 9"
    await world.service.end_job(ask(4, 4))
    assert world.service.hidden()["ipu_x8"] == 8, "its block counts again"
    for job in (3, 4):
        world.jobs[job] = listed(job, 4, "PENDING")
        world.cluster.where[job] = ("low", "PENDING")
    await world.sweep()
    assert not world.preemption.urgent_jobs
    assert sorted(world.requeued) == ["3", "4"]


async def test_a_block_that_is_likely_to_come_free_soon_is_not_kept_in_its_place(
    world: World,
) -> None:
    for job, end in ((1, "2001"), (2, ""), (3, "N/A"), (4, "2099")):
        world.jobs[job] = listed(job, 4, "RUNNING", end=end)
    await world.sweep()
    assert world.book.closed == 0xFF00
    assert sorted(world.requeued) == ["3", "4"]


async def test_a_job_for_which_another_block_was_kept_before_gets_that_of_its_victims(
    world: World,
) -> None:
    world.cluster.exempt = {1, 2, 3, 4}
    await world.sweep()
    world.clock.now = 300
    world.jobs[1] = listed(1, 4, "RUNNING", end="2050-01-01T00:00:00")
    world.jobs[2] = listed(2, 4, "RUNNING", end="2050-01-01T00:00:00")
    await world.sweep()
    assert world.book.closed == 0x00FF
    world.cluster.exempt = {1, 2}
    await world.sweep()
    assert not world.requeued
    await world.sweep()
    assert world.book.closed == 0xFF00
    assert sorted(world.requeued) == ["3", "4"]


async def test_nothing_ends_where_slurm_preempts_nothing(world: World) -> None:
    for world.cluster.preempt_type, world.cluster.preempt_mode in (
        ("(null)", "OFF"),
        ("preempt/none", "REQUEUE"),
        ("preempt/partition_prio", "OFF"),
        ("preempt/unheard_of", "REQUEUE"),
    ):
        await world.sweep()
        world.clock.now += 100
        assert not world.preemption.urgent_jobs
    assert not world.requeued
    assert not world.said("scancel")


async def test_an_exempt_job_stays_and_its_neighbour_too(world: World) -> None:
    world.cluster.exempt = {3}
    await world.sweep()
    assert sorted(world.requeued) == ["1", "2"]


async def test_a_job_that_became_exempt_in_the_meantime_is_not_ended(world: World) -> None:
    world.cluster.used = 20  # Slurm has started a job that has no devices yet
    await world.sweep()
    assert world.book.closed == 0xFF00
    assert not world.requeued
    world.cluster.exempt, world.cluster.used = {1, 2, 3}, 16
    await world.room.settle()
    await world.preemption.act()
    assert not world.requeued


async def test_an_unreadable_configuration_ends_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.cluster.low_mode = "REQUEUE GraceTime=9"  # it appears twice
    for _ in range(2):
        await world.sweep()
    assert not world.requeued
    assert sum("nothing is preempted" in record.getMessage() for record in caplog.records) == 1


async def test_cancel_and_a_job_that_cannot_be_requeued_are_cancelled(world: World) -> None:
    world.cluster.refusal = "Requested operation is presently disabled"
    await world.sweep()
    assert sorted(world.said("scancel")) == [("scancel", "3"), ("scancel", "4")]


async def test_preempt_mode_cancel_requeues_nothing(world: World) -> None:
    world.cluster.low_mode = "CANCEL"
    await world.sweep()
    assert sorted(world.said("scancel")) == [("scancel", "3"), ("scancel", "4")]
    assert not world.requeued


async def test_victims_are_warned_and_have_their_grace_time(world: World) -> None:
    world.cluster.grace = 30
    await world.sweep()
    warned = [command[1:] for command in world.said("scancel")]
    assert sorted(warned) == sorted(
        (f"--signal={name}", job) for name in ("CONT", "TERM") for job in ("3", "4")
    )
    for world.clock.now in (10, 29.5):
        await world.sweep()
        assert not world.requeued
    await world.service.end_job(ask(4, 4))  # it heeds the warning
    world.clock.now = 30
    await world.sweep()
    assert world.requeued == ["3"]


async def test_an_urgent_job_that_is_gone_ends_nobody_who_was_only_warned(world: World) -> None:
    world.cluster.grace = 30
    await world.sweep()
    del world.jobs[9], world.cluster.where[9]
    world.clock.now = 30
    await world.sweep()
    assert not world.requeued
    assert world.book.closed == 0


async def test_a_block_that_is_kept_no_longer_ends_nobody_who_was_only_warned(
    world: World,
) -> None:
    world.cluster.grace = 30
    await world.sweep()
    world.clock.now = 30
    world.book.close(0)  # as the server asks, when it is another guest's turn
    await world.preemption.act()
    assert not world.requeued


async def test_a_slurmctld_that_forgot_what_it_was_asked_is_asked_again(world: World) -> None:
    await world.sweep()
    world.jobs[3] = listed(3, 4, "COMPLETING")
    await world.sweep()
    assert sorted(world.requeued) == ["3", "4", "4"]


@pytest.mark.parametrize(("restart", "again"), [(0, ["3"]), (1, [])])
async def test_a_victim_that_slurm_counts_although_its_devices_are_back_is_ended_again(
    world: World, restart: int, again: list[str]
) -> None:
    """slurmctld was killed, and takes job 3 for running. One that was restarted since is new."""
    await world.sweep()
    assert sorted(world.requeued) == ["3", "4"]
    for job in (3, 4):
        await world.service.end_job(ask(job, 4))
        world.jobs[job] = listed(job, 4, "PENDING")._replace(restart=1)
    world.jobs[3] = listed(3, 4, "RUNNING")._replace(restart=restart)
    await world.sweep()
    assert sorted(world.requeued) == sorted(["3", "4", *again])
    world.jobs[3] = listed(3, 4, "PENDING")._replace(restart=1)
    await world.sweep()
    assert len(world.requeued) == 2 + len(again)


async def test_qos_decides_where_slurm_preempts_by_qos(world: World) -> None:
    world.cluster.preempt_type = "preempt/qos"
    await world.sweep()
    assert sorted(world.requeued) == ["3", "4"]


@pytest.mark.parametrize(
    ("version", "size", "ended"),
    [("26.05.5", 4, []), ("26.05.5", 8, ["3", "4"]), ("22.05.8", 4, ["4"])],
)
async def test_what_slurm_itself_preempts_is_left_to_slurm(
    world: World, version: str, size: int, ended: list[str]
) -> None:
    """One job of the size suffices, so Slurm sees it, where it knows the option."""
    world.cluster.parameters = "PreemptParameters = youngest_first,reclaim_licenses\n"
    world.cluster.version = version
    world.jobs[9] = listed(9, size, "PENDING")
    await world.sweep()
    assert sorted(world.requeued) == ended


async def test_jobs_are_not_named_where_slurm_hides_them(world: World) -> None:
    world.cluster.private = "jobs,nodes"
    await world.sweep()
    assert world.preemption.words(9) == "2 jobs of lower rank end for it"
    assert world.preemption.words(1) == ""


async def test_what_does_not_take_its_block_gets_no_second_one_soon(world: World) -> None:
    """It lacks something else, and small jobs take the block: they do not end again and again."""
    await world.sweep()
    for job in (3, 4):
        await world.service.end_job(ask(job, 4))
        world.jobs[job] = world.jobs[job]._replace(restart=1)
    await world.sweep()
    for job in (3, 4):
        await world.service.begin_job(ask(job, 4, restart=1))
    world.clock.now = 100
    await world.sweep()
    assert sorted(world.requeued) == ["3", "4"]
    world.clock.now = 301
    await world.sweep()
    assert sorted(world.requeued) == ["1", "2", "3", "4"]


async def test_a_job_whose_block_is_free_ends_nobody(world: World) -> None:
    for job in (1, 2):
        await world.service.end_job(ask(job, 4))
    await world.sweep()
    assert not world.requeued
    assert not world.preemption.urgent_jobs
