"""Heterogeneous jobs that are held or cancelled at the very moment when they might have started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from podwright.slurm.pods.service import Service, Site, Sweep
from podwright.slurm.pods.service._queue import _WIDTHS
from podwright.slurm.site.commands import CommandResult, FakeSlurm
from tests.slurm.pods.native.test_service import POD, OnePod


class Queue:
    """A heterogeneous job of two parts, 20 and 21. offered: its leader may start."""

    def __init__(self) -> None:
        self.state, self.priority, self.licences = "PENDING", "9", "podwright_het_wait:1"
        self.offered = asyncio.Event()
        self.back = asyncio.Event()

    def __call__(self, argv: Sequence[str]) -> CommandResult | str:
        if argv[:3] == ("scontrol", "-o", "show"):
            return "LicenseName=ipu_x1 Total=16 Used=0 Free=16"
        if argv[0] == "squeue":
            return "".join(self._row(job) for job in (20, 21) if self.state)
        if argv[2] == "jobid=20+0":
            self.licences = argv[3].partition("=")[2]
            (self.back if "het_wait" in self.licences else self.offered).set()
        return ""

    def _row(self, job: int) -> str:
        words = [str(job), self.state, "0", "20", self.priority, "Resources", "", "1:00"]
        words += [self.licences if job == 20 else "", "ipus=4 gcds=1 pod=pod16", "", ""]
        padded = (word.ljust(w) for word, w in zip(words, _WIDTHS.values(), strict=True))
        return "".join(padded) + "\n"


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
async def service(queue: Queue) -> AsyncIterator[Service]:
    made = Service(Site(pods=(POD,), patience_s=0.05), OnePod(), FakeSlurm(queue))
    await made.refresh()
    tasks = [asyncio.create_task(made.counts.run()), asyncio.create_task(made.het.run())]
    made.het.some.set()
    async with asyncio.timeout(120):
        await queue.offered.wait()
    assert set(made.books["pod16"].holdings) == {20, 21}
    yield made
    for task in tasks:
        task.cancel()


async def free_again(service: Service) -> None:
    """Nothing is set aside, and Slurm knows."""
    async with asyncio.timeout(120):
        while service.books["pod16"].holdings or service.counts.told["ipu_x16"]:
            await service.counts.synced()


async def test_cancelled_it_holds_nothing(service: Service, queue: Queue) -> None:
    queue.state = "CANCELLED"
    await free_again(service)


async def test_forgotten_it_holds_nothing(service: Service, queue: Queue) -> None:
    queue.state = ""
    await free_again(service)


async def test_held_it_holds_nothing_and_waits_again(service: Service, queue: Queue) -> None:
    queue.priority = "0"
    await free_again(service)
    assert queue.licences == "podwright_het_wait:1"


async def test_started_it_keeps_what_was_set_aside(service: Service, queue: Queue) -> None:
    queue.state = "CONFIGURING"
    async with asyncio.timeout(120):
        while service.het.busy():
            await service.counts.synced()
    await Sweep(service).once()
    assert set(service.books["pod16"].holdings) == {20, 21}
    queue.state = "CANCELLED"  # before a prolog ran, and its epilog never did
    await Sweep(service).once()
    assert service.books["pod16"].holdings == {}
