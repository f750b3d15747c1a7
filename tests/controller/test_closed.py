"""Only the scheduler itself creates in its allocation, by whichever call others try."""

from __future__ import annotations

import pytest

from podwright.controller import Caller, Role
from podwright.errors import AlreadyExists, Denied, InvalidRequest, WrongState
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    AllocationRequest,
    CreateRequest,
    ExplainRequest,
    Explanation,
    LeaseRequest,
    ListRequest,
    Named,
    PartitionInfo,
    PartitionSpec,
    RemoveRequest,
    UserRequest,
    Value,
    WaitRequest,
)
from tests.controller.world import ALICE, NOBODY, ROOT, World

SLURM_UID = 64030
#: As the kernel knows it; the administrator's word makes a scheduler of it.
ACCOUNT = Caller("slurmuser", SLURM_UID, Role.USER)


async def setting(world: World, *others: str) -> None:
    """All of the pod is Slurm's, or half of it, with the rest divided among other allocations."""
    await world.controller.create_user(
        ROOT, UserRequest(name="slurm", role="scheduler", uid=SLURM_UID)
    )
    await world.controller.create_allocation(
        ROOT,
        AllocationRequest(name="jobs", size=8 if others else 16, scheduler="slurm"),
    )
    for name in others:
        size = 8 // len(others)
        await world.controller.create_allocation(ROOT, AllocationRequest(name=name, size=size))


async def ask(world: World, caller: Caller, method: str, request: Value) -> Value:
    """Make a call as the server makes it."""
    caller, request = world.controller.admitted(caller, request)
    reply: Value = await getattr(world.controller, method)(caller, request)
    return reply


def create(name: str, allocation: str = "", job: str = "") -> CreateRequest:
    spec = PartitionSpec(name=name, size=4, allocation=allocation)
    if not job:
        return CreateRequest(spec=spec)
    return CreateRequest(spec=spec, owner="alice", owner_uid=1001, job=job)


async def test_an_account_is_the_scheduler_that_an_administrator_made_it(world: World) -> None:
    await setting(world, "rest")
    made = await ask(world, ACCOUNT, "create_partition", create("j7", job="7"))
    assert isinstance(made, PartitionInfo)
    assert (made.allocation, made.owner, made.creator) == ("jobs", "alice", "slurm")
    with pytest.raises(Denied, match="asks in the name of others"):
        await ask(world, ACCOUNT, "create_partition", create("own"))
    with pytest.raises(InvalidRequest, match="creates for a job, and none is named"):
        await ask(world, ACCOUNT, "create_partition", CreateRequest(
            spec=PartitionSpec(name="j8", size=4), owner="alice", owner_uid=1001))  # fmt: skip
    await ask(world, ACCOUNT, "remove_partition", RemoveRequest(name="j7"))
    await world.restart()
    again = await ask(world, ACCOUNT, "create_partition", create("j7", job="7"))
    assert isinstance(again, PartitionInfo)
    assert again.allocation == "jobs"


@pytest.mark.parametrize("caller", [ALICE, NOBODY])
async def test_only_its_scheduler_creates_in_a_closed_allocation(
    world: World, caller: Caller
) -> None:
    await setting(world, "rest")
    spec = PartitionSpec(name="p1", size=4, allocation="jobs")
    ways: list[tuple[str, Value]] = [
        ("create_partition", CreateRequest(spec=spec)),
        ("acquire", AcquireRequest(spec=spec, create=True)),
        ("wait", WaitRequest(create=CreateRequest(spec=spec))),
        ("wait", WaitRequest(acquire=AcquireRequest(spec=spec, update=True))),
        ("explain", ExplainRequest(spec=spec)),
        ("explain", ExplainRequest(acquire=AcquireRequest(spec=spec, create=True))),
    ]
    for method, request in ways:
        with pytest.raises(Denied, match="kept for the jobs of slurm") as refused:
            await ask(world, caller, method, request)
        assert "submit a job" in refused.value.would_work
        assert "use allocation rest" in refused.value.would_work
    assert not (await world.controller.list_partitions(ROOT, ListRequest())).partitions
    explained = await ask(world, caller, "explain", ExplainRequest(spec=spec, for_job=True))
    assert isinstance(explained, Explanation)
    assert explained.starts_now


