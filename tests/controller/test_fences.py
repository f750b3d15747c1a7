"""A lease that ends without a word leaves a fence: no other epoch ever meets the old one."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest
import pytest_asyncio

from podwright.controller import Caller, Role
from podwright.errors import Denied, Fenced, Held, InvalidRequest, PodwrightError
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    CreateRequest,
    EventsRequest,
    ExplainRequest,
    LeaseInfo,
    LeaseRequest,
    OperationState,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    WaitRequest,
)
from tests.controller.world import ALICE, ALL, BOB, ROOT, World, claim

SCHEDULER = Caller("slurm", 64030, Role.SCHEDULER)
LONG = 900.0  #: seconds; many times what these leases last


class ThisHost:
    """The server's host, as far as the server can see it."""

    def __init__(self, name: str, machines: Sequence[str] = ()) -> None:
        self.name, self.machines = name, machines
        self.running: set[str] = set()
        self.seen: set[int] = {1001}

    def is_here(self, host: str) -> bool:
        return host == self.name

    def has(self, machine: str) -> bool:
        return machine in self.machines

    def is_gone(self, run: str, uid: int) -> bool:
        return uid in self.seen and run not in self.running

    async def lives(self, run: str, uid: int) -> bool | None:
        return run in self.running if uid in self.seen else None


@pytest_asyncio.fixture
async def bare() -> AsyncIterator[World]:
    """A pod whose machines cannot keep any process from a device."""
    made = World()
    for machine in made.machines.values():
        machine.cuts_off = ""
    await made.start()
    yield made
    await made.check()
    await made.stop()


async def acquire(
    world: World, name: str, *, hosts: Sequence[str] = (), run: str = "", create: bool = False,
    ttl: float = 10.0, caller: Caller = ALICE, size: int = 4, parent: str = "",
) -> AcquireReply:  # fmt: skip
    request = AcquireRequest(
        spec=PartitionSpec(name=name, size=size),
        create=create,
        ttl=ttl,
        hosts=list(hosts),
        run=run,
        parent=parent,
    )
    reply: AcquireReply = await world.controller.acquire(caller, request)
    return reply


async def leases(world: World) -> list[LeaseInfo]:
    reply: list[LeaseInfo] = (await world.controller.list_leases(ROOT, ALL)).leases
    return reply


async def explained(world: World, name: str) -> str:
    found = await world.controller.explain(ROOT, ExplainRequest(name=name))
    assert not found.starts_now
    return "\n".join(found.lines)


def said(reply: AcquireReply, *hosts: str, **more: bool) -> LeaseRequest:
    return LeaseRequest(id=reply.lease.id, epoch=reply.lease.epoch, hosts=list(hosts), **more)


# -- never two ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reconfigurable", [False, True])
async def test_no_device_ever_does_an_older_epochs_work_after_a_newer_ones(
    world: World, seed: int, reconfigurable: bool
) -> None:
    """Launches that stop renewing, are ended by force or die go on computing all the same."""
    rng = random.Random(seed)
    done: dict[tuple[str, int], list[int]] = {}
    holders: list[AcquireReply] = []
    refused = 0

    def compute() -> int:
        """Let every former holder go on computing. Returns how many of them were cut off."""
        stopped = 0
        for reply in holders:
            for machine, index in world.covered(reply):
                try:
                    world.machines[machine].use(reply.lease.epoch, [index])
                except Fenced:
                    stopped += 1
                else:
                    done.setdefault((machine, index), []).append(reply.lease.epoch)
        return stopped

    await world.create("p1", 4, caller=ALICE, reconfigurable=reconfigurable)
    for _ in range(40):
        step = rng.choice(["acquire", "acquire", "end", "release", "restart", "time", "reset"])
        try:
            if step == "acquire":
                size = rng.choice([1, 2]) if reconfigurable else 4
                name = rng.choice(["p1", "p1", ""])
                holders.append(
                    await world.acquire(
                        name,
                        size,
                        create=not name,
                        caller=ALICE,
                        ttl=rng.choice([1, 30]),
                        reset=rng.choice([None, False]),
                    )
                )
            elif step == "end" and holders:
                await world.controller.release(ALICE, said(rng.choice(holders), confirmed=False))
            elif step == "release" and holders:
                await world.release(rng.choice(holders), caller=ALICE)
            elif step == "restart":
                await world.restart()
            elif step == "reset":
                await world.reset("p1", caller=ALICE, force=True)
            else:
                await world.time.advance(rng.choice([0.5, 2, 40]))
        except PodwrightError:
            pass
        refused += compute()
    assert refused
    assert done
    mixed = [epochs for epochs in done.values() if epochs != sorted(epochs)]
    assert len(mixed) == 0


