"""The disk is full at any commit of any call, and memory still equals the written state.

From then on the server answers reads from memory, so memory must not be ahead of the store: no
device may be taken for a call that was not done, no lease that continues may be refused, and no
waiter may be removed from the queue. State that is written only with a later commit is known from
the hardware, and counts as written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

import pytest

from podwright.agents import Fault
from podwright.controller.administration import _allocations as allocations
from podwright.controller.administration import _users as users
from podwright.controller.hardware import _registry as registry
from podwright.controller.queue._unacknowledged_grants import put_waiter
from podwright.controller.requests._quotas import QUOTA
from podwright.controller.state import _records as records
from podwright.controller.state._records import WAITER
from podwright.errors import PodwrightError, Unavailable
from podwright.placement import Placement
from podwright.store import Change, Put
from podwright.wire import (
    METHODS,
    AcquireReply,
    AcquireRequest,
    AgentRequest,
    AllocationRequest,
    AskToMoveRequest,
    CallOffMoveRequest,
    ClusterChange,
    ClusterRequest,
    CreateRequest,
    DrainRequest,
    LeaseRequest,
    MachineName,
    MoveRequest,
    MovesAllowed,
    Named,
    OperationState,
    PartitionSpec,
    QuotaInfo,
    RemoveRequest,
    ResetRequest,
    RevokeRequest,
    ShareRequest,
    UserRequest,
    Value,
    WaiterName,
    WaitRequest,
)
from tests.controller.test_agents import Site
from tests.controller.world import ALICE, ROOT

FULL = Unavailable("the disk of the store x is full", full=True)
#: What lives in memory as it is written. Events and the ids of requests are not told of here.
KINDS = {
    records.PARTITION, records.LEASE, records.FENCE, records.QUARANTINE, registry.AGENT,
    registry.CLUSTER, allocations.ALLOCATION, users.USER, QUOTA, WAITER, "drain",
}  # fmt: skip

Table = dict[tuple[str, str], Any]
Step = Callable[["Pod"], Awaitable[object]]


class Pod(Site):
    """A cluster of four agents, two more agents beside it, and a store whose disk may be full."""

    def __init__(self) -> None:
        super().__init__()
        self.later: dict[tuple[str, str], Change] = {}
        self.held: AcquireReply
        self.waiter = ""

    @classmethod
    async def made(cls, prepare: Step) -> Self:
        pod = cls()
        await pod.start()
        await pod.agents("ag1", "ag2", "ag3", "ag4", "ag5", "ag6")
        await pod.cluster("c1", "ag1", "ag2", "ag3", "ag4")
        await prepare(pod)
        await pod.controller._state.journal.flush()
        pod.later = {}
        return pod

    async def start(self) -> None:
        await super().start()
        await self.controller._state.journal.flush()
        self.later = {}
        self._listen()

    def _listen(self) -> None:
        journal = self.controller._state.journal
        commit, later = journal.commit, journal.later

        async def committing(changes: list[Change]) -> None:
            ride = dict(self.later)
            await commit(changes)
            self.later = {at: c for at, c in self.later.items() if ride.get(at) is not c}

        def riding(change: Change) -> None:
            self.later[change.kind, change.key] = change
            later(change)

        journal.commit, journal.later = committing, riding  # type: ignore[method-assign,assignment]

    async def ask(self, method: str, request: Value, caller: Any = ROOT) -> Any:
        return await getattr(self.controller, METHODS[method].function)(caller, request)

    async def hold(self, name: str, size: int = 4, **fields: Any) -> AcquireReply:
        special = {key: fields.pop(key) for key in ("movable", "reconfigurable") if key in fields}
        spec = PartitionSpec(name=name, size=size, **special)
        fields.setdefault("ttl", 20.0)
        self.held = await self.ask("Acquire", AcquireRequest(spec=spec, **fields))
        return self.held

    async def quiet(self) -> None:
        """Wait until everything under way has ended."""
        state = self.controller._state
        for _ in range(3):
            while state.tasks:
                await asyncio.wait(state.tasks)
            await asyncio.sleep(0)

    async def stands(self) -> None:
        """Check that memory equals the written state, and that holders of leases go on."""
        state = self.controller._state
        assert self.remembered() == self.written()
        assert self.taken() == self.owed()
        assert not state.admitted
        for lease in list(state.leases.values()):
            request = LeaseRequest(id=lease.record.id, epoch=lease.record.epoch)
            renewed = await self.ask("Renew", request)
            assert not (renewed.move and self.controller.read_only), "it would end for nothing"

    async def goes_on(self, call: Step) -> None:
        """Make room again: a new start finishes what was begun, and then the call succeeds."""
        kept = self.kept()
        leases = set(self.controller._state.leases)
        await self.controller.close()
        await self.start()
        await self.quiet()
        await self.stands()
        assert kept.items() <= self.kept().items()
        assert set(self.controller._state.leases) == leases
        with suppress(PodwrightError):
            await call(self)
        await self.quiet()
        assert self.controller.failure is None
        await self.stands()
        assert [fault for machine in self.machines.values() for fault in machine.violations] == []

    def kept(self) -> dict[str, object]:
        """Return the partitions that are not being removed, with their devices."""
        return {
            entry.name: entry.known.blocks
            for entry in self.controller._state.partitions.values()
            if entry.known.operation is not OperationState.REMOVING
            and (entry.leases or not entry.known.transient)
        }

    def written(self) -> Table:
        found = dict(self.store._disk.records)
        for at, change in self.later.items():
            if isinstance(change, Put):
                found[at] = change.body
            else:
                found.pop(at, None)
        return {at: body for at, body in found.items() if at[0] in KINDS}

    def remembered(self) -> Table:
        """Return the state in memory in the form in which it would be written."""
        state, controller = self.controller._state, self.controller
        puts: list[Put] = [records.put(record) for record in state.partitions.records()]
        puts += [records.put_lease(lease.record) for lease in state.leases.values()]
        puts += [records.put_fence(f) for e in state.partitions.values() for f in e.fences.values()]
        puts += map(records.put_quarantine, state.quarantine.values())
        puts += [
            registry.put_agent(one.record) for one in controller._services.registry.agents.values()
        ]
        puts += map(users.put_user, controller._services.users._users.values())
        for name in controller._services.registry.clusters:
            cluster = state.inventory.clusters[name]
            puts.append(registry.put_cluster(cluster.layout))
            puts += [records.put_drain(name, drain) for name, drain in cluster.drains.items()]
            if not allocations.is_implicit(cluster):
                for a, inside in cluster.allocations.items():
                    record = allocations.AllocationRecord(
                        name=a, cluster=name, agents=tuple(inside),
                        scheduler=cluster.closed.get(a, ""), owner=cluster.owned.get(a, ""),
                    )  # fmt: skip
                    puts.append(allocations.put_allocation(record))
        waiters = controller._services.waiting._waiters.values()
        puts += [put_waiter(waiter.record) for waiter in waiters if not waiter.refused]
        found: Table = {(put.kind, put.key): put.body for put in puts}
        written = self.written()
        for at in self._quotas():
            found[at] = written.get(at)  # by their names alone
        return found

    def _quotas(self) -> list[tuple[str, str]]:
        return [(QUOTA, "/".join(key)) for key in self.controller._state.quotas]

    def taken(self) -> list[tuple[str, int, int]]:
        """Return the devices that the index gives to nobody."""
        return sorted(
            at
            for name, cluster in self.controller._state.inventory.clusters.items()
            for placement in cluster.index.placements()
            for at in _places(name, placement)
        )

    def owed(self) -> list[tuple[str, int, int]]:
        """Return the devices that somebody has, or that are kept for somebody."""
        state = self.controller._state
        of = [(record.cluster, record.placement) for record in state.partitions.records()]
        of += [(one.cluster, one.placement) for one in state.quarantine.values()]
        of += [(one.cluster.layout.name, one.target) for one in state.moves.values()]
        for kept in state.reservations.values():
            of += [(kept.goal.cluster.layout.name, piece) for piece in kept.placements]
        return sorted(at for name, placement in of for at in _places(name, placement))


def _places(cluster: str, placement: Placement) -> list[tuple[str, int, int]]:
    return [(cluster, b.domain, b.offset + i) for b in placement.blocks for i in range(b.size)]


# -- what is asked, and what was before ----------------------------------------------------------


async def nothing(pod: Pod) -> None:
    pass


def asks(method: str, request: Value, caller: Any = ROOT) -> Step:
    return lambda pod: pod.ask(method, request, caller)


def spec(name: str, size: int = 4, **fields: Any) -> PartitionSpec:
    return PartitionSpec(name=name, size=size, **fields)


async def one(pod: Pod) -> None:
    await pod.create("p1", 4)


async def launched(pod: Pod) -> None:
    """A launch on one half of a pod, with another one inside, whose host is known."""
    await pod.ask("CreatePartition", CreateRequest(spec=spec("p1", 8, reconfigurable=True)))
    held = await pod.hold("p1", 4, hosts=["h1"])
    await pod.hold("p1", 2, hosts=["h1"], parent=held.lease.id)
    pod.held = held


async def fencing(pod: Pod) -> None:
    """A launch on silent machines, two hosts of which have not confirmed that it is gone."""
    await one(pod)
    held = await pod.hold("p1", hosts=["h1", "h2"])
    await pod.hold("p1", parent=held.lease.id, hosts=["h1"])
    pod.held = held
    pod.machines[held.partition.gcds[0][0].machine].set_down(True)
    await release(pod, confirmed=False)
    assert pod.controller._state.fences


async def asked_to_move(pod: Pod) -> None:
    await pod.hold("p1", create=True, movable=True)
    await pod.time.advance(10)
    machine = pod.held.partition.gcds[0][0].machine
    await pod.ask("DrainMachine", DrainRequest(name=machine))
    lease = pod.held.lease
    request = LeaseRequest(id=lease.id, epoch=lease.epoch, move_seconds=1.0)
    for _ in range(20):
        await pod.time.advance(1)
        info = await pod.ask("Renew", request)
        if info.move:
            pod.waiter = info.move
            return
    raise AssertionError("it is not asked to move")


async def a_job(pod: Pod) -> None:
    """A scheduler's job, whose launch can be moved."""
    place = PartitionSpec(name="p1", devices=[(0, at) for at in range(4)], movable=True)
    await pod.ask("CreatePartition", CreateRequest(spec=place, owner="root", owner_uid=0, job="7"))
    lease = (await pod.hold("p1")).lease
    await pod.ask("Renew", LeaseRequest(id=lease.id, epoch=lease.epoch, move_seconds=1.0))


