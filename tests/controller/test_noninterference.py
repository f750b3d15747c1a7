"""Noninterference: with `--private-data all`, nobody learns anything about another tenant.

Two worlds occupy the same devices at the same times. They differ only in one tenant's name, and in
the names, ids, texts and end times of her objects. Every call of anybody else, with any of her
names, gets the same answer in both, after the same virtual time. The row of a call lists what the
call reveals all the same.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest
from tools.calls_page import reveals_table

from podwright.controller import Caller, Controller, Role, Visible, private_kinds
from podwright.controller.calls._call_table import CALLS
from podwright.errors import PodwrightError
from podwright.fabric import Cluster, preset, simulated_ipus
from podwright.gate._virm_handlers import ANSWERS
from podwright.history import Past
from podwright.http import metrics_text
from podwright.page import TABLE_TOPICS, TableQuery, take
from podwright.server import Identity
from podwright.server._dispatch_calls import Calls
from podwright.server._folded_pod import FoldedPod
from podwright.server._history_recorder import Recorder
from podwright.server._metrics import _pod_metrics
from podwright.wire import (
    METHODS,
    AcquireReply,
    AcquireRequest,
    AskToMoveRequest,
    CallOffMoveRequest,
    CreateRequest,
    DrainRequest,
    EventsRequest,
    ExplainRequest,
    JobInfo,
    JobReport,
    LeaseInfo,
    LeaseRequest,
    ListRequest,
    Method,
    MoveRequest,
    PartitionName,
    PartitionSpec,
    RemoveRequest,
    ResetRequest,
    Value,
    WaiterName,
    WaitRequest,
    virm,
)
from tests.controller.world import ALL, BOB, NOBODY, ROOT, World, virtually

READER = Caller("ruth", 1003, Role.READER)
SCHEDULER = Caller("slurm", 64030, Role.SCHEDULER)
ROLES = (BOB, READER, NOBODY, SCHEDULER)
#: The scheduler of the second pod's jobs, hers and bob's. It sees them all.
PBS = Caller("pbs", 64031, Role.SCHEDULER)
pb: Any = virm.pb
#: The cluster of her objects.
CLUSTER = preset("pod16").name


@dataclass(frozen=True)
class Tenant:
    """The values that differ between the worlds. first: which of two objects has the lower
    number.
    """

    user: str
    uid: int
    leased: str
    other: str
    allocation: str
    holder: str
    duration: float
    first: str
    job: str
    host: str


ALICE = Tenant(
    "alice", 1001, "zebra1", "zebra2", "job-zebra", "poprun zoo.py", 300.0, "lease", "41", "h1"
)
ADAM = Tenant(
    "adam", 1044, "yak", "aardvark", "night", "poprun farm.py", 86400.0, "waiter", "9_3", "barn"
)


def jobs_pod() -> Cluster:
    """A second pod, of twelve machines: the first half is for a scheduler's jobs."""
    cluster = simulated_ipus("second", 48)
    (domain,) = cluster.domains
    machines = tuple(replace(m, name=f"second-{m.name}") for m in domain.machines)
    return replace(cluster, domains=(replace(domain, machines=machines),))


def four_at(offset: int) -> list[tuple[int, int]]:
    """Return four devices of a pod's only link domain."""
    return [(0, at) for at in range(offset, offset + 4)]


