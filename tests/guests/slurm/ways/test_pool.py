"""Partitions that exist beforehand: static ones are handed over whole, a shared one in parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from podwright.errors import InvalidRequest, Unavailable
from podwright.guests.slurm.service import Fixed, HookJob, Site
from podwright.guests.slurm.service import SlurmPod as Kind
from podwright.guests.slurm.service._licence_check import expected_licences
from podwright.guests.slurm.service._missed_hook_sweep import Sweep
from podwright.guests.slurm.ways import SharedService, Static
from podwright.slurm.site.command_result import CommandResult
from podwright.testing import FakeJob, FakeSlurm
from podwright.wire import AcquireRequest, LeaseRequest, PartitionSpec
from tests.guests.slurm.ways.world import ROOT, Pod, asked

KIND = Kind(type="all", cluster="pod16", devices=16, largest=16, domain=16)


def part(job: int, size: int) -> HookJob:
    """A job of the shared partition, with everything that job_submit wrote for it."""
    licences = ",".join(f"{name}:{n}" for name, n in expected_licences(KIND, size).items())
    return msgspec.structs.replace(asked(job, licences), ipus=str(size))


def begins_once_listed(
    slurm: FakeSlurm, job: int, begins: Callable[[], Awaitable[str]]
) -> list[int]:
    """A waiting job begins between the sweep's two readings. Answers it after it has begun."""
    ask, begun = slurm.run, list[int]()

    async def run(*argv: str, **options: Any) -> CommandResult:
        said = await ask(*argv, **options)
        if argv[0] == "squeue" and not begun:
            begun.append(job)
            slurm.jobs[job].state = "RUNNING"
            await begins()
        return said

    slurm.run = run  # type: ignore[method-assign]
    return begun


@pytest_asyncio.fixture
async def static(pod: Pod, slurm: FakeSlurm) -> AsyncIterator[Static]:
    shelf = [("a", 4), ("b", 4), ("c", 2)]
    for name, size in shelf:
        await pod.make(name, size)
    fixed = tuple(Fixed(name=name, cluster="pod16", size=size) for name, size in shelf)
    way = Static(Site(mode="static", partitions=fixed, patience_s=0.05), pod, slurm)
    await way.known()
    task = asyncio.create_task(way.counts.run())
    yield way
    task.cancel()


async def test_the_right_free_ones_are_handed_over(
    static: Static, pod: Pod, slurm: FakeSlurm
) -> None:
    for job in (7, 8):
        slurm.jobs[job] = FakeJob()
    for _ in range(2):
        assert await static.begin_job(asked(7, "podwright_job:1,vipu_4:1")) == "partition=a\n"
    assert await static.begin_job(asked(8, "vipu_4:1,vipu_2:1")) == "partition=b,c\n"
    assert slurm.jobs[8].comment.startswith("podwright: partition=b,c lease=")
    assert {(one.owner, one.holder) for one in await pod.leases()} == {
        ("alice", "Slurm job 7"),
        ("alice", "Slurm job 8"),
    }
    slurm.jobs[9] = FakeJob()
    with pytest.raises(InvalidRequest, match="try 1 of 3"):
        await static.begin_job(asked(9, "vipu_4:1"))
    for job in (7, 8):
        for _ in range(2):
            await static.end_job(asked(job))
    assert await pod.leases() == []


async def test_a_job_that_began_since_it_was_listed_keeps_what_its_tasks_are_told(
    static: Static, slurm: FakeSlurm
) -> None:
    """The sweep writes what waiting jobs wait for. One of them begins between its two readings."""
    slurm.jobs[7] = FakeJob("PENDING", licences="vipu_4:1")
    begun = begins_once_listed(slurm, 7, lambda: static.begin_job(asked(7, "vipu_4:1")))
    await static.sweep()
    assert begun == [7]
    assert slurm.jobs[7].comment.startswith("podwright: partition=a lease=")


