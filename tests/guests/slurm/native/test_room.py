"""Room for a large job that small ones pass, and partitions that move under a running job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from podwright.guests.slurm.service import Service, Site
from podwright.guests.slurm.service._missed_hook_sweep import sentence
from podwright.guests.slurm.service._node_failure import NodeFailures
from podwright.guests.slurm.service._queue_large_job_room import QueueRoom
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.slurm.site.commands import FakeSlurm
from tests.guests.slurm.native.test_service import POD, OnePod, Queue, ask


class Clock:
    """Time that advances when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> OnePod:
    return OnePod()


@pytest.fixture
async def service(server: OnePod, clock: Clock) -> AsyncIterator[Service]:
    site = Site(pods=(POD,), patience_s=0.05, room_s=60, fallen="relocate")
    made = Service(site, server, FakeSlurm(Queue()), clock=clock)
    await made.refresh()
    task = asyncio.create_task(made.counts.run())
    yield made
    task.cancel()


def listed(job: int, size: int, state: str, *, priority: int = 1, end: str = "") -> Listed:
    return Listed(job, state, 0, 0, priority, "Licenses", end, f"ipu:{size}", "")


async def test_the_block_that_is_free_soonest_is_emptied_and_then_counted_again(
    service: Service, clock: Clock
) -> None:
    book = service.books["pod16"]
    for job in (1, 2, 3, 4):
        await service.begin_job(ask(job, 4))
    ends = {1: "2026-01-01T12", 2: "2026-01-01T10", 3: "2026-01-01T11", 4: "N/A"}
    jobs = {job: listed(job, 4, "RUNNING", end=end) for job, end in ends.items()}
    jobs |= {9: listed(9, 8, "PENDING", priority=7), 10: listed(10, 4, "PENDING", priority=5)}
    jobs[11] = listed(11, 16, "PENDING", priority=9)._replace(reason="Dependency")
    room = QueueRoom(service)
    room.update(jobs)
    clock.now = 59
    room.update(jobs)
    assert book.closed == 0
    clock.now = 60
    room.update(jobs)
    assert book.closed == 0xFF  # what 1 and 2 hold ends before what 3 and 4 hold

    await service.end_job(ask(2, 4))
    assert service.hidden()["ipu_x1"] == 4  # free, and not for job 10
    assert sentence(book, 8, 9).endswith("a block is emptied for it, 4 are free")
    await service.end_job(ask(1, 4))
    assert service.hidden()["ipu_x8"] == 8
    assert service.hidden()["ipu_x1"] == 0
    room.update({job: one for job, one in jobs.items() if job > 2})
    assert book.closed == 0


async def test_without_time_limits_the_block_whose_jobs_are_young_is_emptied(
    service: Service, clock: Clock
) -> None:
    """A job that has run for long is expected to run as long again."""
    book = service.books["pod16"]
    jobs = await hold_all(service, "N/A", "N/A", "N/A", "N/A")
    await service.end_job(ask(2, 4))
    del jobs[2]
    for job, began in ((1, 1000.0), (3, 1990.0), (4, 1990.0)):
        book.holdings[job].began = began
    jobs[9] = listed(9, 8, "PENDING")
    room = QueueRoom(service, wall=lambda: 2000.0)
    for clock.now in (0, 60):
        room.update(jobs)
    assert book.closed == 0xFF00


async def test_what_slurm_started_before_finds_its_place(service: Service, clock: Clock) -> None:
    for job in (1, 2, 3):
        await service.begin_job(ask(job, 4))
    jobs = {9: listed(9, 16, "PENDING")}
    room = QueueRoom(service)
    room.update(jobs)
    clock.now = 60
    room.update(jobs)
    assert service.books["pod16"].closed
    await service.begin_job(ask(4, 4))
    assert service.figures.waited == 0


async def test_what_slurm_started_before_is_not_placed_around_a_closed_block(
    service: Service, clock: Clock
) -> None:
    """Slurm counts two free devices in the block, and four elsewhere.

    It starts one job of each size, and their hooks come after the block was closed.
    """
    book = service.books["pod16"]
    for job, size in ((1, 4), (2, 4), (3, 4), (4, 2)):
        await service.begin_job(ask(job, size))
    await service.end_job(ask(1, 4))
    ends = {2: "N/A", 3: "10", 4: "11"}
    jobs = {job: listed(job, 4, "RUNNING", end=end) for job, end in ends.items()}
    jobs[9] = listed(9, 8, "PENDING")
    room = QueueRoom(service)
    room.update(jobs)
    clock.now = 60
    room.update(jobs)
    assert book.closed == 0xFF00
    await service.give(ask(5, 2))
    await service.give(ask(6, 4))  # raises Busy where it has to wait
    assert (book.holdings[5].bits, book.holdings[6].bits) == (0xC000, 0x000F)


async def test_a_closed_block_stays_closed_once_all_that_was_started_has_its_devices(
    server: OnePod, clock: Clock
) -> None:
    used = 12

    def slurm(argv: Sequence[str]) -> str:
        return f"LicenseName=ipu_x1 Total=16 Used={used} Free=0" if "licenses" in argv else ""

    service = Service(Site(pods=(POD,), room_s=60), server, FakeSlurm(slurm), clock=clock)
    await service.refresh()
    telling = asyncio.create_task(service.counts.run())
    book = service.books["pod16"]
    jobs = await hold_all(service, "N/A", "12", "11")
    jobs[9] = listed(9, 8, "PENDING")
    room = QueueRoom(service)
    await service.end_job(ask(1, 4))
    for clock.now in (0, 60):
        room.update(jobs)
    assert book.closed == 0xFF00
    await room.settle()
    assert book.unsettled  # Slurm counts 12, and the book has 8
    used = 8
    await room.settle()
    assert not book.unsettled
    assert book.take(5, 2) is not None
    assert book.take(6, 2) is None
    telling.cancel()