async def ask_to_move(pod: Pod) -> None:
    there = [(0, at) for at in range(8, 12)]
    await pod.ask("AskToMove", AskToMoveRequest(partition="p1", job="7", devices=there))


async def call_off_move(pod: Pod) -> None:
    await pod.ask("CallOffMove", CallOffMoveRequest(partition="p1", job="7"))


async def job_asked(pod: Pod) -> None:
    await a_job(pod)
    await ask_to_move(pod)
    assert pod.controller._state.moves


async def move(pod: Pod) -> None:
    lease = pod.held.lease
    await pod.ask("Move", MoveRequest(id=lease.id, epoch=lease.epoch, move=pod.waiter))


async def waiting(pod: Pod) -> None:
    """Alice waits for the whole pod, and a launch holds a part of it."""
    await pod.hold("p1", create=True)
    request = WaitRequest(create=CreateRequest(spec=spec("p2", 16)))
    pod.waiter = (await pod.ask("Wait", request, ALICE)).waiter.id
    await pod.quiet()


async def release(pod: Pod, **fields: Any) -> None:
    lease = pod.held.lease
    await pod.ask("Release", LeaseRequest(id=lease.id, epoch=lease.epoch, **fields))


async def leave(pod: Pod) -> None:
    await pod.ask("Leave", WaiterName(id=pod.waiter))