async def test_a_request_without_allocation_gets_one_that_is_open(world: World) -> None:
    await setting(world, "rest")
    spec = PartitionSpec(name="p1", size=4)
    made = await ask(world, ALICE, "create_partition", create("p0"))
    assert isinstance(made, PartitionInfo)
    assert made.allocation == "rest"
    # Not by way of the server alone: placement itself leaves it alone.
    reply = await world.controller.acquire(ALICE, AcquireRequest(spec=spec, create=True, ttl=9))
    assert reply.partition.allocation == "rest"
    full = PartitionSpec(name="p2", size=4)
    with pytest.raises(Denied, match="kept for the jobs of slurm"):
        await world.controller.create_partition(ALICE, CreateRequest(spec=full))


async def test_where_several_allocations_are_open_a_request_names_one(world: World) -> None:
    await setting(world, "a1", "a2")
    with pytest.raises(InvalidRequest, match="a1, a2, and others"):
        await ask(world, ALICE, "create_partition", create("p1"))
    assert await ask(world, ALICE, "create_partition", create("p1", "a2"))


async def test_a_refusal_says_that_no_allocation_is_open(world: World) -> None:
    await setting(world)
    with pytest.raises(Denied, match="every allocation is kept for the jobs of slurm"):
        await ask(world, ALICE, "create_partition", create("p1"))


BOB = Caller("bob", 1002, Role.USER)


async def test_what_was_made_for_a_users_job_is_his_alone(world: World) -> None:
    for name, owner in (("c7", "alice"), ("c8", "bob")):
        await world.controller.create_allocation(
            ROOT, AllocationRequest(name=name, size=8, owner=owner)
        )
    spec = PartitionSpec(name="p1", size=4, allocation="c7")
    ways: list[tuple[str, Value]] = [
        ("create_partition", CreateRequest(spec=spec)),
        ("acquire", AcquireRequest(spec=spec, create=True)),
        ("wait", WaitRequest(create=CreateRequest(spec=spec))),
        ("explain", ExplainRequest(spec=spec)),
    ]
    for caller in (BOB, NOBODY):
        for method, request in ways:
            with pytest.raises(Denied, match="allocation c7 is alice's, for a job"):
                await ask(world, caller, method, request)
    with pytest.raises(Denied, match="every allocation is a job's, c7 one of alice's"):
        await ask(world, NOBODY, "create_partition", create("p1"))
    await world.restart()
    made = await ask(world, BOB, "create_partition", create("p1"))
    assert isinstance(made, PartitionInfo)
    assert made.allocation == "c8"  # unnamed, it is his own
    mine = PartitionSpec(name="p2", size=4, allocation="c7")
    assert await ask(world, ALICE, "create_partition", CreateRequest(spec=mine)) is not None
    listed = await world.controller.list_allocations(ALICE, ListRequest())
    assert [(a.name, a.owner) for a in listed.allocations] == [("c7", "alice"), ("c8", "bob")]
    user = UserRequest(name="slurm", role="scheduler", uid=SLURM_UID)
    await world.controller.create_user(ROOT, user)
    both = AllocationRequest(name="c9", size=4, owner="bob", scheduler="slurm")
    with pytest.raises(InvalidRequest, match="either a scheduler's or somebody's"):
        await world.controller.create_allocation(ROOT, both)