async def test_a_lease_that_was_not_renewed_is_cut_off_at_its_end(world: World) -> None:
    """It is cut off before anybody else asks: a stopped process finds its devices refused when it
    wakes.
    """
    await world.create("p1", 4)
    for name in ("p1", ""):
        reply = await acquire(world, name, create=not name, hosts=["n1"], caller=ROOT)
        world.use(reply)
        await world.time.advance(11)
        with pytest.raises(Fenced):
            world.use(reply)
        with pytest.raises(Fenced, match="the lease is over"):
            await world.controller.renew(ROOT, claim(reply))
    assert await leases(world) == []
    assert (await world.get("p1")).operation_state is OperationState.IDLE


# -- silence and time alone never suffice ------------------------------------------------------


@pytest.mark.parametrize("create", [False, True])
async def test_a_partition_is_fencing_until_all_its_hosts_have_spoken(
    bare: World, create: bool
) -> None:
    if not create:
        await bare.create("p1", 4, caller=ALICE)
    reply = await acquire(bare, "p1", hosts=["n1", "n2"], create=create)
    await bare.time.advance(LONG)
    shown = await bare.get("p1")
    assert (shown.ready_state, shown.operation_state) == (
        ReadyState.PENDING,
        OperationState.FENCING,
    )
    (kept,) = await leases(bare)
    assert (kept.id, kept.state) == (reply.lease.id, "FENCING")
    assert kept.waits_for == ["host n1", "host n2", "machine ag1"]
    assert [(lease.id, lease.state) for lease in shown.leases] == [(kept.id, "FENCING")]
    assert await explained(bare, kept.id) == await explained(bare, "p1")
    words = await explained(bare, "p1")
    assert "without word from n1 and n2 that its instances are gone" in words
    assert "no agent under another account can cut them off on ag1" in words
    assert f"vipu remove lease {reply.lease.id} --force" in words
    bare.use(reply)  # it may well still run
    with pytest.raises(Held, match="is FENCING") as caught:
        await acquire(bare, "p1")
    assert caught.value.data["partition"] == "p1"
    with pytest.raises(Denied):
        await bare.controller.release(BOB, said(reply, "n1"))
    await bare.controller.release(ALICE, said(reply, "n1"))
    await bare.controller.release(ALICE, said(reply, "n1"))
    await bare.restart()
    await bare.time.advance(5)
    (kept,) = await leases(bare)
    assert kept.waits_for == ["host n2", "machine ag1"]
    await bare.controller.release(ALICE, said(reply, "n2"))
    assert await leases(bare) == []
    if create:
        assert await bare.names() == []
        return
    new = await acquire(bare, "p1")
    assert bare.used(new) == []
    await bare.release(new, caller=ALICE)


async def test_hosts_that_were_never_named_must_be_spoken_for_at_once(bare: World) -> None:
    await bare.create("p1", 4, caller=ALICE)
    reply = await acquire(bare, "p1")
    await bare.time.advance(20)
    await bare.controller.release(ALICE, said(reply, "n1"))
    (kept,) = await leases(bare)
    assert kept.waits_for == ["its hosts", "machine ag1"]
    await bare.controller.release(ALICE, said(reply))
    assert await leases(bare) == []


async def test_a_launch_says_later_where_it_runs_and_that_is_durable(bare: World) -> None:
    await bare.create("p1", 4, caller=ALICE)
    reply = await acquire(bare, "p1")
    renewed = await bare.controller.renew(ALICE, said(reply, "n7"))
    assert renewed.hosts == ["n7"]
    with pytest.raises(InvalidRequest):
        await bare.controller.renew(ALICE, said(reply, ""))
    await bare.restart()
    await bare.time.advance(20)
    assert (await leases(bare))[0].waits_for[0] == "host n7"
    await bare.controller.release(ALICE, said(reply, "n7"))
    assert await leases(bare) == []


