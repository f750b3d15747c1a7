"""Quotas, events and drained machines."""

from __future__ import annotations

import asyncio
import logging

import pytest

from podwright.controller.administration._audit import Audit
from podwright.controller.state._journal import Journal
from podwright.errors import Denied, InvalidRequest, NoCapacity, NotFound
from podwright.store import MemoryStore, Put
from podwright.wire import (
    CreateRequest,
    DrainInfo,
    DrainRequest,
    EventInfo,
    EventsRequest,
    MachineName,
    PartitionSpec,
    QuotaInfo,
    WaiterName,
    WaitRequest,
)
from tests.controller.test_partitions import complete
from tests.controller.world import ALICE, ALL, BOB, NOBODY, ROOT, World


async def test_a_users_quota_in_devices_and_partitions(world: World) -> None:
    await world.controller.set_quota(ROOT, QuotaInfo(user="alice", devices=6, partitions=2))
    await world.create("a1", 4, caller=ALICE)
    with pytest.raises(NoCapacity, match="may have 6 devices, and has 4") as caught:
        await world.create("a2", 4, caller=ALICE)
    complete(caught.value)
    assert caught.value.data["quota"] == "devices"
    await world.create("a2", 1, caller=ALICE)
    with pytest.raises(NoCapacity, match="may have 2 partitions"):
        await world.create("a3", 1, caller=ALICE)
    await world.create("b1", 8, caller=BOB)
    with pytest.raises(NoCapacity):
        await world.acquire("a1", 8, caller=ALICE, update=True)
    shown = (await world.controller.list_quotas(ALICE, ALL)).quotas
    assert [(q.used_devices, q.used_partitions) for q in shown] == [(5, 2)]
    assert (await world.controller.list_quotas(BOB, ALL)).quotas == []
    await world.restart()
    with pytest.raises(NoCapacity):
        await world.create("a3", 1, caller=ALICE)
    await world.controller.set_quota(ROOT, QuotaInfo(user="alice"))
    await world.create("a3", 1, caller=ALICE)


async def test_an_allocations_quota_binds_everybody_in_it(world: World) -> None:
    await world.controller.set_quota(ROOT, QuotaInfo(allocation="pod16", devices=8))
    await world.controller.set_quota(
        ROOT, QuotaInfo(user="alice", allocation="pod16", partitions=1)
    )
    await world.create("a1", 4, caller=ALICE)
    with pytest.raises(NoCapacity, match="user alice in allocation pod16"):
        await world.create("a2", 1, caller=ALICE)
    await world.create("b1", 4, caller=BOB)
    with pytest.raises(NoCapacity, match="allocation pod16 may have 8 devices"):
        await world.create("b2", 1, caller=BOB)


async def test_quotas_are_an_administrators(world: World) -> None:
    with pytest.raises(Denied):
        await world.controller.set_quota(ALICE, QuotaInfo(user="alice", devices=100))
    for wrong in (QuotaInfo(devices=1), QuotaInfo(user="alice", devices=-2)):
        with pytest.raises(InvalidRequest):
            await world.controller.set_quota(ROOT, wrong)
    with pytest.raises(NotFound):
        await world.controller.set_quota(ROOT, QuotaInfo(allocation="nope", devices=1))


async def test_who_is_over_quota_waits_and_nothing_is_kept_for_him(world: World) -> None:
    await world.controller.set_quota(ROOT, QuotaInfo(user="alice", devices=4))
    await world.create("a1", 4, caller=ALICE)
    wanted = CreateRequest(spec=PartitionSpec(name="a2", size=4))
    waiter = (await world.controller.wait(ALICE, WaitRequest(create=wanted))).waiter
    await asyncio.sleep(0)
    assert world.controller._state.reservations == {}
    await world.create("b1", 4, caller=BOB)
    await world.remove("a1", caller=ALICE)
    request = WaitRequest(id=waiter.id, timeout=5)
    assert (await world.controller.wait(ALICE, request)).waiter.state == "DONE"


async def events(world: World, since: int = 0) -> list[EventInfo]:
    reply: list[EventInfo] = (
        await world.controller.list_events(ROOT, EventsRequest(since=since))
    ).events
    return reply


