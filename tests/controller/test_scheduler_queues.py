"""Schedulers' own queues beside the server's: who reports them, who sees what, and the limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from podwright.controller.calls._scheduler_queues import AWAY, MAX_JOBS
from podwright.controller.queue._reported_queues import MOST_SCHEDULERS, SILENT_AFTER_S
from podwright.errors import Denied, InvalidRequest
from podwright.wire import JobInfo, JobReport, ListRequest
from tests.controller.test_privacy import SCHEDULER, call, visible
from tests.controller.world import ALICE, NOBODY, ROOT, World


def jobs(*ids: str, owner: str = "alice") -> JobReport:
    return JobReport(jobs=[JobInfo(id=name, owner=owner, scheduler="forged") for name in ids])


async def test_a_queue_is_shown_in_its_order_and_replaced_as_a_whole(world: World) -> None:
    controller = world.controller
    before = controller.changes
    await call(controller, SCHEDULER, "report_jobs", jobs("9", "4", "7"))
    seen = controller.changes
    assert seen > before, "pages look again"
    await call(controller, SCHEDULER, "report_jobs", jobs("9", "4", "7"))
    assert controller.changes == seen, "nothing is new"
    found = (await call(controller, NOBODY, "list_jobs")).jobs
    assert [(j.place, j.id, j.scheduler) for j in found] == [
        (1, "9", "slurm"), (2, "4", "slurm"), (3, "7", "slurm")
    ]  # fmt: skip
    await call(controller, SCHEDULER, "report_jobs", jobs("4"))
    assert [j.id for j in (await call(controller, ROOT, "list_jobs")).jobs] == ["4"]


async def test_a_long_queue_comes_in_pages(world: World) -> None:
    controller = world.controller
    names = [str(n) for n in range(25)]
    await call(controller, SCHEDULER, "report_jobs", jobs(*names))
    await call(controller, ROOT, "report_jobs", jobs("r"))
    found, token = [], ""
    while True:
        reply = await call(
            controller, ROOT, "list_jobs", ListRequest(page_size=7, page_token=token)
        )
        found += [job.id for job in reply.jobs]
        token = reply.next_page_token
        if not token:
            break
    assert sorted(found) == sorted([*names, "r"])
    with pytest.raises(InvalidRequest):
        await call(controller, ROOT, "list_jobs", ListRequest(page_token="x/y"))


async def test_schedulers_of_one_account_keep_their_own_queues(world: World) -> None:
    controller = world.controller
    await call(controller, SCHEDULER, "report_jobs", jobs("s1"))
    for guest, name in (("kubernetes a", "k1"), ("kubernetes b", "k2"), ("kubernetes a", "k3")):
        report = JobReport(jobs=[JobInfo(id=name, owner="alice")], guest=guest)
        await call(controller, SCHEDULER, "report_jobs", report)
    forged = JobReport(jobs=[JobInfo(id="r", owner="alice")], guest="kubernetes a")
    await call(controller, ROOT, "report_jobs", forged)
    found = (await call(controller, ROOT, "list_jobs")).jobs
    assert sorted((job.scheduler, job.id) for job in found) == [
        ("kubernetes a", "k3"), ("kubernetes a", "r"), ("kubernetes b", "k2"), ("slurm", "s1")
    ]  # fmt: skip
    with pytest.raises(InvalidRequest):
        await call(controller, SCHEDULER, "report_jobs", JobReport(guest="x" * 65))
    with pytest.raises(InvalidRequest):
        await call(controller, SCHEDULER, "report_jobs", JobReport(guest="a\nb"))


async def test_slurm_is_named_so_whatever_its_account_is(world: World) -> None:
    controller, account = world.controller, replace(SCHEDULER, name="svc-jobs")
    await call(controller, account, "report_jobs", jobs("9", "4"))  # an older service, unnamed
    named = JobReport(jobs=jobs("4", "7").jobs, guest="slurm")
    await call(controller, account, "report_jobs", named)
    found = (await call(controller, ROOT, "list_jobs")).jobs
    assert [(job.scheduler, job.id) for job in found] == [("slurm", "4"), ("slurm", "7")]
    world.time.now += AWAY
    assert controller.conditions(1_790_000_000.0)["silent_schedulers"].keys() == {"slurm"}


@pytest.mark.parametrize("caller", [ALICE, NOBODY])
async def test_only_schedulers_tell(world: World, caller: object) -> None:
    with pytest.raises(Denied):
        await call(world.controller, caller, "report_jobs", jobs("1"))  # type: ignore[arg-type]


async def test_what_is_told_is_bounded(world: World) -> None:
    controller = world.controller
    with pytest.raises(InvalidRequest):
        await call(controller, SCHEDULER, "report_jobs", jobs(*map(str, range(MAX_JOBS + 1))))
    long = JobReport(jobs=[JobInfo(id="1", needs="x" * 10_000 + "\n", owner="a\nb")])
    await call(controller, SCHEDULER, "report_jobs", long)
    (job,) = (await call(controller, ROOT, "list_jobs")).jobs
    assert len(job.needs) == 300
    assert job.owner == "a?b"
    for number in range(MOST_SCHEDULERS + 3):
        caller = replace(SCHEDULER, name=f"s{number}")
        await call(controller, caller, "report_jobs", jobs("1"))
    assert len((await call(controller, ROOT, "list_jobs")).jobs) == MOST_SCHEDULERS


async def test_a_silent_scheduler_has_no_queue(world: World) -> None:
    await call(world.controller, SCHEDULER, "report_jobs", jobs("1"))
    world.time.now += SILENT_AFTER_S + 1
    assert (await call(world.controller, ROOT, "list_jobs")).jobs == []


async def test_a_scheduler_whose_service_is_away_is_named_until_it_reports(world: World) -> None:
    controller, wall = world.controller, 1_790_000_000.0

    def silent() -> dict[str, int]:
        found: dict[str, int] = controller.conditions(wall)["silent_schedulers"]
        return found

    assert not any(controller.conditions(wall).values())
    await call(controller, SCHEDULER, "report_jobs", jobs("1"))
    world.time.now += AWAY - 1
    assert silent() == {}
    world.time.now += 1
    assert silent() == {"slurm": int(wall - AWAY)}
    await call(controller, SCHEDULER, "report_jobs", jobs("1"))
    assert silent() == {}


async def test_where_the_line_is_private_each_sees_their_own_jobs(world: World) -> None:
    visible(world, private=frozenset({"waiters"}))
    report = JobReport(jobs=[JobInfo(id="1", owner="alice"), JobInfo(id="2", owner="bob")])
    await call(world.controller, SCHEDULER, "report_jobs", report)
    assert [j.id for j in (await call(world.controller, ALICE, "list_jobs")).jobs] == ["1"]
    assert len((await call(world.controller, ROOT, "list_jobs")).jobs) == 2