async def test_a_release_speaks_for_the_hosts_it_names_alone(bare: World) -> None:
    await bare.create("p1", 4, caller=ALICE)
    reply = await acquire(bare, "p1", hosts=["n1", "n2"])
    await bare.controller.release(ALICE, said(reply, "n1"))
    assert (await leases(bare))[0].waits_for == ["host n2", "machine ag1"]
    await bare.controller.release(ALICE, said(reply, confirmed=False))
    assert (await leases(bare))[0].waits_for == ["host n2", "machine ag1"]
    await bare.controller.release(ALICE, said(reply, "n2"))
    reply = await acquire(bare, "p1", hosts=["n1", "n2"])
    await bare.controller.release(ALICE, said(reply))
    assert await leases(bare) == []


async def test_an_administrator_forces_and_nobody_else(
    bare: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "podwright.events")
    await bare.create("p1", 4, caller=ALICE)
    for force in (bare.remove, bare.reset):
        await acquire(bare, "p1")
        with pytest.raises(Held, match="is FENCING"):
            await force("p1", caller=ALICE, force=True)
        assert "p1" in await bare.names()
        with pytest.raises(Held, match="is FENCING"):
            await force("p1", caller=ALICE, force=True)
        await bare.reset("p1", force=True)
        assert await leases(bare) == []
    reply = await acquire(bare, "p1")
    with pytest.raises(Denied):
        await bare.controller.release(ALICE, said(reply, force=True))
    await bare.time.advance(20)
    with pytest.raises(Denied):
        await bare.controller.release(ALICE, said(reply, force=True))
    await bare.controller.release(ROOT, said(reply, force=True))
    assert (await bare.get("p1")).operation_state is OperationState.IDLE
    events = (await bare.controller.list_events(ROOT, EventsRequest())).events
    told = [(e.what, e.detail) for e in events if e.who == "server"][-3:]
    assert [what for what, _ in told] == ["LeaseEnd", "Fencing", "Fenced"]
    assert "without word from its hosts" in told[1][1]
    assert told[2][1] == f"{reply.lease.id}: by force of root, not waiting for ag1"
    said_in_log = [(r.levelname, r.getMessage()) for r in caplog.records][-3:]
    assert [level for level, _ in said_in_log] == ["WARNING", "WARNING", "INFO"]
    lost, fencing, fenced = (text for _, text in said_in_log)
    assert lost.startswith(f"a launch on partition p1 of {ALICE.name} is fenced: lease ")
    assert fencing == f"partition p1 of {ALICE.name} is FENCING: {told[1][1]}"
    assert fenced == f"a fence on partition p1 of {ALICE.name} is over: {told[2][1]}"
    await acquire(bare, "p1")
    await bare.remove("p1", force=True)
    assert await bare.names() == []


async def test_a_waiter_for_a_fenced_partition_is_served_when_the_fence_is_gone(
    bare: World,
) -> None:
    await bare.create("p1", 4, caller=ALICE)
    reply = await acquire(bare, "p1", hosts=["n1"])
    wish = AcquireRequest(spec=PartitionSpec(name="p1", size=4))
    waiter = (await bare.controller.wait(ALICE, WaitRequest(acquire=wish))).waiter.id
    for _ in range(4):
        await bare.time.advance(5)
        assert (await bare.controller.wait(ALICE, WaitRequest(id=waiter))).waiter.state != "DONE"
    await bare.controller.release(ALICE, said(reply, "n1"))
    answer = await bare.controller.wait(ALICE, WaitRequest(id=waiter, timeout=5))
    assert answer.waiter.state == "DONE"


