"""What is kept for schedulers: who may use it, when it is given on, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from podwright.controller.queue._fair_share import PEOPLE, Shares, weights_of
from podwright.controller.queue._guest_first_jobs import OFFERED_S, SILENT_S
from podwright.controller.state._records import DrainRecord
from podwright.errors import Denied, InvalidRequest, NoCapacity, NotFound
from podwright.fabric import preset
from podwright.wire import (
    CreateRequest,
    EnqueueReply,
    EnqueueRequest,
    ExplainRequest,
    JobInfo,
    JobReport,
    ListRequest,
    PartitionEnd,
    PartitionSpec,
    PoolHead,
    QuotaInfo,
    RemoveRequest,
    WaitRequest,
)
from tests.controller.test_privacy import SCHEDULER
from tests.controller.world import ALICE, BOB, ROOT, World


def head(job: str = "", *sizes: int, due: bool = True, cluster: str = "pod16") -> PoolHead:
    return PoolHead(cluster=cluster, job=job, owner="alice", sizes=list(sizes), due=due)


async def enqueue(world: World, guest: str, *pools: PoolHead, **more: Any) -> EnqueueReply:
    request = EnqueueRequest(guest=guest, pools=list(pools) or [head()], **more)
    reply: EnqueueReply = await world.controller.enqueue(SCHEDULER, request)
    return reply


async def create(world: World, guest: str, name: str, first: int, size: int) -> None:
    devices = [(0, first + place) for place in range(size)]
    spec = PartitionSpec(name=name, cluster="pod16", devices=devices)
    request = CreateRequest(
        spec=spec, owner="alice", owner_uid=1001, job=f"job {name}", guest=guest
    )
    await world.controller.create_partition(SCHEDULER, request)


async def remove(world: World, name: str) -> None:
    request = RemoveRequest(name=name, job=f"job {name}", force=True)
    await world.controller.remove_partition(SCHEDULER, request)


async def test_a_place_is_kept_until_it_is_free_and_then_offered(world: World) -> None:
    await create(world, "a", "a1", 0, 8)
    await create(world, "a", "a2", 8, 8)
    (place,) = (await enqueue(world, "b", head("job 7", 8))).places
    assert (place.job, place.offered, len(place.devices)) == ("job 7", False, 8)
    first = place.devices[0][1]
    assert [(p.job, p.devices) for p in (await enqueue(world, "a")).places] == [
        ("", place.devices)
    ], "the other learns where, and not for whom"
    await remove(world, "a1" if first == 0 else "a2")
    with pytest.raises(NoCapacity):
        await create(world, "a", "a3", first, 4)
    with pytest.raises(NoCapacity):
        await world.create("p1", 4, caller=ALICE)
    (place,) = (await enqueue(world, "b", head("job 7", 8))).places
    assert place.offered
    await create(world, "b", "b1", first, 8)
    assert not (await enqueue(world, "b")).places, "it has what it waited for"


async def test_a_scheduler_decides_which_of_its_jobs_starts_on_its_place(world: World) -> None:
    await enqueue(world, "a", head("job 1", 16))
    await create(world, "a", "a9", 0, 4)
    (place,) = (await enqueue(world, "a", head("job 1", 16))).places
    assert not place.offered
    assert len(place.devices) == 16


async def test_the_guest_that_had_least_is_next(world: World) -> None:
    await create(world, "a", "a1", 0, 16)
    await enqueue(world, "a", head("job 1", 16))
    await enqueue(world, "b", head("job 2", 16))
    await world.time.advance(5.0)
    await remove(world, "a1")  # a has the place, as it was first
    await create(world, "a", "a2", 0, 16)
    await enqueue(world, "a", head("job 3", 16))
    (place,) = (await enqueue(world, "b", head("job 2", 16))).places
    assert place.job == "job 2", "a has had 16 devices while both waited"


async def test_the_list_of_jobs_says_what_is_kept_for_each(world: World) -> None:
    await create(world, "a", "a1", 0, 8)
    await enqueue(world, "b", head("job 7", 16))
    jobs = [JobInfo(id="7", owner="alice", reserved=99), JobInfo(id="8", owner="alice")]
    await world.controller.report_jobs(SCHEDULER, JobReport(jobs=jobs, guest="b"))
    await world.controller.report_jobs(SCHEDULER, JobReport(jobs=jobs, guest="a"))
    listed = (await world.controller.list_jobs(ROOT, ListRequest())).jobs
    assert [(job.scheduler, job.id, job.reserved) for job in listed] == [
        ("a", "7", 0), ("a", "8", 0), ("b", "7", 8), ("b", "8", 0)
    ]  # fmt: skip
    assert [job.id for job in listed if job.estimate] == ["7"]


async def test_an_offer_that_nobody_takes_is_given_on(world: World) -> None:
    both = (head("job 1", 16), head("job 2", 16))
    await enqueue(world, "a", both[0])
    await enqueue(world, "b", both[1])
    for _ in range(int(OFFERED_S) + 3):
        await world.time.advance(1.0)
        a, b = await enqueue(world, "a", both[0]), await enqueue(world, "b", both[1])
    assert [place.job for place in b.places] == ["job 2"]
    assert [place.job for place in a.places] == [""]


async def test_a_silent_scheduler_keeps_nothing(world: World) -> None:
    await enqueue(world, "a", head("job 1", 16))
    with pytest.raises(NoCapacity):
        await world.create("p1", 4)
    await world.time.advance(SILENT_S + 2.0)
    await world.create("p1", 4)


async def test_a_restarted_server_learns_the_places_again(world: World) -> None:
    await create(world, "a", "a1", 0, 16)
    await enqueue(world, "b", head("job 1", 16))
    await world.restart()
    assert not (await enqueue(world, "a")).places
    (place,) = (await enqueue(world, "b", head("job 1", 16))).places
    assert place.job == "job 1"


async def test_one_account_cannot_use_the_place_of_another(world: World) -> None:
    await enqueue(world, "a", head("job 1", 16))
    request = CreateRequest(
        spec=PartitionSpec(name="p1", size=4, cluster="pod16"),
        owner="alice",
        owner_uid=1001,
        job="job 9",
        guest="a",
    )
    with pytest.raises(NoCapacity):
        await world.controller.create_partition(replace(SCHEDULER, name="other"), request)


async def test_a_job_that_is_not_due_gets_its_turn_only(world: World) -> None:
    assert not (await enqueue(world, "a", head("job 1", 4, due=False))).places, "it is alone"
    await create(world, "a", "a1", 0, 16)
    await enqueue(world, "b", head("job 2", 4, due=False))
    assert not (await enqueue(world, "a", head("job 3", 4, due=False))).places, "nothing is free"
    await remove(world, "a1")
    (place,) = (await enqueue(world, "b", head("job 2", 4, due=False))).places
    assert (place.job, place.offered) == ("job 2", True)


async def test_a_job_of_two_pools_gets_both_or_none() -> None:
    second = replace(preset("pod16"), name="other")
    machines = [
        replace(domain, machines=tuple(replace(m, name=f"x-{m.name}") for m in domain.machines))
        for domain in second.domains
    ]
    world = World([preset("pod16"), replace(second, domains=tuple(machines))])
    await world.start()
    try:
        pools = (head("job 1", 16), head("job 1", 16, cluster="other"))
        await enqueue(world, "b", head("job 2", 16, cluster="other"))
        places = (await enqueue(world, "a", *pools)).places
        assert [place.job for place in places] == [""], "the other pool's place is somebody else's"
        places = (await enqueue(world, "c", head("job 3", 16))).places
        assert places == [], "its turn is after a's"
        await enqueue(world, "b")
        places = (await enqueue(world, "a", *pools)).places
        assert [(place.cluster, place.job, place.offered) for place in places] == [
            ("pod16", "job 1", True), ("other", "job 1", True)
        ]  # fmt: skip
    finally:
        await world.stop()


async def test_a_machine_out_of_service_moves_the_place(world: World) -> None:
    (place,) = (await enqueue(world, "a", head("job 1", 8))).places
    state = world.controller._state
    cluster = state.inventory.clusters["pod16"]
    machine = cluster.refs[0][place.devices[0][1]].machine
    state.down.add(machine)
    (moved,) = (await enqueue(world, "a", head("job 1", 8))).places
    assert moved.devices != place.devices
    state.down.clear()


async def test_a_device_that_is_ill_is_in_no_place(world: World) -> None:
    (place,) = (await enqueue(world, "a", head("job 1", 8))).places
    state = world.controller._state
    cluster = state.inventory.clusters["pod16"]
    ill = cluster.refs[0][place.devices[3][1]]
    machine = world.machines[ill.machine]
    machine.set_healthy(ill.index, False)
    cluster.learn(ill.machine, await machine.describe())
    (moved,) = (await enqueue(world, "a", head("job 1", 8))).places
    assert not set(moved.devices) & set(place.devices)


async def test_announced_ends_choose_the_place(world: World) -> None:
    await create(world, "a", "a1", 0, 8)
    await create(world, "a", "a2", 8, 8)
    await world.time.advance(5.0)
    ends = [PartitionEnd(partition="a1", seconds=900.0), PartitionEnd(partition="a2", seconds=60.0)]
    await enqueue(world, "a", head(), end_times=ends)
    (place,) = (await enqueue(world, "b", head("job 1", 8))).places
    assert place.devices[0] == (0, 8)


@pytest.mark.parametrize(
    "pool",
    [
        head("job 1", 3),
        head("job 1", 0),
        head("job 1"),
        head("", 4),
        head("job 1", *([1] * 65)),
    ],
)
async def test_bad_requests_to_the_common_queue_are_refused(world: World, pool: PoolHead) -> None:
    with pytest.raises(InvalidRequest):
        await enqueue(world, "a", pool)
    with pytest.raises(InvalidRequest):
        await enqueue(world, "a" * 65)
    with pytest.raises(InvalidRequest):
        await enqueue(world, "a", *[head()] * 65)
    with pytest.raises(NotFound):
        await enqueue(world, "a", head("job 1", 4, cluster="nonesuch"))
    with pytest.raises(Denied):
        await world.controller.enqueue(ALICE, EnqueueRequest(pools=[head("job 1", 4)]))
    assert not (await world.controller.enqueue(ROOT, EnqueueRequest(pools=[head()]))).places


def test_a_guest_that_begins_to_wait_continues_at_its_own_time_or_the_queues() -> None:
    shares = Shares({"b": 2.0})
    both = {"x/a": None, "x/b": None}
    shares.update(both, {"x/a": 10, "x/b": 10}, 0.0)
    shares.update(both, {}, 10.0)
    assert (shares.time("x/a"), shares.time("x/b")) == (100.0, 50.0)
    shares.update({**both, PEOPLE: None}, {}, 20.0)
    assert shares.time(PEOPLE) == 50.0, "who comes first time saves up nothing"
    shares.update({"x/b": None}, {}, 30.0)
    shares.update(both, {}, 40.0)
    assert shares.time("x/a") == 100.0, "nothing is shed by leaving for a moment"
    shares.update({"x/a": None}, {}, 50.0)
    shares.update(both, {}, 60.0)
    assert shares.time("x/b") == 100.0, "the queue went on meanwhile"


def test_the_queue_does_not_pass_a_tag_while_its_job_waits() -> None:
    shares = Shares()
    waiting = {"x/a": 5.0, "x/b": None}
    shares.update(waiting, {"x/a": 10, "x/b": 10}, 0.0)
    shares.update(waiting, {}, 10.0)
    assert (shares.time("x/a"), shares.time(PEOPLE)) == (100.0, 5.0)


@pytest.mark.parametrize(
    "text", ["slurm", "slurm=", "=3", "slurm=0", "slurm=-1", "slurm=inf", "slurm=nan", "slurm=1001"]
)
def test_wrong_weights_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        weights_of([text])


async def test_who_waits_for_a_quota_is_not_among_those_who_share(world: World) -> None:
    await create(world, "a", "a1", 0, 16)
    await world.controller.set_quota(ROOT, QuotaInfo(user="alice", devices=4))
    spec = PartitionSpec(name="p1", size=8, cluster="pod16")
    await world.controller.wait(ALICE, WaitRequest(create=CreateRequest(spec=spec)))
    first = head("job 2", 8, due=False)
    assert not (await enqueue(world, "b", first)).places, "only due jobs get devices in use"
    guests = world.controller._services.waiting.line.guest_queue
    await world.time.advance(5.0)
    await enqueue(world, "b", first)
    assert guests.shares.time(PEOPLE) == 0.0
    await world.controller.set_quota(ROOT, QuotaInfo(user="alice", devices=24))
    (place,) = (await enqueue(world, "b", first)).places
    assert not place.job, "people wait for devices now, and hers come first"
    await world.controller.set_quota(ROOT, QuotaInfo(user="alice", devices=4))
    assert not (await enqueue(world, "b", first)).places, "nothing is kept for her any more"
    spec = PartitionSpec(name="p2", size=4, cluster="pod16")
    await world.controller.wait(BOB, WaitRequest(create=CreateRequest(spec=spec)))
    (place,) = (await enqueue(world, "b", first)).places
    assert place.job == "job 2", "bob waits for devices, so a job gets devices in use, too"


async def test_who_waits_learns_whose_turn_it_is_and_how_far_that_place_is(world: World) -> None:
    await create(world, "a", "a1", 0, 8)
    await enqueue(world, "b", head("job 1", 16))
    spec = PartitionSpec(name="p1", size=8, cluster="pod16")
    reply = await world.controller.wait(ALICE, WaitRequest(create=CreateRequest(spec=spec)))
    turn = (
        "it is the turn of job 1 of b first: 8 of 16 devices that are kept for it in pod16 are free"
    )
    assert turn in reply.waiter.needs
    explanation = await world.controller.explain(ALICE, ExplainRequest(name=reply.waiter.id))
    assert any(turn in line for line in explanation.lines)


async def test_a_place_stays_when_another_machine_goes_out_of_service(world: World) -> None:
    await create(world, "a", "a1", 0, 8)
    await create(world, "a", "a2", 8, 8)
    (place,) = (await enqueue(world, "b", head("job 1", 8))).places
    state = world.controller._state
    cluster = state.inventory.clusters["pod16"]
    other = cluster.refs[0][15 - place.devices[0][1]].machine
    cluster.drains[other] = DrainRecord()
    state.freed(None, (), "")
    assert (await enqueue(world, "b", head("job 1", 8))).places == [place]
    cluster.drains.clear()


async def test_what_others_use_after_a_job_became_due_is_before_it_what_its_own_guest_uses_is_not(
    world: World,
) -> None:
    """Guest a holds 12 of 16 and has a job that is due; b's jobs of 4 come one after another."""
    await create(world, "a", "a1", 0, 8)
    await create(world, "a", "a2", 8, 4)
    await create(world, "b", "b0", 12, 4)
    for turn in range(20):
        await world.time.advance(5.0)
        await remove(world, f"b{turn}")
        await enqueue(world, "b", head(f"job b{turn + 1}", 4))
        (place,) = (await enqueue(world, "a", head("job a3", 4))).places
        if place.job:
            break
        await enqueue(world, "b", head(f"job b{turn + 1}", 4))
        await create(world, "b", f"b{turn + 1}", 12, 4)
    assert turn <= 2
