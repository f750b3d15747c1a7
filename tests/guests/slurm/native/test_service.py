"""The service against a server and a Slurm of the test's own: requests of hooks, and the sweep."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from podwright.errors import InvalidRequest, NotFound, Unavailable
from podwright.guests.slurm.service import HookJob, Service, Site, SlurmPod, Sweep
from podwright.guests.slurm.service._end_deviceless_jobs import OLD_JOB_GRACE_S
from podwright.guests.slurm.service._hook_job_request import hook_job
from podwright.guests.slurm.service._licence_check import StartIsOver, expected_licences
from podwright.guests.slurm.service._squeue_jobs import listed
from podwright.slurm.site.commands import CommandResult
from podwright.testing import FakeJob, FakePod, FakeSlurm

POD = SlurmPod(type="pod16", cluster="pod16", devices=16, largest=16, domain=16)


def job(
    state: str,
    restarts: int = 0,
    *,
    licences: str = "ipu:4",
    submitted: str = "",
    user_id: str = "",
) -> FakeJob:
    """Return a job that has licences of four devices."""
    return FakeJob(state, restarts, licences, submitted=submitted, user_id=user_id)


@pytest.fixture
def server() -> FakePod:
    return FakePod()


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
async def service(server: FakePod, slurm: FakeSlurm) -> AsyncIterator[Service]:
    made = Service(Site(pods=(POD,), patience_s=0.05), server, slurm)
    await made.refresh()
    task = asyncio.create_task(made.counts.run())
    yield made
    task.cancel()


def described(words: dict[str, str]) -> HookJob:
    """Return a job in the words of a hook."""
    return hook_job(json.dumps(words).encode())


def ask(number: int, devices: int, restart: int = 0, **more: str) -> HookJob:
    licences = ";".join(f"{name}:{n}" for name, n in expected_licences(POD, devices).items())
    said = {"uid": "5", "user": "games", "licences": licences, "ipus": str(devices)}
    return described({"job": str(number), "restart": str(restart)} | said | more)


async def test_a_job_gets_the_same_partition_however_often_it_is_asked_for(
    service: Service, server: FakePod
) -> None:
    said = await asyncio.gather(*(service.begin_job(ask(7, 4)) for _ in range(5)))
    assert set(said) == {"IPUOF_VIPU_API_PARTITION_ID=slurm_7\n"}
    assert (server.made["slurm_7"].owner, server.made["slurm_7"].job) == ("games", "7")
    for _ in range(2):
        await service.end_job(ask(7, 4))
    assert server.made == {}
    assert service.counts.last_hidden["ipu_x16"] == 0


async def test_counts_say_what_lies_together(service: Service) -> None:
    for job in (1, 2, 3):
        await service.begin_job(ask(job, 4))
    await service.end_job(ask(2, 4))
    # Free: 4..7 and 12..15; jobs 1 and 3 hold four each.
    assert [service.hidden()[f"ipu_x{k}"] for k in (1, 4, 8, 16)] == [0, 0, 16, 16]


async def test_an_end_of_an_earlier_life_changes_nothing(service: Service, server: FakePod) -> None:
    await service.begin_job(ask(7, 4, restart=1))
    await service.end_job(ask(7, 4, restart=0))
    assert server.made["slurm_7"].job == "7/1"


async def test_what_another_service_gave_meanwhile_stays(
    service: Service, server: FakePod, slurm: FakeSlurm
) -> None:
    """A service that was stopped, or cut off, while another served knows an older start."""
    await service.begin_job(ask(7, 4))
    other = Service(service.site, server, slurm)
    await other.refresh()
    slurm.jobs[7] = job("RUNNING", 1)
    await other.begin_job(ask(7, 4, restart=1))
    assert server.made["slurm_7"].job == "7/1"
    await service.end_job(ask(7, 4))
    assert server.made["slurm_7"].job == "7/1"
    await service.refresh()
    assert service.books["pod16"].holdings[7].restart == 1


async def test_without_a_block_the_hook_is_told_to_ask_again(service: Service) -> None:
    await service.begin_job(ask(1, 16))
    with pytest.raises(Unavailable, match="no free block of 4"):
        await service.begin_job(ask(2, 4))
    assert service.figures.refused == 1
    with pytest.raises(InvalidRequest):
        await service.begin_job(ask(3, 3))


async def test_a_new_service_finds_what_the_old_one_gave(
    service: Service, server: FakePod, slurm: FakeSlurm
) -> None:
    await service.begin_job(ask(7, 8, restart=2))
    again = Service(service.site, server, slurm)
    await again.refresh()
    (holding,) = again.books["pod16"].holdings.values()
    assert (holding.job, holding.restart, holding.size) == (7, 2, 8)


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (None, False),
        (job("COMPLETED"), False),
        (job("CANCELLED"), False),
        (job("PENDING", 1), False),
        (job("RUNNING"), True),
        (job("COMPLETING"), True),
        (job("CONFIGURING"), True),
        (job("SUSPENDED"), True),
    ],
)
async def test_the_sweep_ends_what_is_over_and_touches_nothing_that_lives(
    service: Service, server: FakePod, slurm: FakeSlurm, now: FakeJob | None, left: bool
) -> None:
    await service.begin_job(ask(7, 4))
    if now:
        slurm.jobs[7] = now
    await Sweep(service).once()
    assert ("slurm_7" in server.made) is left


@pytest.mark.parametrize(
    ("licences", "hidden"),
    [
        ("ipu:4,podwright_job:1,ipu_x1:4,ipu_x2:4,ipu_x4:4", [0, 0, 8]),
        ("ipu:4,podwright_job:1,ipu_x1:1;ipu_x2:4", [3, 4, 8]),
        ("", [4, 4, 8]),
        ("ipu:8,podwright_job:1,ipu_x1:8,ipu_x2:8,ipu_x4:8,ipu_x8:8", [0, 0, 0]),
    ],
)
async def test_what_an_administrator_changed_is_counted_as_slurm_counts_it(
    service: Service, slurm: FakeSlurm, licences: str, hidden: list[int]
) -> None:
    """Job 7 has 4 of 16, and is listed with these licences. 12 are free, 8 of them together."""
    await service.begin_job(ask(7, 4))
    slurm.jobs[7] = job("RUNNING", licences=licences)
    await Sweep(service).once()
    assert [service.hidden()[f"ipu_x{k}"] for k in (1, 4, 8)] == hidden
    await service.end_job(ask(7, 4))
    assert set(service.hidden().values()) == {0, 1}


async def test_a_silent_slurmctld_ends_nothing(service: Service, server: FakePod) -> None:
    await service.begin_job(ask(7, 4))
    service.slurm = FakeSlurm(
        lambda argv: CommandResult(1, "", "Unable to contact slurm controller")
    )
    with pytest.raises(Unavailable):
        await Sweep(service).once()
    assert "slurm_7" in server.made


async def test_a_failed_machine_is_counted_out_and_in_again(
    service: Service, server: FakePod
) -> None:
    server.down = {0, 1, 2, 3}
    await service.refresh()
    assert [service.hidden()[f"ipu_x{k}"] for k in (1, 4, 8, 16)] == [4, 4, 8, 16]
    server.down = set()
    await service.refresh()
    assert service.hidden()["ipu_x16"] == 0


async def test_a_silent_server_leaves_the_job_its_end(service: Service, server: FakePod) -> None:
    await service.begin_job(ask(7, 4))
    server.away = True
    with pytest.raises(Unavailable):
        await service.end_job(ask(7, 4))
    server.away = False
    await service.end_job(ask(7, 4))
    assert server.made == {}


async def test_after_its_end_nothing_makes_slurm_start_anything(service: Service) -> None:
    await service.close()
    service.counts.poke()  # as the sweep does, which may be under way
    await service.counts.wait_until_synced()
    assert service.counts.last_hidden["ipu_x1"] == service.counts.last_hidden["ipu_x16"] == 16


async def test_a_number_that_slurm_gives_out_again_gets_nothing_of_the_forgotten_job(
    service: Service, server: FakePod
) -> None:
    await service.begin_job(ask(7, 4))
    other = ask(7, 4, uid="9", user="news")
    await service.begin_job(other)
    assert server.made["slurm_7"].owner == "news"
    larger = ask(7, 8, uid="9", user="news")
    await service.begin_job(larger)
    assert server.made["slurm_7"].size == 8
    assert service.hidden()["ipu_x8"] == 0  # eight are free together, eight are Slurm's count


async def test_a_number_given_out_again_to_the_same_user_meets_no_old_lease(
    service: Service, server: FakePod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = job("CONFIGURING", submitted="1763791311")
    await service.begin_job(ask(7, 4, cluster="lab"))
    assert server.made["slurm_7"].job == "7, cluster lab, submitted 2025-11-22T06:01:51Z"
    before = server.made["slurm_7"]
    slurm.jobs[7].submitted = "1763791400"  # Slurm lost its state
    await service.begin_job(ask(7, 4, cluster="lab"))
    assert server.made["slurm_7"] is not before
    assert server.made["slurm_7"].job.endswith("06:03:20Z")


async def test_the_sweep_ends_what_a_forgotten_job_held_under_a_number_in_use(
    service: Service, server: FakePod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = job("CONFIGURING", submitted="1763791311")
    await service.begin_job(ask(7, 4))
    slurm.jobs[7] = job("RUNNING")
    await Sweep(service).once()
    assert "slurm_7" in server.made
    slurm.jobs[7].submitted = "1763791400"
    await Sweep(service).once()
    assert server.made == {}


async def test_a_job_whose_licences_are_gone_is_held_with_the_reason(
    service: Service, server: FakePod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = job("PENDING", 1)
    with pytest.raises(InvalidRequest, match=r"asked for 4 devices.*scontrol release 7"):
        await service.begin_job(ask(7, 4, restart=1, licences=""))
    assert server.made == {}
    async with asyncio.timeout(120):
        await slurm.wait_for("scontrol", "hold")
    assert ("scontrol", "hold", "7") in slurm.commands
    (told,) = [one[-1] for one in slurm.commands if "admincomment" in one[-1]]
    assert "Slurm counts no licences of ours" in told


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({}, ""),
        ({"restart": "1"}, ""),
        ({"restart": "1", "submitted": "1763791311", "step": "batch"}, ""),
        ({"restart": "2"}, "holds no devices for this start, but for start 1"),
        ({"submitted": "1763791400"}, "an earlier job 7 holds devices"),
        ({"uid": "6"}, "a job 7 of another user"),
        ({"step": "batch", "ipus": "8"}, "job 7 holds 4 devices and asked for 8"),
        ({"step": "batch", "ipus": "9" * 5000}, "job 7 holds 4 devices and asked for 9"),
        ({"step": "step", "ipus": "2"}, ""),  # part of what the job holds
        ({"job": "8"}, "job 8 holds no devices"),
    ],
)
async def test_a_step_begins_only_with_its_jobs_devices(
    service: Service, slurm: FakeSlurm, claim: dict[str, str], words: str
) -> None:
    slurm.jobs[7] = job("CONFIGURING", 1, submitted="1763791311")
    await service.begin_job(ask(7, 4, restart=1))
    slurm.jobs |= {7: job("RUNNING", 1), 8: job("RUNNING")}
    step = described({"job": "7", "uid": "5"} | claim)
    if not words:
        assert await service.prove_step(step) == ""
    else:
        with pytest.raises(InvalidRequest, match=words):
            await service.prove_step(step)
    assert (service.figures.proven, service.figures.unproven) == (not words, bool(words))


async def test_a_step_of_a_job_that_was_cancelled_meanwhile_brings_nothing_back(
    service: Service, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = job("COMPLETING")
    with pytest.raises(NotFound, match="job 7 is over"):
        await service.prove_step(HookJob(job=7, uid=5, step="batch"))
    assert not [argv for argv in slurm.commands if "hold" in argv or "jobid=7" in argv]
    assert service.figures.unproven == 0  # nothing failed that anybody should hear of


async def test_what_runs_without_devices_is_ended(
    service: Service, server: FakePod, slurm: FakeSlurm
) -> None:
    await service.begin_job(ask(7, 4))
    slurm.jobs[7] = job("RUNNING")
    sweep = Sweep(service)
    await sweep.once()
    slurm.jobs[8] = job("RUNNING")
    await sweep.once()
    assert ("scontrol", "requeuehold", "8") not in slurm.commands, "it may just begin"
    await service.server.remove("slurm_7", "7")  # an administrator took it
    await service.refresh()
    for _ in range(2):
        await sweep.once()
    assert ("scontrol", "requeuehold", "8") in slurm.commands
    assert ("scontrol", "requeuehold", "7") not in slurm.commands


@pytest.mark.parametrize(
    ("no", "cancelled"),
    [
        ("Only batch jobs are accepted or processed for job 8", True),
        ("Requested operation is presently disabled for job 8", True),
        ("Unable to contact slurm controller (connect failure)", False),
        ("Job is in transition state for job 8", False),
    ],
)
async def test_what_is_not_requeued_at_once_is_not_cancelled(
    service: Service, slurm: FakeSlurm, no: str, cancelled: bool
) -> None:
    sweep = Sweep(service)
    await sweep.once()
    slurm.jobs[8] = job("RUNNING")
    slurm.refusals = {"requeue": no, "requeuehold": no}
    for _ in range(2):
        await sweep.once()
    assert (("scancel", "8") in slurm.commands) == cancelled
    slurm.refusals.clear()
    slurm.commands.clear()
    await sweep.once()
    if not cancelled:
        assert ("scontrol", "requeuehold", "8") in slurm.commands, "the next sweep does it"


async def test_a_hook_of_a_job_that_slurmctld_forgot_costs_the_next_of_its_number_nothing(
    service: Service, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = job("PENDING", user_id="9")
    with pytest.raises(StartIsOver, match="job 7 is of user 9"):
        await service.begin_job(ask(7, 4))
    with pytest.raises(StartIsOver, match="slurmctld knows no job 8"):
        await service.begin_job(described({"job": "8", "het_job": "7", "ipus": "4"}))
    told = {word for argv in slurm.commands for word in argv if argv[0] == "scontrol"}
    assert not {"hold", "jobid=7", "jobid=8"} & told
    assert (service.figures.held, service.retry_limit._holding) == (0, set())


async def test_a_step_that_joins_a_job_without_licences_hears_what_it_holds(
    service: Service, server: FakePod, slurm: FakeSlurm
) -> None:
    await service.begin_job(ask(7, 4))
    slurm.jobs = {number: FakeJob("RUNNING") for number in (7, 8)}
    joins = {"uid": "5", "restart": "0", "step": "step", "ipus": "0", "unread": "1"}
    assert await service.prove_step(described({"job": "7"} | joins)) == "ipus=4\n"
    assert await service.prove_step(described({"job": "8"} | joins)) == "ipus=0\n"
    await server.remove("slurm_7", "7")
    await service.refresh()
    with pytest.raises(InvalidRequest, match="job 7 holds no devices"):
        await service.prove_step(described({"job": "7"} | joins))


async def test_what_slurm_only_believes_to_run_is_left_to_it_for_a_while(
    service: Service, slurm: FakeSlurm
) -> None:
    """A slurmctld that was killed has forgotten the end of jobs 7 and 8."""
    await service.begin_job(ask(7, 4))
    await service.end_job(ask(7, 4))  # seen by this service, and by no sweep
    slurm.jobs |= {7: job("RUNNING"), 8: job("RUNNING")}
    sweep, now = Sweep(service), [0.0]
    service.clock = lambda: now[0]
    for now[0] in (0.0, 10.0, OLD_JOB_GRACE_S - 1):
        await sweep.once()
    assert not [argv for argv in slurm.commands if "requeue" in argv[1]]
    now[0] = OLD_JOB_GRACE_S
    await sweep.once()
    asked = [argv for argv in slurm.commands if "requeue" in argv[1]]
    assert asked == [("scontrol", "requeue", "8")], "and it starts again by itself"


async def test_the_server_hears_slurms_queue_in_slurms_order_and_no_more_than_it_must(
    service: Service, server: FakePod, slurm: FakeSlurm
) -> None:
    slurm.jobs = {9: job("PENDING"), 4: job("PENDING"), 5: job("RUNNING")}
    sweep = Sweep(service)
    await sweep.once()
    (jobs,) = server.reported
    assert [(job.place, job.id, job.asked) for job in jobs] == [
        (1, "4", "4 devices of pod16"),
        (2, "9", "4 devices of pod16"),
    ]
    assert "devices of pod16 are free for it: " in jobs[0].needs
    await sweep.once()
    assert len(server.reported) == 1, "nothing is new"
    server.away = True
    slurm.jobs = {9: job("PENDING")}
    await sweep._report.send(sweep._waiting(await listed(service.slurm)))
    server.away = False
    await sweep.once()
    assert [job.id for job in server.reported[-1]] == ["9"]