async def test_an_administrator_may_and_the_scheduler_stays(world: World) -> None:
    await setting(world, "rest")
    made = await ask(world, ROOT, "create_partition", create("p1", "jobs", job="9"))
    assert isinstance(made, PartitionInfo)
    assert (made.allocation, made.owner) == ("jobs", "alice")
    listed = await world.controller.list_allocations(ALICE, ListRequest())
    assert [(a.name, a.scheduler) for a in listed.allocations] == [("jobs", "slurm"), ("rest", "")]
    with pytest.raises(WrongState, match="allocation jobs is slurm's"):
        await world.controller.remove_user(ROOT, Named(name="slurm"))
    await world.controller.remove_partition(ROOT, RemoveRequest(name="p1"))
    await world.controller.remove_allocation(ROOT, Named(name="jobs"))
    await world.controller.remove_user(ROOT, Named(name="slurm"))
    await world.controller.create_allocation(ROOT, AllocationRequest(name="back", size=8))


async def test_a_scheduler_leases_what_an_administrator_made_for_it(world: World) -> None:
    await setting(world, "rest")
    spec = PartitionSpec(name="pool", size=8, reconfigurable=True, allocation="jobs")
    await ask(world, ROOT, "create_partition", CreateRequest(spec=spec))
    other = PartitionSpec(name="other", size=8, reconfigurable=True, allocation="rest")
    await ask(world, ROOT, "create_partition", CreateRequest(spec=other))

    def lease(name: str, owner: str = "alice") -> AcquireRequest:
        spec = PartitionSpec(name=name, size=2)
        uid = 1001 if owner else -1
        return AcquireRequest(spec=spec, holder="job 7", ttl=99, owner=owner, owner_uid=uid)

    held = await ask(world, ACCOUNT, "acquire", lease("pool"))
    assert isinstance(held, AcquireReply)
    assert held.lease.owner == "alice"
    claim = LeaseRequest(id=held.lease.id, epoch=held.lease.epoch)
    with pytest.raises(Denied, match="belongs to root"):
        await ask(world, ACCOUNT, "acquire", lease("other"))
    with pytest.raises(Denied, match="asks in the name of others"):
        await ask(world, ACCOUNT, "acquire", lease("pool", ""))
    with pytest.raises(Denied, match="only a scheduler"):
        await ask(world, ALICE, "acquire", lease("pool", "bob"))
    await ask(world, ACCOUNT, "renew", claim)
    await ask(world, ACCOUNT, "release", claim)


async def test_whom_an_administrator_can_make_a_scheduler(world: World) -> None:
    await setting(world, "rest")
    users = world.controller
    with pytest.raises(AlreadyExists, match="user id 64030 is user slurm"):
        await users.create_user(ROOT, UserRequest(name="other", uid=SLURM_UID))
    with pytest.raises(InvalidRequest, match="root is an administrator"):
        await users.create_user(ROOT, UserRequest(name="other", uid=0))
    await users.create_user(ROOT, UserRequest(name="carl", uid=1003, role="reader"))
    with pytest.raises(InvalidRequest, match="has the role reader"):
        await users.create_allocation(ROOT, AllocationRequest(name="a9", size=4, scheduler="carl"))
    with pytest.raises(Denied, match="reader's role"):
        await ask(world, Caller("c", 1003, Role.USER), "create_partition", create("p1"))
    # Root stays root, and a user who is no more has no role.
    assert users.admitted(ROOT, ListRequest())[0] is ROOT
    await users.remove_user(ROOT, Named(name="carl"))
    kernel = Caller("c", 1003, Role.USER)
    assert users.admitted(kernel, ListRequest())[0] is kernel


async def test_an_account_stays_in_the_allocations_granted_to_its_user(world: World) -> None:
    await setting(world, "a1", "a2")
    await world.controller.create_user(
        ROOT, UserRequest(name="carol", uid=1004, allocations=["a2"])
    )
    carol = Caller("c", 1004, Role.USER)
    made = await ask(world, carol, "create_partition", create("p1"))
    assert isinstance(made, PartitionInfo)
    assert (made.allocation, made.owner, made.owner_uid) == ("a2", "carol", 1004)
    for other in ("a1", "jobs"):
        with pytest.raises(Denied, match=f"allocation {other} is not granted to carol"):
            await ask(world, carol, "create_partition", create("p2", other))