async def test_the_rest_of_a_reconfigurable_partition_goes_on(bare: World) -> None:
    await bare.create("p1", 4, caller=ALICE, reconfigurable=True)
    lost = await acquire(bare, "p1", size=2, hosts=["n1"], ttl=5)
    kept = await acquire(bare, "p1", size=2, hosts=["n2"], ttl=3000)
    await bare.time.advance(10)
    shown = await bare.get("p1")
    assert (shown.ready_state, shown.operation_state) == (
        ReadyState.ACTIVE,
        OperationState.FENCING,
    )
    await bare.release(kept, caller=ALICE)
    again = await acquire(bare, "p1", size=2)
    assert again.lease.devices == kept.lease.devices
    with pytest.raises(Held, match="is FENCING"):
        await acquire(bare, "p1", size=1)
    await bare.controller.release(ALICE, said(lost, "n1"))
    await acquire(bare, "p1", size=1)


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_nobody_meets_a_launch_that_may_still_run(
    bare: World, seed: int
) -> None:
    """Random lives run on machines that cannot cut off a process.

    Leases run out, are ended by force or given back for some hosts only, the server is killed,
    machines fail, and waiters are served.
    """
    rng = random.Random(seed)
    running: dict[str, tuple[AcquireReply, set[str]]] = {}  # by lease: its hosts that still run it
    granted = 0

    def meets(reply: AcquireReply) -> None:
        own = set(bare.covered(reply))
        for other, hosts in running.values():
            assert not (hosts and own & set(bare.covered(other))), other.lease.id

    await bare.create("p1", 4, caller=ALICE)
    await bare.create("p2", 4, caller=ALICE, reconfigurable=True)
    await bare.create("p3", 2, caller=ALICE, relocatable=True)
    for _ in range(120):
        some = rng.choice(list(running.values())) if running else None
        step = rng.choice(
            ["new", "new", "new", "time", "gone", "gone", "end", "clear", "restart", "machine"]
        )
        try:
            if step == "new":
                name = rng.choice(["p1", "p2", "p3", ""])
                hosts = rng.choice([["n1"], ["n1", "n2"]])
                reply = await acquire(
                    bare,
                    name,
                    create=not name,
                    hosts=hosts,
                    ttl=rng.choice([1, 5, 60]),
                    size=rng.choice([1, 2]) if name == "p2" else 2 if name == "p3" else 4,
                )
                meets(reply)
                running[reply.lease.id] = (reply, set(hosts))
                granted += 1
            elif step == "time":
                await bare.time.advance(rng.choice([0.5, 3, 30]))
            elif step == "gone" and some is not None:
                host = rng.choice(["n1", "n2"])
                some[1].discard(host)  # first it is so, then it is said
                await bare.controller.release(ALICE, said(some[0], host))
            elif step == "end" and some is not None:
                await bare.controller.release(ALICE, said(some[0], confirmed=False))
            elif step == "clear":
                work = rng.choice([bare.reset, bare.remove])
                await work(rng.choice(["p1", "p2", "run-1"]), caller=ALICE, force=True)
            elif step == "restart":
                await bare.restart()
            elif step == "machine":
                machine = rng.choice(list(bare.machines.values()))
                machine.set_down(rng.random() < 0.2)
        except PodwrightError:
            continue
    assert granted > 1
    for machine in bare.machines.values():
        machine.set_down(False)
    await bare.time.advance(120)
    for reply, still in running.values():
        still.clear()
        with suppress(Fenced):
            await bare.controller.release(ALICE, said(reply))
    await bare.time.advance(10)
    assert await leases(bare) == []


# -- who can cut off ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "caller", "ends"),
    [
        (0, ALICE, True),
        (500, ALICE, True),
        (1001, ALICE, False),  # the launch's own account could undo what its agent does
        (-1, ALICE, False),
        (0, ROOT, False),
        (0, Caller("alice", None, Role.USER, "tcp"), True),
        (500, Caller("alice", None, Role.USER, "tcp"), False),
        (0, Caller("anonymous", None, Role.USER, "tcp"), False),
    ],
)
async def test_an_agent_counts_under_another_account_than_the_launch(
    agent: int, caller: Caller, ends: bool
) -> None:
    world = World()
    for machine in world.machines.values():
        machine.cuts_off, machine.uid = "agent", agent
    await world.start()
    await world.create("p1", 4, caller=caller)
    await acquire(world, "p1", caller=caller)
    await world.time.advance(20)
    assert (await leases(world) == []) is ends
    calls = [c.kind for c in world.machines["ag1"].calls if c.kind != "describe"]
    assert calls == ["configure", "reset", *["fence"] * ends]
    await world.stop()


async def test_a_machine_that_is_silent_then_is_asked_again(world: World) -> None:
    await world.create("p1", 4, caller=ALICE)
    reply = await acquire(world, "p1", hosts=["n1"])
    world.machines["ag1"].fail_next("fence", 100)
    await world.time.advance(20)
    assert (await world.get("p1")).operation_state is OperationState.FENCING
    assert "ag1 did not answer, or did not cut them off" in await explained(world, "p1")
    world.use(reply)
    world.machines["ag1"].heal()
    await world.time.advance(3)
    assert (await world.get("p1")).operation_state is OperationState.IDLE
    with pytest.raises(Fenced):
        world.use(reply)


