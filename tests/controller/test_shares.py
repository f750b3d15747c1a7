"""The weights of the common queue: who sets them, what they change, and where they come from."""

from __future__ import annotations

import pytest

from podwright.controller import Caller, Role
from podwright.controller._store_check import find_faults
from podwright.errors import Denied, InvalidRequest
from podwright.wire import EventsRequest, ListRequest, ShareInfo, ShareRequest
from tests.controller.test_guest_queue import create, enqueue, head, remove
from tests.controller.test_privacy import SCHEDULER
from tests.controller.world import ALICE, ALL, NOBODY, ROOT, World


async def weigh(world: World, guest: str, weight: float) -> ShareInfo:
    request = ShareRequest(guest=guest, weight=weight)
    reply: ShareInfo = await world.controller.set_share(ROOT, request)
    return reply


async def shares(world: World) -> dict[str, ShareInfo]:
    reply = await world.controller.list_shares(ROOT, ALL)
    return {share.guest: share for share in reply.shares}


async def turns(world: World, count: int) -> list[str]:
    """The guests that get the whole pod, one after another, each for five seconds.

    Both a and b always have another job.
    """
    await create(world, "a", "a0", 0, 16)
    got = []
    last = "a0"
    for turn in range(1, count + 1):
        for guest in ("a", "b"):
            await enqueue(world, guest, head(f"job {guest}{turn}", 16))
        await world.time.advance(5.0)
        await remove(world, last)
        (guest,) = [
            guest
            for guest in ("a", "b")
            for place in (await enqueue(world, guest, head(f"job {guest}{turn}", 16))).places
            if place.job
        ]
        last = f"{guest}{turn}"
        await create(world, guest, last, 0, 16)
        got.append(guest)
    await remove(world, last)
    for guest in ("a", "b"):
        await enqueue(world, guest)
    return got


async def test_a_weight_counts_from_the_next_turn_on(world: World) -> None:
    equal = (await turns(world, 8)).count("b")
    assert equal == 4
    assert await weigh(world, "b", 3) == ShareInfo(
        guest="b", weight=3.0, source="STORED", active=True
    )
    assert (await turns(world, 16)).count("b") in (12, 13), "a had the one before, too"


async def test_a_weight_does_not_count_for_the_past(world: World) -> None:
    await create(world, "a", "a1", 0, 16)
    for guest in ("a", "b"):
        await enqueue(world, guest, head("job 1", 16))
    queue = world.controller._services.waiting.line.guest_queue
    await world.time.advance(5.0)
    await weigh(world, "a", 1000)
    used = queue.shares.time("slurm/a")
    assert used >= 16 * 5, "five seconds of 16 devices at a weight of 1"
    await world.time.advance(5.0)
    await enqueue(world, "a", head("job 1", 16))
    assert queue.shares.time("slurm/a") - used < 1


async def test_a_place_that_is_kept_stays_when_a_weight_changes(world: World) -> None:
    await create(world, "a", "a1", 0, 8)
    await create(world, "a", "a2", 8, 8)
    (place,) = (await enqueue(world, "b", head("job 7", 8))).places
    await weigh(world, "b", 0.5)
    assert (await enqueue(world, "b", head("job 7", 8))).places == [place]


async def test_a_weight_survives_a_restart_and_is_in_the_audit(world: World) -> None:
    await weigh(world, "slurm", 3)
    await weigh(world, "kubernetes c1", 0.5)
    events = (await world.controller.list_events(ROOT, EventsRequest())).events
    assert [(e.who, e.about, e.outcome) for e in events if e.what == "SetShare"] == [
        ("root", "slurm", "OK"),
        ("root", "kubernetes c1", "OK"),
    ]
    await world.restart()
    assert {name: share.weight for name, share in (await shares(world)).items()} == {
        "kubernetes c1": 0.5, "people": 1.0, "slurm": 3.0,
    }  # fmt: skip
    records = (await world.store.read()).records
    assert not find_faults(records, 1 << 60)
    twice = {**records, ("share", "other"): records["share", "slurm"]}
    (fault,) = find_faults(twice, 1 << 60)
    assert (fault.kind, fault.key) == ("share", "other")


async def test_a_stored_weight_comes_before_the_option(world: World) -> None:
    queue = world.controller._services.waiting.line.guest_queue
    queue.configure({"slurm": 2.0, "people": 4.0})
    await weigh(world, "slurm", 1)
    listed = await shares(world)
    assert (listed["slurm"].weight, listed["slurm"].source) == (1.0, "STORED")
    assert (listed["people"].weight, listed["people"].source) == (4.0, "OPTION")
    removed = ShareRequest(guest="slurm", remove=True)
    for _ in range(2):
        back: ShareInfo = await world.controller.set_share(ROOT, removed)
        assert (back.weight, back.source) == (2.0, "OPTION")
    await world.restart()
    assert (await shares(world)).keys() == {"people"}, "this server has no such options"


async def test_who_shares_the_pods_now(world: World) -> None:
    await enqueue(world, "a", head("job 1", 4))
    assert not (await weigh(world, "b", 2)).active, "it may be set before that scheduler calls"
    assert {name: share.active for name, share in (await shares(world)).items()} == {
        "a": True, "b": False, "people": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "request_",
    [
        ShareRequest(guest=""),
        ShareRequest(guest="  "),
        ShareRequest(guest="a\nb"),
        ShareRequest(guest="a" * 65),
        *(
            ShareRequest(guest="slurm", weight=weight)
            for weight in (0.0, -1.0, 0.001, 1001.0, float("inf"), float("nan"))
        ),
    ],
)
async def test_bad_weights_are_refused(world: World, request_: ShareRequest) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await world.controller.set_share(ROOT, request_)
    assert refused.value.would_work
    assert (await shares(world)).keys() == {"people"}


@pytest.mark.parametrize(
    "caller", [ALICE, NOBODY, SCHEDULER, Caller("ruth", 1003, Role.READER)], ids=str
)
async def test_only_administrators_see_and_set_weights(world: World, caller: Caller) -> None:
    with pytest.raises(Denied):
        await world.controller.set_share(caller, ShareRequest(guest="slurm", weight=3.0))
    with pytest.raises(Denied):
        await world.controller.list_shares(caller, ListRequest())