async def test_a_queue_without_waiting_jobs_closes_nothing(service: Service, clock: Clock) -> None:
    book = service.books["pod16"]
    await service.begin_job(ask(1, 4))
    room = QueueRoom(service)
    room.update({9: listed(9, 16, "PENDING")})
    clock.now = 60
    room.update({9: listed(9, 16, "PENDING")})
    assert book.closed
    room.update({})
    assert book.closed == 0


async def test_a_partition_that_moved_is_where_it_went(service: Service, server: OnePod) -> None:
    await service.begin_job(ask(1, 4))
    server.down = {0}
    await service.refresh()
    await NodeFailures(service).check()
    await service.refresh()
    # 1 to 3 and 4 to 11 are free, 0 is down, 12 to 15 are the job's.
    book = service.books["pod16"]
    assert book.holdings[1].bits == 0xF000
    assert [book.blocks.whole(order) for order in range(4)] == [11, 10, 8, 0]
    await service.end_job(ask(1, 4))
    server.down = set()
    await service.refresh()
    assert service.hidden()["ipu_x16"] == 0


def part(job: int, leader: int, size: int, pod: str = "pod16") -> Listed:
    comment = f"ipus={size} gcds=1 pod={pod}"
    return Listed(job, "PENDING", 0, leader, 9, "Resources", "", "podwright_het_wait", comment)


async def hold_all(service: Service, *ends: str) -> dict[int, Listed]:
    """Start jobs of 4 from job 1 on, which end then."""
    for job in range(1, len(ends) + 1):
        await service.begin_job(ask(job, 4))
    return {job: listed(job, 4, "RUNNING", end=end) for job, end in enumerate(ends, 1)}


async def test_a_heterogeneous_job_gets_a_block_for_each_part_and_they_wait_for_each_other(
    service: Service, clock: Clock
) -> None:
    book = service.books["pod16"]
    jobs = await hold_all(service, "12", "10", "N/A", "11")
    jobs |= {20: part(20, 20, 4), 21: part(21, 20, 4), 9: listed(9, 4, "PENDING", priority=8)}
    room = QueueRoom(service)
    room.update(jobs)
    clock.now = 60
    room.update(jobs)
    assert book.closed == 0xF0F0  # what 2 and 4 hold
    book.unsettled = False  # Slurm has started nothing else before
    await service.end_job(ask(2, 4))
    assert service.hidden()["ipu_x1"] == 4
    assert book.take(21, 2, leader=20) is not None  # a part of its own finds it
    book.release(21)
    await service.end_job(ask(4, 4))
    # All of it is free, and still not Slurm's to give to job 9.
    assert service.hidden()["ipu_x1"] == 8
    assert book.take(9, 2) is None
    assert sentence(book, 4, 20).endswith("8 devices are emptied for it, 8 are free")
    assert [book.take(job, 2, leader=20) for job in (20, 21)] != [None, None]


async def test_who_did_not_take_what_was_offered_waits_twice_as_long(
    service: Service, clock: Clock
) -> None:
    book = service.books["pod16"]
    jobs = await hold_all(service, "10", "11", "12", "13")
    jobs |= {20: part(20, 20, 4), 21: part(21, 20, 4)}
    room = QueueRoom(service)
    room.update(jobs)
    clock.now = 60
    room.update(jobs)
    assert book.closed
    service.het.declined.add(20)
    room.update(jobs)
    assert book.closed == 0
    clock.now = 179
    room.update(jobs)
    assert book.closed == 0
    clock.now = 180
    room.update(jobs)
    assert book.closed


async def test_room_in_several_pods_is_made_in_all_of_them_or_in_none(clock: Clock) -> None:
    other = msgspec.structs.replace(POD, type="other", licence="other")
    site = Site(pods=(POD, other), patience_s=0.05, room_s=60)
    made = Service(site, OnePod(), FakeSlurm(Queue()), clock=clock)
    first, second = made.books.values()
    for book in (first, second):
        await book.refresh(made.server)
    for job, book in enumerate((first, second), 1):
        assert book.take(job, 4)
    jobs = {1: listed(1, 16, "RUNNING", end="10"), 2: listed(2, 16, "RUNNING", end="11")}
    jobs |= {20: part(20, 20, 8), 21: part(21, 20, 8, "other")}
    jobs[9] = listed(9, 4, "PENDING", priority=99)  # before it, in the first pod alone
    room = QueueRoom(made)
    room.update(jobs)
    clock.now = 60
    room.update(jobs)
    assert (first.closed_for, second.closed) == (9, 0)
    del jobs[9]
    room.update(jobs)
    assert (first.closed, second.closed) == (0, 0)
    clock.now = 120
    room.update(jobs)
    assert (first.closed, second.closed) == (0xFF, 0xFF)
    second.unusable = 0x0001  # a machine fails: the other half will do
    room.update(jobs)
    assert (first.closed, second.closed) == (0xFF, 0xFF00)
    second.unusable = 0x0101
    room.update(jobs)
    assert (first.closed, second.closed) == (0, 0)  # no block of eight is left there