async def test_what_is_fenced_moves_to_no_other_devices(bare: World) -> None:
    """Otherwise the next user of the old devices would meet the launch there."""
    await bare.create("p1", 4, caller=ALICE, relocatable=True)
    await acquire(bare, "p1", hosts=["n1"], ttl=5)
    before = (await bare.get("p1")).gcds
    bare.machines["ag1"].set_down(True)
    await bare.time.advance(600)
    assert (await bare.get("p1")).gcds == before
    bare.machines["ag1"].set_down(False)
    await bare.time.advance(60)
    assert (await bare.get("p1")).operation_state is OperationState.FENCING


# -- the server's own host ---------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [["head"], []])
async def test_on_its_own_host_the_server_looks_for_itself(bare: World, hosts: list[str]) -> None:
    here = bare.controller._state.own_host = ThisHost("head", ["ag1"])
    here.running.add("run-1")
    await bare.create("p1", 4, caller=ALICE)
    await acquire(bare, "p1", hosts=hosts, run="run-1")
    await bare.time.advance(LONG)
    assert (await bare.get("p1")).operation_state is OperationState.FENCING
    here.running.clear()
    await bare.time.advance(3)
    assert (await bare.get("p1")).operation_state is OperationState.IDLE


@pytest.mark.parametrize(
    ("hosts", "run", "machines", "seen"),
    [
        (["head", "n1"], "run-1", ["ag1"], {1001}),  # another host may still run some of it
        ([], "run-1", [], {1001}),  # its devices are reached over a fabric, from anywhere
        (["head"], "", ["ag1"], {1001}),  # nothing marks its processes
        (["head"], "run-1", ["ag1"], set()),  # another account's environments cannot be read
    ],
)
async def test_the_server_takes_no_launch_for_gone_that_it_cannot_see(
    bare: World, hosts: list[str], run: str, machines: list[str], seen: set[int]
) -> None:
    here = bare.controller._state.own_host = ThisHost("head", machines)
    here.seen = seen
    await bare.create("p1", 4, caller=ALICE)
    await acquire(bare, "p1", hosts=hosts, run=run)
    await bare.time.advance(100)
    assert (await bare.get("p1")).operation_state is OperationState.FENCING


async def abandoned(bare: World, here: ThisHost, *, hosts: Sequence[str], run: str) -> AcquireReply:
    """A launch that was observed, and then killed together with its watchers."""
    bare.controller._state.own_host = here
    here.running.add(run)
    await bare.create("p1", 4, caller=ALICE)
    reply = await acquire(bare, "p1", hosts=hosts, run=run, ttl=300.0)
    await bare.time.advance(3)
    here.running.clear()
    return reply


async def test_a_launch_that_is_gone_from_the_servers_host_gives_back_within_15_s(
    bare: World,
) -> None:
    here = ThisHost("head", ["ag1"])
    await abandoned(bare, here, hosts=["head"], run="run-1")
    await bare.time.advance(3)
    with pytest.raises(Held):
        await acquire(bare, "p1", caller=ALICE)
    await bare.time.advance(15 - 6)
    assert (await bare.get("p1")).operation_state is OperationState.IDLE
    await bare.acquire("p1", caller=ALICE)


@pytest.mark.parametrize(
    ("hosts", "run", "seen"),
    [
        (["head", "n1"], "run-1", {1001}),  # another host may still run some of it
        ([], "run-1", {1001}),  # it never said where it runs
        (["head"], "", {1001}),  # nothing marks its processes
        (["head"], "run-1", set()),  # another account's processes cannot be seen
    ],
)
async def test_a_launch_keeps_its_lease_where_the_server_cannot_know_whether_it_runs(
    bare: World, hosts: list[str], run: str, seen: set[int]
) -> None:
    here = ThisHost("head", ["ag1"])
    here.seen = seen
    await abandoned(bare, here, hosts=hosts, run=run)
    await bare.time.advance(200)
    with pytest.raises(Held):
        await acquire(bare, "p1", caller=ALICE)


async def test_a_launch_that_is_killed_at_once_was_seen_all_the_same(bare: World) -> None:
    """All its processes end before the reconciler ticks for the first time."""
    here = bare.controller._state.own_host = ThisHost("head", ["ag1"])
    here.running.add("run-1")
    await bare.create("p1", 4, caller=ALICE)
    await acquire(bare, "p1", hosts=["head"], run="run-1", ttl=300.0)
    here.running.clear()
    await bare.time.advance(15)
    assert (await bare.get("p1")).operation_state is OperationState.IDLE
    await bare.acquire("p1", caller=ALICE)