def releases(**fields: Any) -> Step:
    return lambda pod: release(pod, **fields)


async def renew(pod: Pod) -> None:
    lease = pod.held.lease
    await pod.ask("Renew", LeaseRequest(id=lease.id, epoch=lease.epoch, hosts=["h2"]))


async def passes(pod: Pod) -> None:
    """Let time pass, so that everything that is due by itself is done."""
    for _ in range(70):
        await pod.time.advance(1)
        if pod.controller.failure is not None:
            return


async def broken(pod: Pod, **fields: Any) -> None:
    """The machine of a partition dies, and the server may move the partition."""
    await pod.ask("CreatePartition", CreateRequest(spec=spec("p1", 4, relocatable=True)))
    held = await pod.hold("p1", ttl=3600.0)
    pod.machines[held.partition.gcds[0][0].machine].set_down(True)
    with suppress(PodwrightError):
        await pod.ask("ResetPartition", ResetRequest(name="p1", force=True))


async def machine_fails(pod: Pod) -> None:
    await one(pod)
    for machine in pod.machines.values():
        machine.fail_next("release", 1000)
        machine.fail_next("configure", 1000)
        machine.fail_next("reset", 1000)


async def a_user(pod: Pod) -> None:
    await pod.ask("CreateUser", UserRequest(name="slurm", role="scheduler"))


