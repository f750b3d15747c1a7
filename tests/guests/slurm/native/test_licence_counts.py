"""Slurm is told soon what it may give out, and at once what it may not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest

from podwright.guests.slurm.service import (
    Service,
    Site,
    _licence_counts,
    _squeue_jobs,
    parse_licences,
)
from podwright.guests.slurm.service._licence_check import expected_licences
from podwright.slurm.site.commands import CommandResult
from podwright.testing import FakePod, FakeSlurm
from tests.guests.slurm.native.test_service import POD, ask


class CountingSlurm(FakeSlurm):
    """Starts whatever its counts allow. told: what the reservation hides. used: by its jobs.

    open: cleared, an update is under way and not in force yet. rng: how long each command takes.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(self._answer_command)
        self.told: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.open = asyncio.Event()
        self.open.set()
        self._rng = random.Random(seed)

    async def run(self, *argv: str) -> CommandResult:
        await self._turns()
        if argv[0] == "scontrol":
            await self.open.wait()
        result = await super().run(*argv)
        await self._turns()
        return result

    def start(self, devices: int) -> bool:
        """Start a job if each of its licences suffices, and count it. Return whether it started."""
        wanted = expected_licences(POD, devices)
        blocks = [name for name in wanted if "_x" in name]
        free = (16 - self.used.get(name, 0) - self.told.get(name, 0) for name in blocks)
        if any(left < devices for left in free):
            return False
        self._count(devices, 1)
        return True

    def end(self, devices: int) -> None:
        self._count(devices, -1)

    def _count(self, devices: int, sign: int) -> None:
        for name, count in expected_licences(POD, devices).items():
            self.used[name] = self.used.get(name, 0) + sign * count

    async def _turns(self) -> None:
        for _ in range(self._rng.randrange(12)):
            await asyncio.sleep(0)

    def _answer_command(self, argv: Sequence[str]) -> str:
        if argv[:2] == ("scontrol", "update"):
            self.told = dict(parse_licences(argv[3].partition("=")[2]))
        return ""


@pytest.fixture
def slurm() -> CountingSlurm:
    return CountingSlurm()


@pytest.fixture
async def service(slurm: CountingSlurm) -> AsyncIterator[Service]:
    made = Service(Site(pods=(POD,), patience_s=0.0), FakePod(), slurm)
    await made.known()
    task = asyncio.create_task(made.counts.run())
    yield made
    task.cancel()


async def test_a_job_that_ends_waits_for_no_update_that_lets_slurm_give_out_more(
    service: Service, slurm: CountingSlurm
) -> None:
    for job in (1, 2):
        await service.begin_job(ask(job, 8))
    await service.counts.wait_until_synced()
    slurm.open.clear()
    await service.end_job(ask(1, 8))
    assert slurm.told["ipu_x16"] == 16
    slurm.open.set()
    await service.end_job(ask(2, 8))
    await service.counts.wait_until_synced()
    assert "ipu_x16" not in slurm.told


async def test_a_job_that_ends_waits_until_slurm_knows_that_a_larger_block_is_in_pieces(
    service: Service, slurm: CountingSlurm
) -> None:
    """Of 16 devices job 1 has 4 when Slurm is told the counts. Jobs 2 and 3 of 4 begin: the second
    half is in pieces, though Slurm counts 8 devices in it that lie together. After the end of job
    1, Slurm would start a job of 8.
    """
    for job in (1, 2, 3):
        assert slurm.start(4)
        await service.begin_job(ask(job, 4))
        if job == 1:
            await service.counts.wait_until_synced()
    assert not slurm.start(8)
    slurm.open.clear()
    ending = asyncio.create_task(service.end_job(ask(1, 4)))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not ending.done()
    slurm.open.set()
    await ending
    slurm.end(4)
    assert not slurm.start(8)


@pytest.mark.parametrize("seed", range(20))
async def test_what_slurm_starts_by_its_counts_always_fits(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs begin and end in any order while updates take their time, or are not sent yet."""
    for module in (_licence_counts, _squeue_jobs):
        monkeypatch.setattr(module, "GATHER_S", 0.0)
    rng, slurm = random.Random(seed), CountingSlurm(seed)
    service = Service(Site(pods=(POD,), patience_s=0.0), FakePod(), slurm)
    await service.known()
    updates = asyncio.create_task(service.counts.run())
    tasks: list[asyncio.Task[None]] = []

    async def live(job: int, devices: int) -> None:
        await asyncio.sleep(0)
        await service.begin_job(ask(job, devices))
        for _ in range(rng.randrange(200)):
            await asyncio.sleep(0)
        await service.end_job(ask(job, devices))
        slurm.end(devices)

    async with asyncio.timeout(120):
        while len(tasks) < 150:
            devices = rng.choice((1, 2, 4, 8, 16))
            if slurm.start(devices):
                tasks.append(asyncio.create_task(live(len(tasks) + 1, devices)))
            for _ in range(rng.randrange(30)):
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
    updates.cancel()
    assert service.figures.waited == service.figures.refused == 0