async def test_who_did_what_and_how_it_ended(world: World) -> None:
    await world.create("p1", 4, caller=ALICE)
    with pytest.raises(Denied) as refused:
        await world.remove("p1", caller=BOB)
    reply = await world.acquire("p1", 4, caller=ALICE, ttl=2)
    await world.time.advance(5)
    await world.remove("p1", caller=ROOT)
    found = await events(world)
    assert [(e.who, e.origin, e.what, e.about, e.outcome) for e in found] == [
        ("alice", "unix", "CreatePartition", "p1", "OK"),
        ("bob", "unix", "RemovePartition", "p1", "PERMISSION_DENIED"),
        ("alice", "unix", "Acquire", "p1", "OK"),
        ("server", "server", "LeaseEnd", "p1", "OK"),
        ("root", "unix", "RemovePartition", "p1", "OK"),
    ]
    numbers = [e.number for e in found]
    assert numbers == sorted(set(numbers))
    assert reply.lease.id in found[2].detail
    assert found[1].detail == refused.value.message, "what the command said"
    assert {e.owner for e in found} == {"alice"}
    later = await events(world, since=numbers[2])
    assert [e.number for e in later] == numbers[3:]
    own = await world.controller.list_events(BOB, EventsRequest())
    assert [e.what for e in own.events] == ["RemovePartition"], "others' affairs are their own"
    assert own.last == own.events[-1].number
    await world.controller._state.journal.flush()
    await world.restart()
    assert await events(world) == found


async def test_who_took_whose_request_out_of_the_line(world: World) -> None:
    await world.create("b1", 16, caller=BOB)
    wanted = CreateRequest(spec=PartitionSpec(name="a1", size=16))
    waiter = (await world.controller.wait(ALICE, WaitRequest(create=wanted))).waiter
    with pytest.raises(Denied):
        await world.controller.leave(BOB, WaiterName(id=waiter.id))
    await world.controller.leave(ROOT, WaiterName(id=waiter.id))
    _, refused, done = await events(world)
    assert (refused.who, refused.what, refused.outcome) == ("bob", "Leave", "PERMISSION_DENIED")
    assert (done.who, done.what, done.about, done.outcome) == ("root", "Leave", waiter.id, "OK")
    own = await world.controller.list_events(ALICE, EventsRequest())
    assert own.events == [refused, done], "it was alice's"


async def test_a_follower_hears_at_once(world: World) -> None:
    request = EventsRequest(timeout=50)
    following = asyncio.ensure_future(world.controller.list_events(ALICE, request))
    await asyncio.sleep(0)
    await world.create("b1", 4, caller=BOB)
    assert not following.done()
    await world.create("a1", 4, caller=ALICE)
    assert [e.about for e in (await following).events] == ["a1"]


async def test_events_are_bounded_by_count_and_age() -> None:
    store, now = MemoryStore(), 0.0
    await store.open()
    audit = Audit(Journal(store), lambda: now, event_limit=10, keep_seconds=100.0)
    for n in range(25):
        audit.record_event(ALICE, "Test", f"p{n}")
    kept = (await audit.list(ROOT, EventsRequest())).events
    assert [e.about for e in kept] == [f"p{n}" for n in range(15, 25)]
    now = 1000.0
    audit.record_event(ALICE, "Test", "last")
    assert [e.about for e in (await audit.list(ROOT, EventsRequest())).events] == ["last"]
    page = await audit.list(ROOT, EventsRequest(since=3, limit=1))
    assert [e.about for e in page.events] == ["last"]
    await audit._journal.flush()
    kinds = sorted(kind for kind, _ in (await store.read()).records)
    assert kinds == ["audit-anchor", "event"]


async def test_refusals_push_no_change_out() -> None:
    """Regression: 10,500 refused anonymous calls displaced all records of changes."""
    store = MemoryStore()
    await store.open()
    audit = Audit(Journal(store), lambda: 0.0, event_limit=10)
    audit.record_event(ALICE, "CreatePartition", "p1")
    for n in range(1050):
        audit.record_event(NOBODY, "RemovePartition", "p1", error=Denied("no"))
        audit.record_event(NOBODY, "CreatePartition", f"a{n}")
        audit.record_event(BOB, "RemovePartition", "p1", error=Denied("no"))
    await audit._journal.flush()
    again = Audit(Journal(store), lambda: 0.0, event_limit=10)
    again.load((await store.read()).records)
    for one in (audit, again):
        kept = (await one.list(ROOT, EventsRequest())).events
        assert (kept[0].who, kept[0].about) == ("alice", "p1")
        assert len(kept) == 1 + 10 + 10
        assert [e.number for e in kept] == sorted(e.number for e in kept)
        assert (await one.list(ROOT, EventsRequest(since=kept[-3].number))).events == kept[-2:]
        assert (await one.list(ROOT, EventsRequest(since=1, limit=1))).events == [kept[1]]