async def divided(pod: Pod) -> None:
    await a_user(pod)
    request = AllocationRequest(name="jobs", agents=["ag1", "ag2"], scheduler="slurm")
    await pod.ask("CreateAllocation", request)


async def drained(pod: Pod) -> None:
    await pod.ask("DrainMachine", DrainRequest(name="ag1"))


async def hung(pod: Pod) -> None:
    """Somebody waits for a partition that is being removed."""
    await waiting(pod)
    pod.machines["ag1"].fail_next("release", fault=Fault.FAIL)


async def enlarge(pod: Pod) -> None:
    await pod.hold("p1", 8, update=True, keep=True)


async def shrink(pod: Pod) -> None:
    await pod.hold("p1", 2, update=True)


#: What they change is written with a later commit, or is of this server's life alone.
RIDING = (ask_to_move, call_off_move)
FORCED = ("RemovePartition", RemoveRequest(name="p1", force=True))
#: Of each call that changes something: what was before, and the call.
CALLS: list[tuple[str, Step, Step]] = [
    ("CreatePartition", nothing, asks("CreatePartition", CreateRequest(spec=spec("p1", 8)))),
    ("ResetPartition", one, asks("ResetPartition", ResetRequest(name="p1"))),
    ("ResetPartition", launched, asks("ResetPartition", ResetRequest(name="p1", force=True))),
    ("ResetPartition", machine_fails, asks("ResetPartition", ResetRequest(name="p1"))),
    ("RemovePartition", one, asks("RemovePartition", RemoveRequest(name="p1"))),
    ("RemovePartition", launched, asks(*FORCED)),
    ("RemovePartition", machine_fails, asks(*FORCED)),
    ("RemovePartition", fencing, asks(*FORCED)),
    ("Acquire", one, lambda pod: pod.hold("p1", reset=True)),
    ("Acquire", one, lambda pod: pod.hold("p1", reset=False)),
    ("Acquire", nothing, lambda pod: pod.hold("p1", create=True)),
    ("Acquire", one, enlarge),
    ("Acquire", one, shrink),
    ("Acquire", machine_fails, lambda pod: pod.hold("p1", 8, update=True)),
    ("Acquire", launched, lambda pod: pod.hold("p1", 2, parent=pod.held.lease.id)),
    ("Renew", launched, renew),
    ("Release", launched, releases()),
    ("Release", launched, releases(confirmed=False)),
    ("Release", launched, releases(force=True)),
    ("Release", fencing, releases(confirmed=True, hosts=["h1"])),
    ("Release", fencing, releases()),
    ("Release", fencing, releases(force=True)),
    ("Release", waiting, releases()),
    ("Release", waiting, releases(confirmed=False)),
    ("Release", hung, releases()),
    ("Move", asked_to_move, move),
    ("CreatePartition", asked_to_move, asks("CreatePartition", CreateRequest(spec=spec("p2")))),
    ("AllowMoves", asked_to_move, asks("AllowMoves", MovesAllowed(allowed=False))),
    ("AskToMove", a_job, ask_to_move),
    ("CallOffMove", job_asked, call_off_move),
    ("CreatePartition", job_asked, asks("CreatePartition", CreateRequest(spec=spec("p2")))),
    ("Wait", one, asks("Wait", WaitRequest(create=CreateRequest(spec=spec("p2", 8))), ALICE)),
    ("Wait", one, asks("Wait", WaitRequest(create=CreateRequest(spec=spec("p2", 16))), ALICE)),
    ("Leave", waiting, leave),
    ("SetQuota", nothing, asks("SetQuota", QuotaInfo(user="alice", devices=4, partitions=1))),
    ("SetShare", nothing, asks("SetShare", ShareRequest(guest="slurm", weight=3.0))),
    ("DrainMachine", waiting, asks("DrainMachine", DrainRequest(name="ag2"))),
    ("ResumeMachine", drained, asks("ResumeMachine", MachineName(name="ag1"))),
    ("CreateAgent", nothing, asks("CreateAgent", AgentRequest(name="ag7", host="ag7", port=1))),
    ("RemoveAgent", nothing, asks("RemoveAgent", Named(name="ag5"))),
    ("CreateCluster", nothing, asks("CreateCluster", ClusterRequest(
        name="c2", agents=["ag5", "ag6"]))),
    ("ChangeCluster", waiting, asks("ChangeCluster", ClusterChange(name="c1", add=["ag5"]))),
    ("ChangeCluster", divided, asks("ChangeCluster", ClusterChange(
        name="c1", replace="ag4", by="ag5"))),
    ("ChangeCluster", drained, asks("ChangeCluster", ClusterChange(
        name="c1", replace="ag1", by="ag5"))),
    ("RemoveCluster", nothing, asks("RemoveCluster", Named(name="c1"))),
    ("RemoveCluster", divided, asks("RemoveCluster", Named(name="c1", force=True))),
    ("CreateAllocation", a_user, asks("CreateAllocation", AllocationRequest(
        name="jobs", agents=["ag1", "ag2"], users=["slurm"]))),
    ("RemoveAllocation", divided, asks("RemoveAllocation", Named(name="jobs"))),
    ("CreateUser", nothing, asks("CreateUser", UserRequest(name="u1"))),
    ("RemoveUser", a_user, asks("RemoveUser", Named(name="slurm"))),
    ("RevokeCertificate", a_user, asks("RevokeCertificate", RevokeRequest(
        name="slurm", number="0123456789abcdef"))),
    ("", launched, passes),
    ("", fencing, passes),
    ("", broken, passes),
    ("", waiting, passes),
]  # fmt: skip


def test_every_call_that_is_written_down_is_here() -> None:
    changing = {m.name for m in METHODS.values() if m.changes and m.stored}
    assert changing <= {name for name, _, _ in CALLS}


@pytest.mark.parametrize(
    ("before", "call"), [(b, c) for _, b, c in CALLS],
    ids=[f"{name or 'by itself'}-{b.__name__}-{n}" for n, (name, b, _) in enumerate(CALLS)],
)  # fmt: skip
async def test_memory_is_what_is_written_wherever_the_disk_is_full(
    before: Step, call: Step
) -> None:
    for nth in range(1, 40):
        pod = await Pod.made(before)
        pod.machine("ag7")
        pod.store.fail(nth, lasting=True, error=FULL)
        with suppress(PodwrightError):
            await call(pod)
        await pod.quiet()
        await pod.stands()
        ended = pod.controller.failure is None
        await pod.goes_on(call)
        await pod.controller.close()
        if ended:
            assert nth > 1 or call in RIDING, "it wrote nothing down"
            return
    raise AssertionError("it writes for ever")
