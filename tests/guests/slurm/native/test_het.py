"""Heterogeneous jobs that are held or cancelled at the very moment when they might have started.

Also jobs whose notes no longer tell what their parts are to have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from podwright.errors import InvalidRequest, Unavailable
from podwright.guests.slurm.service import HookJob, Service, Site, Sweep
from podwright.guests.slurm.service._squeue_jobs import _SQUEUE_COLUMN_WIDTHS
from podwright.slurm.site.commands import CommandResult
from podwright.testing import FakePod, FakeSlurm
from tests.guests.slurm.native.test_service import POD, described


class Queue:
    """A heterogeneous job of two parts, 20 and 21. offered: whether its leader may start.

    notes: what job_submit wrote for them.
    """

    def __init__(self) -> None:
        self.state, self.priority, self.licences = "PENDING", "9", "podwright_het_wait:1"
        self.notes = {20: "ipus=4 gcds=1 pod=pod16", 21: "ipus=4 gcds=1 pod=pod16"}
        self.leader = "20"
        self.offered = asyncio.Event()
        self.back = asyncio.Event()

    def __call__(self, argv: Sequence[str]) -> CommandResult | str:
        if argv[:3] == ("scontrol", "--oneliner", "show"):
            return "LicenseName=ipu_x1 Total=16 Used=0 Free=16"
        if argv[0] == "squeue":
            return "".join(self._row(job) for job in (20, 21) if self.state)
        if argv[2] == "jobid=20+0":
            self.licences = argv[3].partition("=")[2]
            (self.back if "het_wait" in self.licences else self.offered).set()
        return ""

    def _row(self, job: int) -> str:
        words = [str(job), self.state, "0", self.leader, self.priority, "Resources", "", "1:00"]
        words += [self.licences if job == 20 else "", self.notes[job], *[""] * 5]
        padded = (
            word.ljust(w) for word, w in zip(words, _SQUEUE_COLUMN_WIDTHS.values(), strict=True)
        )
        return "".join(padded) + "\n"


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
async def service(queue: Queue) -> AsyncIterator[Service]:
    made = Service(Site(pods=(POD,), patience_s=0.05), FakePod(), FakeSlurm(queue))
    await made.refresh()
    tasks = [asyncio.create_task(made.counts.run()), asyncio.create_task(made.het.run())]
    async with asyncio.timeout(120):
        await queue.offered.wait()
    assert set(made.books["pod16"].holdings) == {20, 21}
    yield made
    for task in tasks:
        task.cancel()


async def free_again(service: Service) -> None:
    """Check that nothing is set aside, and that Slurm knows."""
    async with asyncio.timeout(120):
        while service.books["pod16"].holdings or service.counts.last_hidden["ipu_x16"]:
            await service.counts.wait_until_synced()


async def test_cancelled_it_holds_nothing(service: Service, queue: Queue) -> None:
    queue.state = "CANCELLED"
    await free_again(service)


async def test_forgotten_it_holds_nothing(service: Service, queue: Queue) -> None:
    queue.state = ""
    await free_again(service)


async def test_where_another_has_its_number_that_one_is_not_touched(
    service: Service, queue: Queue
) -> None:
    """slurmctld was killed, has forgotten the job, and gave its number to an ordinary job."""
    queue.leader = "0"
    await free_again(service)
    assert not queue.back.is_set()


async def test_held_it_holds_nothing_and_waits_again(service: Service, queue: Queue) -> None:
    queue.priority = "0"
    await free_again(service)
    assert queue.licences == "podwright_het_wait:1"


async def test_started_it_keeps_what_was_set_aside(service: Service, queue: Queue) -> None:
    queue.state = "CONFIGURING"
    async with asyncio.timeout(120):
        while service.het.busy():
            await service.counts.wait_until_synced()
    await Sweep(service).once()
    assert set(service.books["pod16"].holdings) == {20, 21}
    queue.state = "CANCELLED"  # before a prolog ran, and its epilog never did
    await Sweep(service).once()
    assert service.books["pod16"].holdings == {}


async def lost(queue: Queue, **notes: str) -> Service:
    """A service that finds the job running with overwritten notes. None of its hooks has
    finished.
    """
    queue.notes |= {int(job[1:]): note for job, note in notes.items()}
    queue.state = "RUNNING"
    made = Service(Site(pods=(POD,), patience_s=0.05), FakePod(), FakeSlurm(queue))
    await made.refresh()
    return made


def step(job: int, **more: str) -> HookJob:
    said = {"job": str(job), "het_job": "20", "restart": "0", "step": "step", "unread": "1"}
    return described(said | more)


@pytest.mark.parametrize(
    ("licences", "note", "said"),
    [
        ("ipu:4;podwright_job:1", "", ""),
        ("podwright_het_wait:1", "", ""),
        ("", "ipus=4 gcds=1 pod=pod16", ""),  # of the other part
        ("", "", "4"),  # all is lost but what its environment hands over
    ],
)
async def test_a_step_of_a_part_of_which_nobody_knows_what_it_is_to_have_is_refused(
    queue: Queue, licences: str, note: str, said: str
) -> None:
    queue.licences = licences
    service = await lost(queue, _20=note, _21="somebody's words")
    with pytest.raises(InvalidRequest, match="what job 21 is to have is not noted"):
        await service.prove_step(step(21, ipus=said))


async def test_a_part_is_proven_by_what_it_holds_where_its_note_is_lost(queue: Queue) -> None:
    service = await lost(queue, _21="ipus=4 gcds=1 pod=pod16")
    await service.begin_job(described({"job": "21", "het_job": "20", "ipus": "4", "uid": "5"}))
    queue.notes[21] = "somebody's words"
    assert await service.prove_step(step(21)) == "ipus=4\n"


async def test_parts_of_a_job_without_devices_need_no_notes(queue: Queue) -> None:
    queue.licences = "matlab:1"
    service = await lost(queue, _20="", _21="")
    assert await service.prove_step(step(21)) == "ipus=0\n"


@pytest.mark.parametrize(("note", "refused"), [("", True), ("ipus=0", False)])
async def test_a_script_does_not_begin_before_all_parts_have_what_they_asked_for(
    queue: Queue, note: str, refused: bool
) -> None:
    service = await lost(queue)
    await service.begin_job(described({"job": "20", "het_job": "20", "ipus": "4", "uid": "5"}))
    queue.notes[21] = note
    script = described({"job": "20", "het_job": "20", "ipus": "4", "step": "batch"})
    if refused:
        with pytest.raises(InvalidRequest, match="what job 21 is to have is not noted"):
            await service.prove_step(script)
    else:
        assert await service.prove_step(script) == ""


@pytest.mark.parametrize("job", [20, 21])
async def test_a_waiting_job_that_lost_a_note_is_held_with_the_reason(
    queue: Queue, job: int
) -> None:
    service = await lost(queue, **{f"_{job}": "somebody's words"})
    queue.state = "PENDING"
    await Sweep(service).once()
    assert isinstance(service.slurm, FakeSlurm)
    assert ("scontrol", "hold", "20") in service.slurm.commands
    (told,) = [one for one in service.slurm.commands if "Held: " in one[-1]]
    assert told[2] == "jobid=20+0"
    assert f"what job {job} is to have is not noted in its AdminComment" in told[3]
    assert told[3].startswith("admincomment=ipus=4 gcds=1 pod=pod16; ") is (job == 21)


class TwoJobs:
    """Two heterogeneous jobs of equal priority, 20 with 21 and 30 with 31, newest first as 26.05
    lists them. offers: the leaders that may start, in the order in which they were offered.
    """

    def __init__(self, size: int) -> None:
        self.size, self.offers = size, list[str]()
        self.submitted = [30, 31, 20, 21]
        self.running: set[int] = set()
        self.first, self.both = asyncio.Event(), asyncio.Event()

    def __call__(self, argv: Sequence[str]) -> CommandResult | str:
        if argv[:3] == ("scontrol", "--oneliner", "show"):
            return "LicenseName=ipu_x1 Total=16 Used=0 Free=16"
        if argv[0] == "squeue":
            return "".join(self._row(job, job - job % 10) for job in self.submitted)
        if argv[2].startswith("jobid=") and "het_wait" not in argv[3]:
            self.offers.append(argv[2])
            self.first.set()
            if len(self.offers) == 2:
                self.both.set()
        return ""

    def _row(self, job: int, leader: int) -> str:
        state = "RUNNING" if leader in self.running else "PENDING"
        words = [str(job), state, "0", str(leader), "9", "Resources", "", "1:00"]
        words += ["podwright_het_wait:1" if job == leader else ""]
        words += [f"ipus={self.size} gcds=1 pod=pod16", *[""] * 5]
        padded = (
            word.ljust(w) for word, w in zip(words, _SQUEUE_COLUMN_WIDTHS.values(), strict=True)
        )
        return "".join(padded) + "\n"


async def test_all_that_fit_are_offered_together_in_slurms_order() -> None:
    jobs = TwoJobs(4)
    service = Service(Site(pods=(POD,), window_s=3600.0), FakePod(), FakeSlurm(jobs))
    await service.refresh()
    tasks = [asyncio.create_task(service.counts.run()), asyncio.create_task(service.het.run())]
    async with asyncio.timeout(120):
        await jobs.both.wait()  # the first one's window is an hour, and has not passed
    assert jobs.offers == ["jobid=20+0", "jobid=30+0"]
    assert service.het.busy() == {20, 21, 30, 31}
    for task in tasks:
        task.cancel()


async def test_an_offer_that_is_not_taken_holds_up_no_job_that_comes_later() -> None:
    jobs = TwoJobs(4)
    jobs.submitted = [20, 21]
    service = Service(Site(pods=(POD,), window_s=3600.0), FakePod(), FakeSlurm(jobs))
    await service.refresh()
    tasks = [asyncio.create_task(service.counts.run()), asyncio.create_task(service.het.run())]
    async with asyncio.timeout(120):
        await jobs.first.wait()
        jobs.submitted += [30, 31]
        await jobs.both.wait()  # the first one's window is an hour, and has not passed
    assert jobs.offers == ["jobid=20+0", "jobid=30+0"]
    assert service.het.busy() == {20, 21, 30, 31}
    for task in tasks:
        task.cancel()


def looks(slurm: FakeSlurm) -> int:
    return sum(argv[0] == "squeue" for argv in slurm.commands)


@pytest.mark.parametrize(("started", "stands"), [(20, True), (30, False)])
async def test_an_offer_stands_longer_once_slurm_has_started_one_that_was_made_before_it(
    started: int, stands: bool
) -> None:
    """A pass of Slurm's starts only those whose nodes no other of them was tested with."""
    jobs, now = TwoJobs(4), [0.0]
    slurm = FakeSlurm(jobs)
    service = Service(Site(pods=(POD,), window_s=60.0), FakePod(), slurm, clock=lambda: now[0])
    await service.refresh()
    tasks = [asyncio.create_task(service.counts.run()), asyncio.create_task(service.het.run())]
    other = 50 - started
    async with asyncio.timeout(120):
        await jobs.both.wait()
        now[0] = 50.0
        jobs.running = {started}
        while started in service.het.busy():
            await service.counts.wait_until_synced()
        now[0], seen = 70.0, looks(slurm)
        while looks(slurm) < seen + 8:
            await service.counts.wait_until_synced()
        assert (other in service.het.busy()) is stands
        assert service.het.declined == (set() if stands else {other})
    for task in tasks:
        task.cancel()


