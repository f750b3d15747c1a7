"""Two months of jobs through the service and the server: what they keep does not grow.

Time is virtual, and passes a job at a time. The store and the history are files. `make soak` has
200,000 jobs, of which the first half fill what is kept for a month; a few stand for them here.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from podwright.agents import SimulatedMachine
from podwright.controller import Caller, Controller, Role
from podwright.errors import NotFound
from podwright.fabric import preset
from podwright.guests.slurm.service import HookJob, Service, Site, Sweep
from podwright.history import KEEP_ROWS
from podwright.server._history_recorder import Recorder
from podwright.store import SQLiteStore
from podwright.testing import FakeJob, FakeSlurm
from podwright.wire import (
    METHODS,
    CreateRequest,
    DeviceInfo,
    EnqueueReply,
    EnqueueRequest,
    JobInfo,
    JobReport,
    ListRequest,
    PartitionInfo,
    PartitionSpec,
    RemoveRequest,
    joined,
    next_page,
)
from tests.controller.world import Time
from tests.guests.slurm.native.test_service import POD, ask

SLURM = Caller("slurm", 990, Role.SCHEDULER, "unix")
ROOT = Caller("root", 0, Role.ADMINISTRATOR, "unix")
DAY = 86_400.0
DAYS = 62.0
SOAK_JOBS = 200_000
AT_ONCE = 4  #: jobs that run at a time


class Kept(NamedTuple):
    """What is kept at a moment. objects: that Python's collector knows. store, history: bytes."""

    objects: int
    store: int
    history: int


class Server:
    """The controller as the service calls it."""

    guest = ""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller

    async def _all(self, method_name: str) -> Any:
        pages: list[Any] = []
        request: Any = ListRequest()
        while request is not None:
            call = getattr(self.controller, METHODS[method_name].function)
            pages.append(await call(SLURM, request))
            request = next_page(request, pages[-1])
        return joined(pages)

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        devices: list[DeviceInfo] = (await self._all("ListDevices")).devices
        return devices

    async def partitions(self, cluster: str, allocation: str) -> list[PartitionInfo]:
        partitions: list[PartitionInfo] = (await self._all("ListPartitions")).partitions
        return partitions

    async def create(self, spec: PartitionSpec, uid: int, user: str, job: str) -> PartitionInfo:
        request = CreateRequest(spec=spec, owner=user, owner_uid=uid, job=job, guest=self.guest)
        made: PartitionInfo = await self.controller.create_partition(SLURM, request)
        return made

    async def remove(self, name: str, job: str) -> None:
        with suppress(NotFound):
            request = RemoveRequest(name=name, job=job, force=True)
            await self.controller.remove_partition(SLURM, request)

    async def relocate(self, name: str) -> None:
        raise AssertionError

    async def enqueue(self, request: EnqueueRequest) -> EnqueueReply:
        reply: EnqueueReply = await self.controller.enqueue(SLURM, request)
        return reply

    async def report(self, jobs: list[JobInfo]) -> None:
        await self.controller.report_jobs(SLURM, JobReport(jobs=jobs))


class Months:
    """A site whose days pass as its jobs come and go."""

    def __init__(self, folder: Path) -> None:
        cluster = preset("pod16")
        machines = [machine for domain in cluster.domains for machine in domain.machines]
        self.time = Time()
        self.store = SQLiteStore(
            folder / "store.db", wall=self.time.wall, monotonic=self.time.monotonic
        )
        self.controller = Controller(
            self.store,
            [cluster],
            {machine.name: SimulatedMachine(machine, cluster.family) for machine in machines},
            version="test",
            sleep=self.time.sleep,
        )
        self.slurm = FakeSlurm()
        self.service = Service(
            Site(pods=(POD,)),
            Server(self.controller),
            self.slurm,
            clock=self.time.monotonic,
        )
        self.sweep = Sweep(self.service)
        self.history = self.store.history()
        self.recorder = Recorder(
            self.history,
            self._list,
            lambda: self.controller.observer,
            lambda: self.controller.changes,
            lambda: 1,
            wall_clock=self.time.wall,
        )
        self.running: list[HookJob] = []

    async def _list(self, method_name: str) -> Any:
        call = getattr(self.controller, METHODS[method_name].function)
        return await call(ROOT, ListRequest())

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass, with a record of each minute, and the timers that are due."""
        end = self.time.now + seconds
        while self.time.now < end:
            self.time.now = min(end, (self.time.now // 60 + 1) * 60)
            due = [future for at, future in self.time._sleepers if at <= self.time.now]
            self.time._sleepers = [one for one in self.time._sleepers if one[0] > self.time.now]
            for future in due:
                future.set_result(None)
            await asyncio.sleep(0)
            await self.recorder.record()

    async def job(self, number: int) -> None:
        """A job begins, and the oldest one ends, mostly by its epilog."""
        job = ask(number, 2 if number % 3 else 4)
        self.slurm.jobs[number] = FakeJob(licences=job.licences)
        assert "IPUOF_VIPU_API_PARTITION_ID" in await self.service.begin_job(job)
        self.running.append(job)
        if len(self.running) > AT_ONCE:
            over = self.running.pop(0)
            del self.slurm.jobs[over.job]
            if over.job % 20:
                await self.service.end_job(over)
            else:  # its epilog never came
                await self.sweep.once()

    def kept(self) -> Kept:
        gc.collect()
        files = self.store.path, self.history.path
        return Kept(len(gc.get_objects()), *(file.stat().st_size for file in files))


@pytest.fixture
async def months(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Months]:
    caplog.set_level(logging.ERROR)  # what is captured would be kept
    made = Months(tmp_path)
    await made.controller.start()
    await made.service.refresh()
    counting = asyncio.create_task(made.service.counts.run())
    yield made
    counting.cancel()
    await made.controller.close()


async def _half_and_whole(months: Months, jobs: int, seconds_each: float) -> tuple[Kept, Kept]:
    kept = []
    for number in range(1, jobs + 1):
        await months.job(number)
        await months.pass_seconds(seconds_each)
        if number in (jobs // 2, jobs):
            kept.append(months.kept())
    return kept[0], kept[1]


async def test_a_few_jobs_leave_nothing_behind(months: Months) -> None:
    audit = months.controller._services.audit
    audit._limit, audit._event_surplus = 100, 0
    half, whole = await _half_and_whole(months, 1000, 7.0)
    assert whole.objects <= half.objects + 300  # one of each job would be 500 more
    assert whole.store <= half.store * 1.05
    assert months.service.figures.swept > 0


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not os.environ.get("PODWRIGHT_SOAK"), reason="a count for make soak")
async def test_two_months_of_200_000_jobs_keep_no_more_than_one(months: Months) -> None:
    half, whole = await _half_and_whole(months, SOAK_JOBS, DAYS * DAY / SOAK_JOBS)
    print(f"after a month {half}, after two {whole}")
    assert whole.objects <= half.objects + 1000
    assert whole.store <= half.store * 1.02
    assert whole.history <= half.history * 1.05
    oldest, *_ = await months.history.sums(0, int(months.time.wall() // 60))
    assert oldest.last >= int(months.time.wall() // 60) - KEEP_ROWS