class TenantWorld:
    """A tenant with partitions, leases, a fence, jobs, launches that are asked to move and a place
    in the queue, and bob with some of these.
    """

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.alice = Caller(tenant.user, tenant.uid, Role.USER)
        cluster = preset("pod16")
        *open_to_all, hers = [m.name for domain in cluster.domains for m in domain.machines]
        self.cluster = cluster.name
        second = jobs_pod()
        self.machines = [m.name for domain in second.domains for m in domain.machines]
        allocations = {
            cluster.name: {"open": open_to_all, tenant.allocation: [hers]},
            second.name: {"jobs": self.machines[:6], "launches": self.machines[6:]},
        }
        self.world = World([cluster, second], allocations=allocations)
        self.world.machines[self.machines[-1]].cuts_off = ""  # it cannot end a fence
        self.names: dict[str, str] = {}
        self.epoch = self.fence_epoch = 0

    async def start(self, private: str = "all") -> TenantWorld:
        """Create all objects of the world."""
        tenant, alice, world = self.tenant, self.alice, self.world
        controller = await world.start()
        controller._services.privacy.__init__(  # type: ignore[misc]
            controller._state,
            Visible(private_kinds(private)),
            controller._services.users.allocations_of,
        )
        controller._state.inventory.clusters[self.cluster].owned[tenant.allocation] = tenant.user
        more = await self.start_second_pod()
        for name, size, where in ((tenant.leased, 4, "open"), (tenant.other, 4, tenant.allocation)):
            # At the start of a large block: the rest of it is kept for who waits for all.
            place = [(0, offset) for offset in range(4)] if where == "open" else []
            spec = PartitionSpec(name=name, size=size, allocation=where, devices=place)
            request = CreateRequest(spec=spec, duration=tenant.duration)
            await controller.create_partition(alice, request)
        apart = [(0, offset) for offset in range(8, 12)]
        await world.create("mine", 4, caller=BOB, allocation="open", devices=apart)
        await world.acquire("mine", 4, caller=BOB)
        queued = WaitRequest(
            create=CreateRequest(
                spec=PartitionSpec(name=f"{tenant.leased}-next", size=8, allocation="open"),
                duration=tenant.duration,
            )
        )
        for what in sorted(("lease", "waiter"), reverse=tenant.first == "waiter"):
            if what == "lease":
                spec = PartitionSpec(name=tenant.leased)
                held = AcquireRequest(spec=spec, ttl=3000, holder=tenant.holder)
                lease = (await controller.acquire(alice, held)).lease
            else:
                waiter = (await controller.wait(alice, queued)).waiter
        spec = PartitionSpec(name="later", size=8, allocation="open")
        await controller.wait(BOB, WaitRequest(create=CreateRequest(spec=spec, duration=60)))
        self.epoch = lease.epoch
        self.names = {
            "partition": tenant.leased,
            "other partition": tenant.other,
            "lease": lease.id,
            "waiter": waiter.id,
            "allocation": tenant.allocation,
            "user": tenant.user,
            **more,
        }
        # A step on one of her partitions is under way, for as long as anybody looks.
        await controller._state.partitions[tenant.other].lock.acquire()
        return self

    async def start_second_pod(self) -> dict[str, str]:
        """Create what the second pod has. Returns the names of her objects there."""
        tenant, alice, controller = self.tenant, self.alice, self.controller
        cluster = controller._state.inventory.clusters["second"]
        cluster.closed["jobs"] = PBS.name
        # A lease that ended without a word, on a machine that cannot keep its programs off.
        lost = f"{tenant.other}-lost"
        spec = PartitionSpec(
            name=lost, cluster="second", allocation="launches", devices=four_at(44)
        )
        ends_soon = AcquireRequest(spec=spec, create=True, ttl=5, hosts=[tenant.host], run=lost)
        fence = (await controller.acquire(alice, ends_soon)).lease
        self.fence_epoch = fence.epoch
        await self.world.time.advance(6.0)
        # A launch that its machine's drain asks to move.
        launch = f"{tenant.leased}-launch"
        spec = PartitionSpec(
            name=launch, cluster="second", allocation="launches", size=4, movable=True
        )
        held = await controller.acquire(alice, AcquireRequest(spec=spec, create=True, ttl=3000))
        launched = await self._can_move(alice, held)
        machine = held.partition.gcds[0][0].machine
        await controller.drain_machine(ROOT, DrainRequest(name=machine))
        await self.world.time.advance(2.0)
        move = (await self._can_move(alice, held)).move
        assert move
        # A job of hers and one of bob's, which make room for each other's next ones.
        jobs = []
        for caller, job, at in ((alice, tenant.job, 0), (BOB, "77", 4)):
            spec = PartitionSpec(
                name=f"pbs_{job}",
                cluster="second",
                allocation="jobs",
                devices=four_at(at),
                movable=True,
            )
            made = CreateRequest(
                spec=spec,
                owner=caller.name,
                owner_uid=caller.uid or 0,
                job=job,
                duration=tenant.duration if caller is alice else 600.0,
            )
            await controller.create_partition(PBS, made)
            taken = AcquireRequest(spec=PartitionSpec(name=spec.name), ttl=3000)
            jobs.append(await self._can_move(caller, await controller.acquire(caller, taken)))
        for job, room_for, to in ((tenant.job, "78", 12), ("77", f"{tenant.job}-next", 8)):
            asked = AskToMoveRequest(
                partition=f"pbs_{job}", job=job, devices=four_at(to), room_for=f"job {room_for}"
            )
            assert (await controller.ask_to_move(PBS, asked)).state == "ASKED"
        queued = [(f"{tenant.job}-next", tenant.user), ("78", BOB.name)]
        queue = [
            JobInfo(
                id=job, owner=user, asked=f"4 for {user}", needs=f"{user}'s turn", cluster="second"
            )
            for job, user in queued
        ]
        await controller.report_jobs(PBS, JobReport(jobs=queue))
        return {
            "fenced partition": lost,
            "fence": fence.id,
            "host": tenant.host,
            "launch": launch,
            "launch's lease": launched.id,
            "move": move,
            "job": tenant.job,
            "job's partition": f"pbs_{tenant.job}",
            "job's lease": jobs[0].id,
            "job that waits": f"{tenant.job}-next",
        }

    async def _can_move(self, caller: Caller, held: AcquireReply) -> LeaseInfo:
        """Renew a lease as a launch does whose instances can be told to move."""
        claim = LeaseRequest(id=held.lease.id, epoch=held.lease.epoch, move_seconds=30.0)
        reply: LeaseInfo = await self.controller.renew(caller, claim)
        return reply

    @property
    def controller(self) -> Controller:
        return self.world.controller

    async def answer(self, caller: Caller, method: str, request: Value) -> Any:
        """Make a call as the fronts do. Raises what the call raises."""
        admitted, request = self.controller.admitted(caller, request)
        call = getattr(self.controller, METHODS[method].function)
        return self.controller.redacted(admitted, await call(admitted, request))

    async def outcome(self, caller: Caller, method: str, request: Value) -> Any:
        """Return the answer or the refusal, and how long it took."""
        began = asyncio.get_running_loop().time()
        try:
            reply = await self.answer(caller, method, request)
            seen = msgspec.to_builtins(reply, enc_hook=str)
        except PodwrightError as error:
            seen = msgspec.to_builtins(error.to_json(), enc_hook=str)
        return seen, asyncio.get_running_loop().time() - began

    async def virm_outcome(self, caller: Caller, name: str, message: Any) -> Any:
        """Return the same through the vendor's protocol."""

        async def ask(method: Method, request: Value) -> Any:
            return await self.answer(caller, method.name, request)

        try:
            return str(await ANSWERS[name](ask, message))
        except PodwrightError as error:
            return error.to_json()

    async def metrics(self) -> bytes:
        """Return what `/metrics` shows to everybody."""

        observer = self.controller.observer
        await observer.summary.refresh()
        text = metrics_text(_pod_metrics(observer, name_owners=False))
        return b"\n".join(line for line in text.splitlines() if line.startswith(b"podwright_"))

    async def page_of(self, caller: Caller) -> Any:
        """Return all that the page shows a caller."""

        async def ask(method: str) -> Any:
            request = EventsRequest() if method == "ListEvents" else ALL
            return await self.answer(caller, method, request)

        return msgspec.to_builtins(await take(ask, self.world.time.wall), enc_hook=str)

    async def large_page_of(self, caller: Caller) -> Any:
        """Return all that the page would show a caller if this were a large pod."""

        async def describe(_: Caller) -> Any:
            raise AssertionError

        async def listed(_: Any, method: str) -> Any:
            return await self.answer(caller, method, EventsRequest())

        calls = Calls(self.controller, Identity(), describe, clock=self.world.time.wall)
        page = FoldedPod(
            calls, lambda _: caller, listed, lambda _: None, wall_clock=self.world.time.wall
        )
        anybody: Any = None
        overview = await page.overview(anybody)
        seen: list[Any] = [overview]
        seen += [await page.opened(anybody, domain) for domain in sorted(overview["domains"])]
        for topic in TABLE_TOPICS:
            for find in ("", "alice", "adam", "a"):
                after = ""
                while True:
                    query = TableQuery(topic, after=after, find=find, limit=1)
                    part: Any = await page.table(anybody, query)
                    seen.append(part)
                    if not (after := part["next"]):
                        break
        return msgspec.to_builtins(seen, enc_hook=str)

    def recorder(self) -> Recorder:
        """Return what records this world's history, as the server does."""

        async def ask(method: str) -> Any:
            return await self.answer(ROOT, method, ALL)

        history = self.world.store.history()
        counted, now = (lambda: self.controller.changes), self.world.time.wall
        observe = lambda: self.controller.observer  # noqa: E731
        return Recorder(history, ask, observe, counted, lambda: 1, wall_clock=now)

    async def past_of(self, caller: Caller) -> Any:
        """Return the recorded state of this minute as a caller sees it, and the sums."""
        past, minute = Past(self.world.store.history()), int(self.world.time.wall() // 60)
        seen = await past.at(minute, own=None if caller is ROOT else caller.name)
        return seen, await past.series(minute - 1, minute + 1, 1)

    async def go_on(self, moment: int) -> None:
        """Let her launch move, her fence end, and her job stay where it is."""
        if moment == 0:
            (held,) = [
                lease
                for lease in (await self.answer(ROOT, "ListLeases", ALL)).leases
                if lease.id == self.names["launch's lease"]
            ]
            ended = MoveRequest(id=held.id, epoch=held.epoch, move=self.names["move"])
            moving = asyncio.ensure_future(self.controller.move(self.alice, ended))
            await self.world.time.advance(5.0)
            assert moving.done()
        elif moment == 1:
            job = CallOffMoveRequest(partition=f"pbs_{self.tenant.job}", job=self.tenant.job)
            await self.controller.call_off_move(PBS, job)
            claim = LeaseRequest(id=self.names["fence"], epoch=self.fence_epoch, force=True)
            await self.controller.release(ROOT, claim)


async def both_worlds(private: str = "all") -> tuple[TenantWorld, TenantWorld]:
    return await TenantWorld(ALICE).start(private), await TenantWorld(ADAM).start(private)


async def stop(*worlds: TenantWorld) -> None:
    for one in worlds:
        one.controller._state.partitions[one.tenant.other].lock.release()
        await one.world.stop()


fields_of = functools.cache(msgspec.structs.fields)


def texts(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return the paths of all fields of a request that contain a text."""
    for field in fields_of(kind):
        for part in (field.type, *get_args(field.type)):
            if part is str and get_origin(field.type) is not dict:
                yield (*path, field.name)
                break
            if isinstance(part, type) and issubclass(part, Value):
                yield from texts(part, (*path, field.name))
                break


def filled(kind: Any, path: tuple[str, ...], name: str, epoch: int) -> Any:
    """Return a request with a name at a path, and with its other required fields."""
    values: dict[str, Any] = {}
    for field in fields_of(kind):
        of_value = [
            part
            for part in (field.type, *get_args(field.type))
            if isinstance(part, type) and issubclass(part, Value)
        ]
        if path and field.name == path[0]:
            if of_value and len(path) > 1:
                values[field.name] = filled(of_value[0], path[1:], name, epoch)
                if get_origin(field.type) is list:
                    values[field.name] = [values[field.name]]
            else:
                values[field.name] = [name] if get_origin(field.type) is list else name
        elif field.name == "epoch":
            values[field.name] = epoch
        elif field.name == "cluster" and field.required:
            values[field.name] = CLUSTER  # of another one, no allocation would be looked up
        elif field.required:
            values[field.name] = (
                filled(field.type, (), name, epoch) if of_value else _SAMPLES[field.type]
            )
    if kind is PartitionSpec:
        values.setdefault("size", 4)
    return kind(**values)


_SAMPLES: dict[Any, Any] = {
    str: "nothing",
    int: 1,
    float: 1.0,
    list[int]: [1],
    bool: True,
    list[tuple[int, int]]: [(0, 0)],
}


def collides(method: Method, path: tuple[str, ...]) -> bool:
    """Return whether this field names a new object: the row reveals that the name is taken."""
    new = method.name == "CreatePartition" and path == ("spec", "name")
    return new or path == ("create", "spec", "name")


def cases() -> list[tuple[Caller, Method, tuple[str, ...]]]:
    """Yield every call x role x field that can contain a name."""
    found = []
    for name in CALLS:
        method = METHODS[name]
        if name == "Backup" or (
            method.may.user.value == "no" and method.may.scheduler.value == "no"
        ):
            continue  # an administrator's: the role decides, before anything is looked at
        for path in [(), *texts(method.request)]:
            if not collides(method, path):
                found += [(caller, method, path) for caller in ROLES]
    return found


async def differences(one: TenantWorld, two: TenantWorld, most: int) -> list[Any]:
    """Return the differences of every call in every role, for every kind of her objects.

    most: the number of names that are tried for each call, role and field, chosen at random.
    """
    chance, found = random.Random(5), []
    everything = cases()
    chance.shuffle(everything)
    for caller, method, path in everything:
        guesses = [(source, kind) for source in (one, two) for kind in one.names]
        for source, kind in chance.sample(guesses, most if path else 1):
            request = filled(method.request, path, source.names[kind], source.epoch)
            seen = [await world.outcome(caller, method.name, request) for world in (one, two)]
            if seen[0] != seen[1]:
                found.append((caller.name, method.name, path, kind, seen))
    return found


@virtually
async def test_nobody_else_learns_anything_by_any_call() -> None:
    one, two = await both_worlds()
    assert await differences(one, two, 1) == []
    await stop(one, two)


@pytest.mark.soak
@virtually
async def test_nobody_else_learns_anything_by_any_call_and_any_name() -> None:
    one, two = await both_worlds()
    assert await differences(one, two, 2 * len(one.names)) == []
    await stop(one, two)


@virtually
async def test_the_same_walk_sees_what_is_not_private() -> None:
    """Otherwise the test of privacy would prove nothing."""
    one, two = await both_worlds("none")
    for world in (one, two):  # without this, a call about her other partition waits for ever
        world.controller._state.partitions[world.tenant.other].lock.release()
    found = await differences(one, two, 3)
    seen = {method for _, method, *_ in found}
    assert seen >= {"ListPartitions", "ListLeases", "ListWaiters", "ListDevices", "ListAllocations"}
    assert seen >= {"GetPartition", "RemovePartition", "Acquire", "Explain"}
    for world in (one, two):
        await world.world.stop()


@virtually
async def test_nobody_else_learns_anything_by_what_is_listed_or_happens() -> None:
    """Lists are read page by page, with events, metrics and the page, before, during and after her
    changes.
    """
    one, two = await both_worlds()
    lists = [name for name, method in METHODS.items() if method.request is ListRequest]
    for moment in range(3):
        for caller in ROLES:
            for name in lists:
                token = ""
                while True:
                    page = ListRequest(page_size=1, page_token=token)
                    seen = [await world.outcome(caller, name, page) for world in (one, two)]
                    assert seen[0] == seen[1], (moment, caller.name, name)
                    token = seen[0][0].get("next_page_token", "")
                    if not token:
                        break
            seen = [await w.outcome(caller, "ListEvents", EventsRequest()) for w in (one, two)]
            assert seen[0] == seen[1], (moment, caller.name, "events")
            views = [await world.page_of(caller) for world in (one, two)]
            assert views[0] == views[1], (moment, caller.name, "page")
            views = [await world.large_page_of(caller) for world in (one, two)]
            assert views[0] == views[1], (moment, caller.name, "large page")
        assert await one.metrics() == await two.metrics()
        for world in (one, two):
            await world.world.time.advance(20.0)
            await world.go_on(moment)
            if moment == 0:
                away = WaiterName(id=world.names["waiter"])
                await world.controller.leave(world.alice, away)
            if moment == 1:
                gone = RemoveRequest(name=world.tenant.leased, force=True)
                await world.controller.remove_partition(ROOT, gone)
    await stop(one, two)


async def test_nobody_else_learns_anything_from_the_past() -> None:
    one, two = await both_worlds()
    recorders = [world.recorder() for world in (one, two)]
    for recorder in recorders:
        await recorder.record()
    for moment in range(3):
        for caller in ROLES:
            pasts = [await world.past_of(caller) for world in (one, two)]
            assert pasts[0] == pasts[1], (moment, caller.name)
        (topics, sums) = await one.past_of(BOB)
        assert set(topics["topics"]["partitions"]) == {"mine", "pbs_77"}
        assert sums
        for world in (one, two):
            await world.go_on(moment)
            await world.world.time.advance(60.0)
        for recorder in recorders:
            await recorder.record()
        assert await one.past_of(ROOT) != await two.past_of(ROOT)
    await stop(one, two)


@virtually
async def test_nobody_else_learns_anything_by_the_vendors_calls() -> None:
    one, two = await both_worlds()
    messages = {
        "GetPartitionStatus": pb.GetPartitionStatusRequest,
        "GetPartitionIpuofConfig": pb.GetPartitionIpuofConfigRequest,
        "RemovePartition": pb.RemovePartitionRequest,
        "ResetPartition": pb.ResetPartitionRequest,
    }
    for caller in ROLES:
        for source in (one, two):
            for kind in one.names:
                for name, message in messages.items():
                    ask = message(partition_id=source.names[kind])
                    seen = [await world.virm_outcome(caller, name, ask) for world in (one, two)]
                    assert seen[0] == seen[1], (caller.name, name, kind)
        for name, empty in (
            ("ListPartitions", pb.ListPartitionsRequest()),
            ("ListIPUAttributes", pb.ListIPUAttributesRequest()),
        ):
            seen = [await world.virm_outcome(caller, name, empty) for world in (one, two)]
            assert seen[0] == seen[1], (caller.name, name)
    await stop(one, two)


@virtually
async def test_nobody_else_starts_sooner_or_later_for_an_end_that_she_told() -> None:
    """Devices kept for a waiter are lent to jobs that end in time, but her times do not count for
    others.
    """
    one, two = await both_worlds()
    for moment in range(3):
        for duration in (5.0, 100.0, 1000.0, 50_000.0, 200_000.0):
            spec = PartitionSpec(name="short", size=4, allocation="open")
            made = CreateRequest(spec=spec, duration=duration)
            seen = [await world.outcome(BOB, "CreatePartition", made) for world in (one, two)]
            assert seen[0] == seen[1], (moment, duration)
            gone = RemoveRequest(name="short")
            for world in (one, two):
                await world.outcome(BOB, "RemovePartition", gone)
            seen = [await world.outcome(BOB, "ListWaiters", ALL) for world in (one, two)]
            assert seen[0] == seen[1], (moment, duration)
        for world in (one, two):
            if moment == 0:  # hers alone stands in the way of her own next one
                force = RemoveRequest(name="mine", force=True)
                await world.controller.remove_partition(ROOT, force)
            await world.world.time.advance(10.0)
    await stop(one, two)


# -- leaks that were seen ------------------------------------------------------------------------


def words(seen: Any) -> str:
    return msgspec.json.encode(seen).decode()


@virtually
async def test_a_missing_partition_names_none_of_hers() -> None:
    world = await TenantWorld(ALICE).start()
    for method, request in (
        ("GetPartition", PartitionName(name="nonesuch")),
        ("ResetPartition", ResetRequest(name="nonesuch")),
        ("RemovePartition", RemoveRequest(name="nonesuch")),
    ):
        seen = words(await world.outcome(BOB, method, request))
        assert "there are: mine" in seen
        assert "zebra" not in seen
    await stop(world)


@virtually
async def test_a_refusal_names_none_of_those_who_wait() -> None:
    world = await TenantWorld(ALICE).start()
    await world.controller.leave(BOB, WaiterName(id=(await _own_waiter(world))))
    big = CreateRequest(spec=PartitionSpec(name="big", size=8, allocation="open"))
    seen = words(await world.outcome(BOB, "CreatePartition", big))
    assert "kept for another who waits" in seen
    assert world.names["waiter"] not in seen
    await stop(world)


async def _own_waiter(world: TenantWorld) -> str:
    found: str = (await world.answer(BOB, "ListWaiters", ALL)).waiters[0].id
    return found


@virtually
async def test_a_waiter_of_hers_cannot_be_explained() -> None:
    world = await TenantWorld(ALICE).start()
    guess = ExplainRequest(name=world.names["waiter"])
    refused = (await world.outcome(BOB, "Explain", guess))[0]
    nobody = (await world.outcome(BOB, "Explain", ExplainRequest(name="w1234")))[0]
    assert words(refused).replace(world.names["waiter"], "w1234") == words(nobody)
    await stop(world)


@pytest.mark.parametrize("method", ["Renew", "Release", "Move", "Leave", "Wait"])
@virtually
async def test_a_guessed_id_belongs_to_nobody(method: str) -> None:
    world = await TenantWorld(ALICE).start()
    kind = "waiter" if method in ("Leave", "Wait") else "lease"
    request = filled(METHODS[method].request, ("id",), world.names[kind], world.epoch)
    seen = words((await world.outcome(BOB, method, request))[0])
    assert "alice" not in seen
    await stop(world)


@pytest.mark.parametrize("method", ["AskToMove", "CallOffMove"])
@virtually
async def test_a_scheduler_learns_of_no_partition_that_it_did_not_make(method: str) -> None:
    world = await TenantWorld(ALICE).start()
    request = filled(METHODS[method].request, ("partition",), "zebra1", 0)
    seen = words((await world.outcome(SCHEDULER, method, request))[0])
    assert "there is no partition zebra1" in seen
    assert "alice" not in seen
    await stop(world)


@virtually
async def test_the_token_of_a_page_names_nothing_of_hers() -> None:
    world = await TenantWorld(ADAM).start()
    page = await world.answer(BOB, "ListPartitions", ListRequest(page_size=1))
    assert [info.name for info in page.partitions] == ["mine"]
    rest = ListRequest(page_size=1, page_token=page.next_page_token)
    page = await world.answer(BOB, "ListPartitions", rest)
    assert [info.name for info in page.partitions] == ["pbs_77"]
    assert page.next_page_token == ""
    await stop(world)


@virtually
async def test_a_name_that_is_taken_is_all_that_a_new_one_learns() -> None:
    """Two partitions cannot have the same name. The rows of the calls that create partitions say
    so.
    """
    world = await TenantWorld(ALICE).start()
    spec = PartitionSpec(name="zebra1", size=1, allocation="open")
    for method, request in (
        ("CreatePartition", CreateRequest(spec=spec)),
        ("Acquire", AcquireRequest(spec=spec, create=True)),
    ):
        seen = words((await world.outcome(BOB, method, request))[0])
        assert "there is a partition zebra1 already" in seen
        assert "alice" not in seen
        assert "name" in METHODS[method].reveals
    await stop(world)


@virtually
async def test_her_lease_renewed_by_herself_and_all_seen_by_an_administrator() -> None:
    """Data that is hidden from others works for its owner and for administrators."""
    world = await TenantWorld(ALICE).start()
    claim = LeaseRequest(id=world.names["lease"], epoch=world.epoch)
    assert (await world.answer(world.alice, "Renew", claim)).owner == "alice"
    listed = (await world.answer(ROOT, "ListPartitions", ALL)).partitions
    hers = ["zebra1", "zebra1-launch", "zebra2", "zebra2-lost"]
    assert [info.name for info in listed] == ["mine", "pbs_41", "pbs_77", *hers]
    seen = words(await world.outcome(ROOT, "GetPartition", PartitionName(name="nonesuch")))
    assert "there are: mine, pbs_41, pbs_77, zebra1" in seen
    await stop(world)


def test_the_documentation_lists_what_every_call_reveals() -> None:
    page = (Path(__file__).parents[2] / "docs/security.md").read_text()
    assert reveals_table() in page