async def test_an_error_of_one_offer_ends_that_offer_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = TwoJobs(4)

    def slurm(argv: Sequence[str]) -> CommandResult | str:
        if argv[2] == "jobid=20+0" and "het_wait" not in argv[3]:
            raise Unavailable("slurmctld is slow")
        return jobs(argv)

    service = Service(Site(pods=(POD,), window_s=3600.0), FakePod(), FakeSlurm(slurm))
    await service.refresh()
    tasks = [asyncio.create_task(service.counts.run()), asyncio.create_task(service.het.run())]
    async with asyncio.timeout(120):
        await jobs.first.wait()
    assert jobs.offers[0] == "jobid=30+0"
    assert {30, 31} <= service.het.busy()
    assert "job 20: slurmctld is slow" in caplog.text
    for task in tasks:
        task.cancel()


async def test_of_two_that_do_not_fit_together_the_older_is_offered() -> None:
    jobs = TwoJobs(8)
    service = Service(Site(pods=(POD,), window_s=3600.0), FakePod(), FakeSlurm(jobs))
    await service.refresh()
    tasks = [asyncio.create_task(service.counts.run()), asyncio.create_task(service.het.run())]
    async with asyncio.timeout(120):
        while service.het.busy() != {20, 21} or not jobs.offers:
            await service.counts.wait_until_synced()
    assert jobs.offers == ["jobid=20+0"]
    for task in tasks:
        task.cancel()


async def test_state_names_what_the_first_waiting_job_asked_for(queue: Queue) -> None:
    """Regression: it named a job of the largest size, whatever waited: 16 devices for a job
    of 4.
    """
    made = Service(Site(pods=(POD,), patience_s=0.05), FakePod(), FakeSlurm(queue))
    await made.refresh()
    await Sweep(made).once()
    shown = made.state()["pods"]["pod16"]["next"]
    assert shown == "job 20: 4 devices of pod16 are free for it: it waits for nodes"
    queue.state = "COMPLETED"
    await Sweep(made).once()
    assert made.state()["pods"]["pod16"]["next"] == ""