async def test_what_an_operator_wants_to_know_is_a_log_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: three killed agents, partitions in ERROR and a relocation gave no log line."""
    caplog.set_level(logging.INFO, "podwright.events")
    made = await world.create("p1", 4, relocatable=True, auto_reset=False)
    machine = made.gcds[0][0].machine
    world.machines[machine].set_down(True)
    assert (await world.reset("p1")).ready_state.value == "ERROR"
    await world.time.advance(10)
    world.machines[machine].set_down(False)
    await world.time.advance(30)
    said = [r.getMessage() for r in caplog.records if r.name == "podwright.events"]
    down, error, moved, up = (
        next(i for i, line in enumerate(said) if words in line)
        for words in (
            f"machine {machine} is out of service",
            "partition p1 of root is in error: machine",
            "partition p1 of root moved to other devices",
            f"machine {machine} serves again",
        )
    )
    assert max(down, error) < min(moved, up)
    levels = {r.getMessage(): r.levelname for r in caplog.records}
    assert (levels[said[down]], levels[said[up]]) == ("WARNING", "INFO")


async def test_a_drained_machine_takes_nothing_new(world: World) -> None:
    await world.create("p1", 4)
    for machine in ("ag1", "ag2"):
        await world.controller.drain_machine(ROOT, DrainRequest(name=machine))
    assert (await world.get("p1")).ready_state.value == "ACTIVE", "what is there stays"
    await world.create("p2", 8)
    with pytest.raises(NoCapacity, match="drained: ag1, ag2"):
        await world.create("p3", 1)
    states = {
        d.device.machine: d.state for d in (await world.controller.list_devices(ROOT, ALL)).devices
    }
    assert (states["ag2"], states["ag3"]) == ("DRAINED", "IN_USE")
    await world.restart()
    with pytest.raises(NoCapacity):
        await world.create("p3", 1)
    await world.controller.resume_machine(ROOT, MachineName(name="ag2"))
    await world.create("p3", 4)
    with pytest.raises(NotFound):
        await world.controller.drain_machine(ROOT, DrainRequest(name="nope"))
    with pytest.raises(Denied):
        await world.controller.drain_machine(ALICE, DrainRequest(name="ag1"))


async def test_the_reason_of_a_drain_is_shown_with_each_thing_that_is_drained(
    world: World,
) -> None:
    await world.create("p1", 4)
    await world.controller.drain_machine(ROOT, DrainRequest(name="ag1", reason="fan 3 is loud"))
    drained_at = world.time.wall()
    await world.time.advance(60)
    await world.controller.drain_machine(ROOT, DrainRequest(name="ag1"))
    await world.restart()
    (cluster,) = (await world.controller.list_clusters(ROOT, ALL)).clusters
    (drain,) = cluster.drains
    assert (drain.machine, drain.reason, drain.who) == ("ag1", "fan 3 is loud", "root")
    assert drain.at == pytest.approx(drained_at), "a second drain is the first one"
    devices = (await world.controller.list_devices(ROOT, ALL)).devices
    reasons = {d.device.machine: d.attributes.get("drained") for d in devices}
    assert reasons == {"ag1": "fan 3 is loud", "ag2": None, "ag3": None, "ag4": None}
    await world.controller.drain_machine(ROOT, DrainRequest(name="ag1", reason="its PSU, too"))
    (cluster,) = (await world.controller.list_clusters(ROOT, ALL)).clusters
    assert (cluster.drains[0].reason, cluster.drains[0].at) == ("its PSU, too", drain.at)
    for reason in ("x" * 201, "two\nlines"):
        with pytest.raises(InvalidRequest, match="too long or not printable"):
            await world.controller.drain_machine(ROOT, DrainRequest(name="ag1", reason=reason))
    await world.controller.resume_machine(ROOT, MachineName(name="ag1"))
    (cluster,) = (await world.controller.list_clusters(ROOT, ALL)).clusters
    assert (cluster.drains, cluster.drained) == ([], [])


async def test_a_drain_of_an_older_build_has_no_reason(world: World) -> None:
    await world.controller.drain_machine(ROOT, DrainRequest(name="ag1"))
    await world.store.commit([Put("drain", "ag1", b"{}")])
    await world.restart()
    (cluster,) = (await world.controller.list_clusters(ROOT, ALL)).clusters
    assert cluster.drains == [DrainInfo(machine="ag1")]


async def test_events_after_a_number_that_never_was(world: World) -> None:
    await world.create("p1", 4)
    for since in (2**63, 2**64 - 1):
        found = await world.controller.list_events(ROOT, EventsRequest(since=since))
        assert found.events == []
