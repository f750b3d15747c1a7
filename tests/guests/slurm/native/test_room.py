"""Room for a large job that small ones pass, and partitions that move under a running job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from podwright.guests.slurm.service import Service, Site
from podwright.guests.slurm.service._missed_hook_sweep import sentence
from podwright.guests.slurm.service._node_failure import NodeFailures
from podwright.guests.slurm.service._queue_large_job_room import QueueRoom
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.testing import FakePod, FakeSlurm
from tests.guests.slurm.native.test_service import POD, ask


class Clock:
    """Time that advances when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> FakePod:
    return FakePod()


@pytest.fixture
async def service(server: FakePod, clock: Clock) -> AsyncIterator[Service]:
    site = Site(pods=(POD,), patience_s=0.05, room_s=60, fallen="relocate")
    made = Service(site, server, FakeSlurm(), clock=clock)
    await made.refresh()
    task = asyncio.create_task(made.counts.run())
    yield made
    task.cancel()


def listed(job: int, size: int, state: str, *, priority: int = 1, end: str = "") -> Listed:
    return Listed(job, state, 0, 0, priority, "Licenses", end, f"ipu:{size}", "")


async def test_what_slurm_started_before_finds_its_place(service: Service, clock: Clock) -> None:
    for job in (1, 2, 3):
        await service.begin_job(ask(job, 4))
    service.books["pod16"].close(0xFFFF, 9)
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
    book.close(0xFF00, 9)
    await service.give(ask(5, 2))
    await service.give(ask(6, 4))  # raises Busy where it has to wait
    assert (book.holdings[5].bits, book.holdings[6].bits) == (0xC000, 0x000F)


async def test_a_closed_block_stays_closed_once_all_that_was_started_has_its_devices(
    server: FakePod, clock: Clock
) -> None:
    used = 12

    def slurm(argv: Sequence[str]) -> str:
        return f"LicenseName=ipu_x1 Total=16 Used={used} Free=0" if "licenses" in argv else ""

    service = Service(Site(pods=(POD,), room_s=60), server, FakeSlurm(slurm), clock=clock)
    await service.refresh()
    telling = asyncio.create_task(service.counts.run())
    book = service.books["pod16"]
    await hold_all(service, "N/A", "12", "11")
    room = QueueRoom(service)
    await service.end_job(ask(1, 4))
    book.close(0xFF00, 9)
    await room.settle()
    assert book.unsettled  # Slurm counts 12, and the book has 8
    used = 8
    await room.settle()
    assert not book.unsettled
    assert book.take(5, 2) is not None
    assert book.take(6, 2) is None
    telling.cancel()


async def test_a_partition_that_moved_is_where_it_went(service: Service, server: FakePod) -> None:
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
    await hold_all(service, "12", "10", "N/A", "11")
    book.close(0xF0F0, 20, alone=True)
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