async def test_a_launch_that_was_never_seen_keeps_its_lease(bare: World) -> None:
    """The launch may run in a container that has this host's name."""
    bare.controller._state.own_host = ThisHost("head", ["ag1"])
    await bare.create("p1", 4, caller=ALICE)
    await acquire(bare, "p1", hosts=["head"], run="run-1", ttl=300.0)
    await bare.time.advance(200)
    with pytest.raises(Held):
        await acquire(bare, "p1", caller=ALICE)


async def test_a_launch_that_renews_or_lives_keeps_its_lease(bare: World) -> None:
    here = ThisHost("head", ["ag1"])
    reply = await abandoned(bare, here, hosts=["head"], run="run-1")
    for _ in range(20):  # what the server sees is one thing, who renews is another
        await bare.controller.renew(ALICE, said(reply))
        await bare.time.advance(3)
    here.running.add("run-1")  # one that is stopped renews nothing, and lives
    await bare.time.advance(200)
    with pytest.raises(Held):
        await acquire(bare, "p1", caller=ALICE)


# -- time --------------------------------------------------------------------------------------


async def test_a_server_that_stood_still_adds_that_to_leases(world: World) -> None:
    """While the server is stopped, or asleep with its host, nobody can renew."""
    reply = await acquire(world, "p1", create=True, ttl=10)
    await world.time.advance(5)
    world.time.now += 1000
    await world.time.advance(3)
    await world.controller.renew(ALICE, claim(reply))
    world.time.now += 1000
    await world.time.advance(11)
    assert await leases(world) == []


async def test_a_restart_within_the_time_ends_no_launch(world: World) -> None:
    reply = await acquire(world, "p1", create=True, ttl=300)
    for _ in range(3):
        await world.time.advance(290)
        await world.kill()
        world.time.now += 3600
        await world.start()
    await world.controller.renew(ALICE, claim(reply))
    await world.time.advance(301)
    assert await leases(world) == []


# -- jobs --------------------------------------------------------------------------------------


async def job_partition(world: World) -> PartitionInfo:
    request = CreateRequest(
        spec=PartitionSpec(name="job-7", size=4), owner="alice", owner_uid=1001, job="7"
    )
    reply: PartitionInfo = await world.controller.create_partition(SCHEDULER, request)
    return reply


@pytest.mark.parametrize("parent", [False, True])
async def test_a_suspended_job_keeps_its_devices(bare: World, parent: bool) -> None:
    """`scontrol suspend` stops a launch for hours. Its job's lease, or partition, decides."""
    name, outer = "job-7", ""
    if parent:
        name = "static"
        await bare.create(name, 4)
        request = AcquireRequest(
            spec=PartitionSpec(name=name), owner="alice", owner_uid=1001, ttl=3600
        )
        job = await bare.controller.acquire(ROOT, request)
        outer = job.lease.id
    else:
        await job_partition(bare)
    launch = await acquire(bare, name, parent=outer, hosts=["n1"])
    for _ in range(4):
        await bare.time.advance(200)
        if parent:
            await bare.controller.renew(ROOT, claim(job))
    await bare.controller.renew(ALICE, claim(launch))  # resumed
    bare.use(launch)
    await bare.time.advance(9)
    assert (await bare.get(name)).operation_state is OperationState.IDLE
    await bare.release(launch, caller=ALICE)


async def test_the_next_launch_of_a_job_ends_a_late_lease_of_the_job(world: World) -> None:
    await job_partition(world)
    lost = await acquire(world, "job-7", hosts=["n1"])
    world.use(lost)
    with pytest.raises(Held, match="is held"):
        await acquire(world, "job-7")
    await world.time.advance(20)
    new = await acquire(world, "job-7")
    assert world.used(new) == []
    world.use(new)
    with pytest.raises(Fenced):
        world.use(lost)
    with pytest.raises(Fenced):
        await world.controller.renew(ALICE, claim(lost))
    await world.release(new, caller=ALICE)


async def test_a_job_that_is_over_leaves_no_fence(bare: World) -> None:
    """The job's scheduler has ended all of its processes."""
    await job_partition(bare)
    await acquire(bare, "job-7", hosts=["n1"])
    await bare.remove("job-7", caller=SCHEDULER, force=True)
    assert await bare.names() == []
    assert await leases(bare) == []