async def test_what_a_job_is_not_counted_with_any_more_is_not_free(
    static: Static, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = FakeJob(licences="podwright_job:1,vipu_4:2")
    assert await static.begin_job(asked(7, "podwright_job:1,vipu_4:2")) == "partition=a,b\n"
    hidden = []
    for licences in ("podwright_job:1,vipu_4:2", "podwright_job:1,vipu_4:1", "", "vipu_4:3"):
        slurm.jobs[7].licences = licences
        await static.sweep()
        hidden.append(static.hidden())
    assert hidden == [{"vipu_4": n, "vipu_2": 0} for n in (0, 1, 2, 0)]
    await static.end_job(asked(7))
    assert static.hidden() == {"vipu_4": 0, "vipu_2": 0}


async def test_what_cannot_be_used_is_not_counted(
    static: Static, pod: Pod, slurm: FakeSlurm
) -> None:
    assert static.hidden() == {"vipu_4": 0, "vipu_2": 0}
    await pod.make("x", 1)
    await pod.controller.acquire(ROOT, _whole("b"))
    await static.sweep()
    assert static.hidden() == {"vipu_4": 1, "vipu_2": 0}
    slurm.jobs[7] = FakeJob()
    assert await static.begin_job(asked(7, "vipu_4:1")) == "partition=a\n"
    slurm.jobs[8] = FakeJob("PENDING", licences="vipu_4:1")
    await static.sweep()
    assert slurm.jobs[8].comment == (
        "waits for 1 of the 2 partitions of 4 devices; 0 are free; "
        "a: Slurm job 7, b: poprun uses it"
    )
    await static.close()
    assert slurm.commands[-1][-2:] == ("licenses=vipu_4:2,vipu_2:1", "duration=UNLIMITED")


async def test_a_new_service_finds_what_jobs_hold_and_the_sweep_ends_what_is_over(
    static: Static, pod: Pod, slurm: FakeSlurm
) -> None:
    for job in (7, 8):
        slurm.jobs[job] = FakeJob()
        await static.begin_job(asked(job, "vipu_4:1"))
    slurm.jobs[7].state = "COMPLETED"
    again = Static(static.site, pod, slurm)
    await again.known()
    assert again.state()["partitions"] == {"a": "", "b": "Slurm job 8", "c": ""}
    assert [one.holder for one in await pod.leases()] == ["Slurm job 8"]


async def test_a_restarted_job_holds_its_partitions_anew(
    static: Static, pod: Pod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = FakeJob()
    await static.begin_job(asked(7, "vipu_4:1"))
    await static.begin_job(asked(7, "vipu_4:1", restart=1))
    await static.end_job(asked(7, restart=0))
    assert [one.holder for one in await pod.leases()] == ["Slurm job 7/1"]


async def test_a_job_with_a_forgotten_jobs_number_gets_nothing_of_it(
    static: Static, pod: Pod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = FakeJob()
    await static.begin_job(asked(7, "vipu_4:2"))
    other = msgspec.structs.replace(asked(7, "vipu_4:1"), user="bob", uid=1002)
    assert await static.begin_job(other) == "partition=a\n"
    assert [one.owner for one in await pod.leases()] == ["bob"]
    await static.begin_job(msgspec.structs.replace(other, licences="vipu_2:1"))
    assert [one.partition for one in await pod.leases()] == ["c"]


@pytest_asyncio.fixture
async def shared(pod: Pod, slurm: FakeSlurm) -> AsyncIterator[SharedService]:
    await pod.make("all", 16, reconfigurable=True)
    site = Site(mode="shared", pods=(KIND,), shared="all", patience_s=0.05)
    service = SharedService(site, pod, slurm)  # type: ignore[arg-type]
    await service.refresh()
    task = asyncio.create_task(service.counts.run())
    yield service
    task.cancel()


async def test_each_job_holds_a_part_of_the_shared_one(
    shared: SharedService, pod: Pod, slurm: FakeSlurm
) -> None:
    for job in (7, 8, 9):
        slurm.jobs[job] = FakeJob()
    await asyncio.gather(*(shared.begin_job(part(job, 4)) for job in (7, 8)))
    places = [set(one.devices) for one in await pod.leases()]
    assert [len(one) for one in places] == [4, 4]
    assert not places[0] & places[1]
    assert shared.hidden()["ipu_x8"] == 8
    with pytest.raises(Unavailable, match="no free block of 16"):
        await shared.begin_job(part(9, 16))
    await shared.end_job(part(7, 4))
    again = SharedService(shared.site, pod, slurm)  # type: ignore[arg-type]
    await again.refresh()
    assert list(again.books["all"].holdings) == [8]
    await shared.renew()
    await shared.end_job(part(8, 4))
    assert await pod.leases() == []
    assert shared.hidden()["ipu_x16"] == 0


async def test_a_part_that_was_given_since_its_job_was_listed_keeps_its_words(
    shared: SharedService, slurm: FakeSlurm
) -> None:
    """As with static partitions, the sweep's list is older than the start."""
    job = part(7, 4)
    slurm.jobs[7] = FakeJob("PENDING", licences=job.licences)
    begun = begins_once_listed(slurm, 7, lambda: shared.begin_job(job))
    await Sweep(shared).once()
    assert begun == [7]
    assert "partition=all lease=" in slurm.jobs[7].comment


async def test_a_part_is_not_passed_on_with_a_forgotten_jobs_number(
    shared: SharedService, pod: Pod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = FakeJob()
    await shared.begin_job(part(7, 4))
    await shared.begin_job(msgspec.structs.replace(part(7, 4), user="bob", uid=1002))
    (lease,) = await pod.leases()
    assert lease.owner == "bob"
    assert slurm.jobs[7].comment == f"podwright: partition=all lease={lease.id} gcds=1"


async def test_launches_of_others_in_the_shared_one_are_counted_out(
    shared: SharedService, pod: Pod
) -> None:
    lease = (await pod.controller.acquire(ROOT, _whole("all", 8))).lease
    await shared.refresh()
    assert shared.hidden()["ipu_x16"] == 16
    assert shared.hidden()["ipu_x8"] == 8
    await pod.controller.release(ROOT, LeaseRequest(id=lease.id, epoch=lease.epoch))
    await shared.refresh()
    assert shared.hidden()["ipu_x16"] == 0


def _whole(name: str, size: int = 0) -> AcquireRequest:
    return AcquireRequest(spec=PartitionSpec(name=name, size=size), holder="poprun", ttl=60)
