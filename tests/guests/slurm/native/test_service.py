"""The service against a server and a Slurm of the test's own: requests of hooks, and the sweep."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from podwright.errors import InvalidRequest, NotFound, Unavailable
from podwright.guests.slurm.service import HookJob, Service, Site, SlurmPod, Sweep
from podwright.guests.slurm.service._end_deviceless_jobs import OLD_JOB_GRACE_S
from podwright.guests.slurm.service._hook_job_request import hook_job
from podwright.guests.slurm.service._licence_check import StartIsOver, expected_licences
from podwright.guests.slurm.service._squeue_jobs import _SQUEUE_COLUMN_WIDTHS, listed
from podwright.slurm.site.commands import CommandResult, FakeSlurm
from podwright.wire import (
    DeviceInfo,
    DeviceRef,
    EnqueueReply,
    EnqueueRequest,
    GatewayRouting,
    JobInfo,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    Routing,
    SyncType,
)

POD = SlurmPod(type="pod16", cluster="pod16", devices=16, largest=16, domain=16)


class OnePod:
    """Sixteen devices, and partitions as requested. down: devices of failed machines."""

    guest = ""

    def __init__(self) -> None:
        self.made: dict[str, PartitionInfo] = {}
        self.down: set[int] = set()
        self.silent = False
        self.reported: list[list[JobInfo]] = []

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        self._check()
        of = {ref.offset: p.name for p in self.made.values() for gcd in p.gcds for ref in gcd}
        return [
            DeviceInfo(
                cluster=cluster,
                device=DeviceRef(domain=0, offset=at),
                state="DOWN" if at in self.down else "IN_USE" if at in of else "FREE",
                partition=of.get(at, ""),
            )
            for at in range(16)
        ]

    async def partitions(self, cluster: str, allocation: str) -> list[PartitionInfo]:
        self._check()
        return list(self.made.values())

    async def create(self, spec: PartitionSpec, uid: int, user: str, job: str) -> PartitionInfo:
        self._check()
        await asyncio.sleep(0)
        taken = {ref.offset for p in self.made.values() for gcd in p.gcds for ref in gcd}
        assert not taken & {offset for _, offset in spec.devices}
        info = PartitionInfo(
            name=spec.name,
            cluster=spec.cluster,
            allocation="",
            size=len(spec.devices),
            num_gcds=spec.num_gcds,
            num_replicas=spec.num_replicas,
            num_ilds=1,
            routing=Routing.DEFAULT,
            gw_routing=GatewayRouting.DEFAULT,
            sync_type=SyncType.DEFAULT,
            ready_state=ReadyState.ACTIVE,
            gcds=[[DeviceRef(domain=d, offset=o) for d, o in spec.devices]],
            owner=user,
            owner_uid=uid,
            job=job,
            movable=spec.movable,
        )
        self.made[spec.name] = info
        return info

    async def remove(self, name: str, job: str) -> None:
        self._check()
        if name in self.made and self.made[name].job == job:
            del self.made[name]

    async def relocate(self, name: str) -> None:
        self._check()
        ref = [DeviceRef(domain=0, offset=at) for at in range(12, 16)]
        self.made[name] = msgspec.structs.replace(self.made[name], gcds=[ref])

    async def enqueue(self, request: EnqueueRequest) -> EnqueueReply:
        return EnqueueReply()

    async def report(self, jobs: list[JobInfo]) -> None:
        self._check()
        self.reported.append(jobs)

    def _check(self) -> None:
        if self.silent:
            raise Unavailable("down")


class Queue:
    """squeue's output. jobs: job -> (state, restarts). at: when they were submitted.

    no: the message about a requeue that is impossible.
    """

    def __init__(self) -> None:
        self.at = self.uid = self.no = ""
        self.licences = "ipu:4"
        self.held = asyncio.Event()
        self.jobs: dict[int, tuple[str, int]] = {}

    def __call__(self, argv: Sequence[str]) -> CommandResult | str:
        if argv[1] == "hold":
            self.held.set()
        if self.no and argv[1].startswith("requeue"):
            return CommandResult(1, "", self.no)
        if argv[0] != "squeue":
            return ""
        rows = []
        for job, (state, restarts) in self.jobs.items():
            words = [str(job), state, str(restarts), "0", "1", "None", "", "1:00", self.licences]
            words += ["", self.uid, self.at, "", "", ""]
            rows.append(
                "".join(
                    word.ljust(w)
                    for word, w in zip(words, _SQUEUE_COLUMN_WIDTHS.values(), strict=True)
                )
            )
        return "\n".join(rows) + "\n"


@pytest.fixture
def server() -> OnePod:
    return OnePod()


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
async def service(server: OnePod, queue: Queue) -> AsyncIterator[Service]:
    made = Service(Site(pods=(POD,), patience_s=0.05), server, FakeSlurm(queue))
    await made.refresh()
    task = asyncio.create_task(made.counts.run())
    yield made
    task.cancel()


def described(words: dict[str, str]) -> HookJob:
    """Return a job in the words of a hook."""
    return hook_job(json.dumps(words).encode())


def ask(job: int, devices: int, restart: int = 0, **more: str) -> HookJob:
    licences = ";".join(f"{name}:{n}" for name, n in expected_licences(POD, devices).items())
    said = {"uid": "5", "user": "games", "licences": licences, "ipus": str(devices)}
    return described({"job": str(job), "restart": str(restart)} | said | more)


async def test_a_job_gets_the_same_partition_however_often_it_is_asked_for(
    service: Service, server: OnePod
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


async def test_an_end_of_an_earlier_life_changes_nothing(service: Service, server: OnePod) -> None:
    await service.begin_job(ask(7, 4, restart=1))
    await service.end_job(ask(7, 4, restart=0))
    assert server.made["slurm_7"].job == "7/1"


async def test_what_another_service_gave_meanwhile_stays(
    service: Service, server: OnePod, queue: Queue
) -> None:
    """A service that was stopped, or cut off, while another served knows an older start."""
    await service.begin_job(ask(7, 4))
    other = Service(service.site, server, FakeSlurm(queue))
    await other.refresh()
    queue.jobs[7] = ("RUNNING", 1)
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
    service: Service, server: OnePod, queue: Queue
) -> None:
    await service.begin_job(ask(7, 8, restart=2))
    again = Service(service.site, server, FakeSlurm(queue))
    await again.refresh()
    (holding,) = again.books["pod16"].holdings.values()
    assert (holding.job, holding.restart, holding.size) == (7, 2, 8)


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (None, False),
        (("COMPLETED", 0), False),
        (("CANCELLED", 0), False),
        (("PENDING", 1), False),
        (("RUNNING", 0), True),
        (("COMPLETING", 0), True),
        (("CONFIGURING", 0), True),
        (("SUSPENDED", 0), True),
    ],
)
async def test_the_sweep_ends_what_is_over_and_touches_nothing_that_lives(
    service: Service, server: OnePod, queue: Queue, now: tuple[str, int] | None, left: bool
) -> None:
    await service.begin_job(ask(7, 4))
    if now:
        queue.jobs[7] = now
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
    service: Service, queue: Queue, licences: str, hidden: list[int]
) -> None:
    """Job 7 has 4 of 16, and is listed with these licences. 12 are free, 8 of them together."""
    await service.begin_job(ask(7, 4))
    queue.jobs[7], queue.licences = ("RUNNING", 0), licences
    await Sweep(service).once()
    assert [service.hidden()[f"ipu_x{k}"] for k in (1, 4, 8)] == hidden
    await service.end_job(ask(7, 4))
    assert set(service.hidden().values()) == {0, 1}


async def test_a_silent_slurmctld_ends_nothing(service: Service, server: OnePod) -> None:
    await service.begin_job(ask(7, 4))
    service.slurm = FakeSlurm(
        lambda argv: CommandResult(1, "", "Unable to contact slurm controller")
    )
    with pytest.raises(Unavailable):
        await Sweep(service).once()
    assert "slurm_7" in server.made


async def test_a_failed_machine_is_counted_out_and_in_again(
    service: Service, server: OnePod
) -> None:
    server.down = {0, 1, 2, 3}
    await service.refresh()
    assert [service.hidden()[f"ipu_x{k}"] for k in (1, 4, 8, 16)] == [4, 4, 8, 16]
    server.down = set()
    await service.refresh()
    assert service.hidden()["ipu_x16"] == 0


async def test_a_silent_server_leaves_the_job_its_end(service: Service, server: OnePod) -> None:
    await service.begin_job(ask(7, 4))
    server.silent = True
    with pytest.raises(Unavailable):
        await service.end_job(ask(7, 4))
    server.silent = False
    await service.end_job(ask(7, 4))
    assert server.made == {}


async def test_after_its_end_nothing_makes_slurm_start_anything(service: Service) -> None:
    await service.close()
    service.counts.poke()  # as the sweep does, which may be under way
    await service.counts.wait_until_synced()
    assert service.counts.last_hidden["ipu_x1"] == service.counts.last_hidden["ipu_x16"] == 16


async def test_a_number_that_slurm_gives_out_again_gets_nothing_of_the_forgotten_job(
    service: Service, server: OnePod
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
    service: Service, server: OnePod, queue: Queue
) -> None:
    queue.jobs[7], queue.at = ("CONFIGURING", 0), "1763791311"
    await service.begin_job(ask(7, 4, cluster="lab"))
    assert server.made["slurm_7"].job == "7, cluster lab, submitted 2025-11-22T06:01:51Z"
    before = server.made["slurm_7"]
    queue.at = "1763791400"  # Slurm lost its state
    await service.begin_job(ask(7, 4, cluster="lab"))
    assert server.made["slurm_7"] is not before
    assert server.made["slurm_7"].job.endswith("06:03:20Z")


async def test_the_sweep_ends_what_a_forgotten_job_held_under_a_number_in_use(
    service: Service, server: OnePod, queue: Queue
) -> None:
    queue.jobs[7], queue.at = ("CONFIGURING", 0), "1763791311"
    await service.begin_job(ask(7, 4))
    queue.jobs[7] = ("RUNNING", 0)
    await Sweep(service).once()
    assert "slurm_7" in server.made
    queue.at = "1763791400"
    await Sweep(service).once()
    assert server.made == {}


async def test_a_job_whose_licences_are_gone_is_held_with_the_reason(
    service: Service, server: OnePod, queue: Queue
) -> None:
    queue.jobs[7] = ("PENDING", 1)
    with pytest.raises(InvalidRequest, match=r"asked for 4 devices.*scontrol release 7"):
        await service.begin_job(ask(7, 4, restart=1, licences=""))
    assert server.made == {}
    assert isinstance(service.slurm, FakeSlurm)
    async with asyncio.timeout(120):
        await queue.held.wait()
    assert ("scontrol", "hold", "7") in service.slurm.commands
    (told,) = [one[-1] for one in service.slurm.commands if "admincomment" in one[-1]]
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
    service: Service, queue: Queue, claim: dict[str, str], words: str
) -> None:
    queue.jobs[7], queue.at = ("CONFIGURING", 1), "1763791311"
    await service.begin_job(ask(7, 4, restart=1))
    queue.jobs |= {7: ("RUNNING", 1), 8: ("RUNNING", 0)}
    step = described({"job": "7", "uid": "5"} | claim)
    if not words:
        assert await service.prove_step(step) == ""
    else:
        with pytest.raises(InvalidRequest, match=words):
            await service.prove_step(step)
    assert (service.figures.proven, service.figures.unproven) == (not words, bool(words))


async def test_a_step_of_a_job_that_was_cancelled_meanwhile_brings_nothing_back(
    service: Service, queue: Queue
) -> None:
    queue.jobs[7] = ("COMPLETING", 0)
    with pytest.raises(NotFound, match="job 7 is over"):
        await service.prove_step(HookJob(job=7, uid=5, step="batch"))
    assert isinstance(service.slurm, FakeSlurm)
    assert not [argv for argv in service.slurm.commands if "hold" in argv or "jobid=7" in argv]
    assert service.figures.unproven == 0  # nothing failed that anybody should hear of


async def test_what_runs_without_devices_is_ended(
    service: Service, server: OnePod, queue: Queue
) -> None:
    await service.begin_job(ask(7, 4))
    queue.jobs[7] = ("RUNNING", 0)
    sweep = Sweep(service)
    assert isinstance(service.slurm, FakeSlurm)
    await sweep.once()
    queue.jobs[8] = ("RUNNING", 0)
    await sweep.once()
    assert ("scontrol", "requeuehold", "8") not in service.slurm.commands, "it may just begin"
    await service.server.remove("slurm_7", "7")  # an administrator took it
    await service.refresh()
    for _ in range(2):
        await sweep.once()
    assert ("scontrol", "requeuehold", "8") in service.slurm.commands
    assert ("scontrol", "requeuehold", "7") not in service.slurm.commands


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
    service: Service, queue: Queue, no: str, cancelled: bool
) -> None:
    assert isinstance(service.slurm, FakeSlurm)
    sweep = Sweep(service)
    await sweep.once()
    queue.jobs[8], queue.no = ("RUNNING", 0), no
    for _ in range(2):
        await sweep.once()
    assert (("scancel", "8") in service.slurm.commands) == cancelled
    queue.no = ""
    service.slurm.commands.clear()
    await sweep.once()
    if not cancelled:
        assert ("scontrol", "requeuehold", "8") in service.slurm.commands, "the next sweep does it"


async def test_a_hook_of_a_job_that_slurmctld_forgot_costs_the_next_of_its_number_nothing(
    service: Service, queue: Queue
) -> None:
    queue.jobs[7], queue.uid = ("PENDING", 0), "9"
    assert isinstance(service.slurm, FakeSlurm)
    with pytest.raises(StartIsOver, match="job 7 is of user 9"):
        await service.begin_job(ask(7, 4))
    with pytest.raises(StartIsOver, match="slurmctld knows no job 8"):
        await service.begin_job(described({"job": "8", "het_job": "7", "ipus": "4"}))
    told = {word for argv in service.slurm.commands for word in argv if argv[0] == "scontrol"}
    assert not {"hold", "jobid=7", "jobid=8"} & told
    assert (service.figures.held, service.retry_limit._holding) == (0, set())


async def test_a_step_that_joins_a_job_without_licences_hears_what_it_holds(
    service: Service, server: OnePod, queue: Queue
) -> None:
    await service.begin_job(ask(7, 4))
    queue.licences, queue.jobs = "", {7: ("RUNNING", 0), 8: ("RUNNING", 0)}
    joins = {"uid": "5", "restart": "0", "step": "step", "ipus": "0", "unread": "1"}
    assert await service.prove_step(described({"job": "7"} | joins)) == "ipus=4\n"
    assert await service.prove_step(described({"job": "8"} | joins)) == "ipus=0\n"
    await server.remove("slurm_7", "7")
    await service.refresh()
    with pytest.raises(InvalidRequest, match="job 7 holds no devices"):
        await service.prove_step(described({"job": "7"} | joins))


async def test_what_slurm_only_believes_to_run_is_left_to_it_for_a_while(
    service: Service, queue: Queue
) -> None:
    """A slurmctld that was killed has forgotten the end of jobs 7 and 8."""
    await service.begin_job(ask(7, 4))
    await service.end_job(ask(7, 4))  # seen by this service, and by no sweep
    queue.jobs |= {7: ("RUNNING", 0), 8: ("RUNNING", 0)}
    sweep, now = Sweep(service), [0.0]
    service.clock = lambda: now[0]
    assert isinstance(service.slurm, FakeSlurm)
    for now[0] in (0.0, 10.0, OLD_JOB_GRACE_S - 1):
        await sweep.once()
    assert not [argv for argv in service.slurm.commands if "requeue" in argv[1]]
    now[0] = OLD_JOB_GRACE_S
    await sweep.once()
    asked = [argv for argv in service.slurm.commands if "requeue" in argv[1]]
    assert asked == [("scontrol", "requeue", "8")], "and it starts again by itself"


async def test_the_server_hears_slurms_queue_in_slurms_order_and_no_more_than_it_must(
    service: Service, server: OnePod, queue: Queue
) -> None:
    queue.jobs = {9: ("PENDING", 0), 4: ("PENDING", 0), 5: ("RUNNING", 0)}
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
    server.silent = True
    queue.jobs = {9: ("PENDING", 0)}
    await sweep._report.send(sweep._waiting(await listed(service.slurm)))
    server.silent = False
    await sweep.once()
    assert [job.id for job in server.reported[-1]] == ["9"]
