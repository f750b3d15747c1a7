"""Room on a pod that others share: the server says which devices are kept, and for whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from podwright.errors import InvalidRequest, Unavailable
from podwright.guests.slurm.service import Service, Site
from podwright.guests.slurm.service._hook_calls import Busy
from podwright.guests.slurm.service._missed_hook_sweep import sentence
from podwright.guests.slurm.service._queue_large_job_room import QueueRoom
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.testing import FakePod, FakeSlurm
from podwright.wire import KeptPlace
from tests.guests.slurm.native.test_room import Clock, listed
from tests.guests.slurm.native.test_service import POD, ask


def devices(first: int, count: int) -> list[tuple[int, int]]:
    return [(0, first + place) for place in range(count)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> FakePod:
    pod = FakePod(cluster=POD.cluster)
    pod.sharing = True
    return pod


@pytest.fixture
async def service(server: FakePod, clock: Clock) -> AsyncIterator[Service]:
    site = Site(pods=(POD,), patience_s=0.05, room_s=60)
    made = Service(site, server, FakeSlurm(), clock=clock)
    await made.refresh()
    task = asyncio.create_task(made.counts.run())
    yield made
    task.cancel()


async def test_the_first_job_is_named_and_its_place_closed_until_it_is_offered(
    service: Service, server: FakePod, clock: Clock
) -> None:
    room, book = QueueRoom(service), service.books["pod16"]
    await service.begin_job(ask(1, 8))
    await service.begin_job(ask(2, 4))
    jobs = {
        1: listed(1, 8, "RUNNING", end="2100-01-01T00:00:00"),
        2: listed(2, 4, "RUNNING"),
        9: listed(9, 8, "PENDING", priority=7),
    }
    room.update(jobs)
    await room.exchange()
    (pool,) = server.requests[-1].pools
    assert (pool.job, pool.sizes, pool.due) == ("job 9", [8], False)
    (end,) = (e for e in server.requests[-1].end_times if e.partition == "slurm_1")

    assert end.seconds > 1e9
    clock.now = 60
    room.update(jobs)
    server.keep("job 9", 8, 8)
    await room.exchange()
    assert server.requests[-1].pools[0].due
    assert service.hidden()["ipu_x4"] == 4, "those beside job 2 are free and closed"
    assert sentence(book, 8, 9).endswith("a block is emptied for it, 4 are free")
    await service.end_job(ask(2, 4))
    server.keep("job 9", 8, 8, offered=True)
    await room.exchange()
    assert service.hidden()["ipu_x8"] == 0


async def test_devices_that_are_kept_for_others_are_not_counted(
    service: Service, server: FakePod
) -> None:
    room, book = QueueRoom(service), service.books["pod16"]
    await service.begin_job(ask(1, 4))
    server.keep("", 0, 8)
    await room.exchange()
    assert service.hidden()["ipu_x4"] == 4, "of those that are free, four are kept for others"
    await service.end_job(ask(1, 4))
    assert service.hidden()["ipu_x4"] == 8, "what job 1 had is not given out again"
    assert "8 are kept for others who share the pod" in sentence(book, 16)
    server.places = []
    await room.exchange()
    assert service.hidden()["ipu_x4"] == 0


async def test_a_job_that_waits_in_its_prolog_comes_first_and_is_due_at_once(
    service: Service, server: FakePod
) -> None:
    room, book = QueueRoom(service), service.books["pod16"]
    for job in (1, 2):
        await service.begin_job(ask(job, 8))
    await room.exchange()
    with pytest.raises(Busy):
        await service.give(ask(3, 8))
    assert not room.waiting({}), "this start is over"
    room.update({})
    assert not service.in_prolog
    with pytest.raises(Busy):
        await service.give(ask(3, 8))
    jobs = {3: listed(3, 8, "CONFIGURING"), 9: listed(9, 16, "PENDING", priority=1 << 31)}
    room.update(jobs)
    server.keep("job 3", 8, 8)
    await room.exchange()
    (pool,) = server.requests[-1].pools
    assert (pool.job, pool.sizes, pool.due) == ("job 3", [8], True)
    with pytest.raises(Busy):
        await service.give(ask(3, 8))
    assert book.closed, "its own place stays closed until it is free"
    await service.end_job(ask(2, 8))
    server.keep("job 3", 8, 8, offered=True)
    await room.exchange()
    await service.begin_job(ask(3, 8))
    assert book.holdings[3].start == 8
    room.update({3: listed(3, 8, "RUNNING")})
    await room.exchange()
    assert not server.requests[-1].pools[0].job


async def test_a_job_that_lost_its_devices_to_others_takes_none_of_a_kept_place(
    service: Service, server: FakePod
) -> None:
    """Slurm started job 3 for devices that were free, and somebody else was faster."""
    room, book = QueueRoom(service), service.books["pod16"]
    await service.begin_job(ask(1, 4))
    room.update({9: listed(9, 8, "PENDING", priority=7)})
    server.keep("job 9", 0, 8)
    await room.exchange()
    book.unsettled = False  # by now Slurm knows what is closed
    server.places.append(
        KeptPlace(cluster=POD.cluster, allocation=POD.allocation, devices=devices(8, 8))
    )
    await room.exchange()
    with pytest.raises(Busy):
        await service.give(ask(3, 4))
    assert book.closed == 0x00FF


async def test_an_older_server_keeps_no_places_and_that_is_said_once(
    service: Service, server: FakePod, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    room, book = QueueRoom(service), service.books["pod16"]
    server.refusal = InvalidRequest("the server does not know the call Enqueue")
    await service.begin_job(ask(1, 16))
    jobs = {1: listed(1, 16, "RUNNING"), 9: listed(9, 8, "PENDING", priority=7)}
    for clock.now in (0, 60):
        room.update(jobs)
        await room.exchange()
    assert book.closed == 0
    assert sum("keeps no devices" in record.getMessage() for record in caplog.records) == 1


def task(number: int, *, priority: int = 1) -> Listed:
    """A pending task of array 100. All have its number."""
    return listed(100, 8, "PENDING", priority=priority)._replace(array=100, task=number)


async def test_a_task_of_an_array_is_a_job_and_the_next_one_another(
    service: Service, server: FakePod, clock: Clock
) -> None:
    room = QueueRoom(service, wall=lambda: 5000.0 + clock.now)
    old = task(4)._replace(eligible=4000)
    room.update({100: old})
    await room.exchange()
    (pool,) = server.requests[-1].pools
    assert (pool.job, pool.due) == ("job 100_4", True), "it was eligible long ago"
    server.keep("job 100_4", 0, 8, offered=True)
    await room.exchange()
    room.update({101: listed(101, 8, "RUNNING"), 100: old._replace(task=5)})
    server.places = []
    await room.exchange()
    (pool,) = server.requests[-1].pools
    assert (pool.job, pool.due) == ("job 100_5", False), "its guest has just had its turn"
    clock.now = 60
    room.update({100: old._replace(task=5)})
    await room.exchange()
    assert server.requests[-1].pools[0].due


async def test_a_job_whose_offered_place_others_used_gets_the_highest_priority(
    service: Service, server: FakePod, clock: Clock
) -> None:
    room = QueueRoom(service)
    jobs = {9: listed(9, 8, "PENDING", priority=7), 10: listed(10, 4, "PENDING", priority=90)}
    room.update({9: jobs[9]})
    server.keep("job 9", 0, 8, offered=True)
    await room.exchange()
    server.keep("job 9", 0, 8)
    await room.exchange()
    slurm = service.slurm
    assert isinstance(slurm, FakeSlurm)
    room.update(jobs)
    await room.raise_passed(jobs)
    assert ("scontrol", "update", "jobid=9", "priority=91") in slurm.commands


async def test_a_silent_server_changes_nothing(service: Service, server: FakePod) -> None:
    room, book = QueueRoom(service), service.books["pod16"]
    server.keep("", 0, 8)
    await room.exchange()
    server.refusal = Unavailable("down")
    with pytest.raises(Unavailable):
        await room.exchange()
    assert book.others_places == 0xFF
