"""The audit names the caller of each change in the commit that makes the change.

Its chains reveal later alterations, and its numbers tell a user nothing about other users.
"""

from __future__ import annotations

import msgspec
import pytest

from podwright.controller.administration._audit import CHAIN_NAMES, EVENT_KIND, INTENT_KIND, Audit
from podwright.controller.administration._audit_chain import (
    ANCHOR_KIND,
    ChainReport,
    Head,
    new_generations,
    read_head,
    verify_chains,
)
from podwright.controller.state._journal import Journal
from podwright.errors import Denied, InvalidRequest, NotFound, PodwrightError
from podwright.store import MemoryStore
from podwright.wire import (
    AuditRequest,
    CreateRequest,
    EventInfo,
    EventList,
    EventsRequest,
    PartitionSpec,
    QuotaInfo,
    RemoveRequest,
    WaitRequest,
)
from tests.controller.world import ALICE, BOB, ROOT, World, virtually

Records = dict[tuple[str, str], bytes]


async def events(world: World) -> list[EventInfo]:
    found: EventList = await world.controller.list_events(ROOT, EventsRequest())
    return found.events


def reports(world: World, *heads: Head) -> list[ChainReport]:
    return verify_chains(world.store._disk.records, (EVENT_KIND, INTENT_KIND), heads)


def problems(world: World, *heads: Head) -> list[str]:
    return [problem for report in reports(world, *heads) for problem in report.problems]


@virtually
async def test_the_audit_has_a_call_whose_server_was_killed_right_after_its_answer() -> None:
    world = World()
    await world.start()
    await world.create("p1", caller=ALICE)
    await world.restart()
    (event,) = [e for e in await events(world) if e.about == "p1"]
    assert (event.who, event.what, event.outcome) == ("alice", "CreatePartition", "RECOVERED")
    await world.stop()


@virtually
async def test_what_the_queue_grants_stands_in_the_audit() -> None:
    """The entry names the waiter, at once and after a wait, and also after a kill right behind the
    grant.
    """
    world = World()
    await world.start()
    create = CreateRequest(spec=PartitionSpec(name="p1", size=16))
    await world.controller.wait(ALICE, WaitRequest(create=create, timeout=60.0))
    second = CreateRequest(spec=PartitionSpec(name="p2", size=16))
    await world.controller.wait(BOB, WaitRequest(create=second))
    await world.remove("p1")
    await world.time.advance(1.0)
    await world.restart()
    found = [(e.who, e.about) for e in await events(world) if e.what == "CreatePartition"]
    assert found == [("alice", "p1"), ("bob", "p2")]
    await world.stop()


@virtually
async def test_a_refusal_leaves_no_intent() -> None:
    world = World()
    await world.start()
    with pytest.raises(NotFound):
        await world.remove("nonesuch", caller=ALICE)
    await world.stop()
    kinds = [kind for kind, _ in world.store._disk.records]
    assert (kinds.count(EVENT_KIND), kinds.count(INTENT_KIND)) == (1, 0)


async def _script(world: World) -> None:
    """Make calls of all kinds: done at once, done in two steps, granted by the queue, refused."""
    control = world.controller
    await world.create("p1", 4, caller=ALICE)
    held = await world.acquire("p1", 4, caller=ALICE)
    await world.acquire("x1", 2, caller=BOB, create=True)
    await control.set_quota(ROOT, QuotaInfo(user="alice", devices=12))
    create = CreateRequest(spec=PartitionSpec(name="p2", size=4))
    await control.wait(BOB, WaitRequest(create=create, timeout=60.0))
    with pytest.raises(PodwrightError):
        await world.create("p1", 4, caller=BOB)
    await world.release(held)
    await control.remove_partition(ALICE, RemoveRequest(name="p1"))


async def _whole(world: World) -> None:
    """Check that every object has an entry with its caller, and that the chains are unaltered."""
    assert problems(world) == []
    asked = {(e.about, e.who) for e in await events(world)}
    for entry in world.controller._state.partitions.values():
        assert (entry.name, entry.known.owner) in asked
        for lease in entry.leases.values():
            assert (entry.name, lease.record.owner) in asked
    for user, _ in world.controller._state.quotas:
        assert (user, "root") in asked
    records = world.store._disk.records
    whose = [msgspec.json.decode(body)["about"] for (kind, _), body in records.items()
             if kind == INTENT_KIND]  # fmt: skip
    for name in ("p1", "x1", "p2"):
        if ("partition", name) in records:
            assert name in whose


@pytest.mark.parametrize("after", [False, True])
@virtually
async def test_killed_at_every_commit(after: bool) -> None:
    """The server is killed before or after each outward act, and every created object has its
    entry.
    """
    at = 0
    while True:
        at += 1
        world = World()
        await world.start()
        world.trigger.at, world.trigger.after = world.trigger.count + at, after
        ended = await world.until_killed(lambda world=world: _script(world))  # type: ignore[misc]
        if ended:
            await world.restart()
        else:
            await world.start()
        await _whole(world)
        await world.stop()
        assert problems(world) == []
        if ended:
            break
    assert at > 10


# -- chains ----------------------------------------------------------------------------------


async def _busy() -> World:
    world = World()
    await world.start()
    for name in ("p1", "p2"):
        await world.create(name, 2, caller=ALICE)
        with pytest.raises(PodwrightError):
            await world.create(name, 2, caller=ALICE)
    await world.stop()
    return world


@virtually
async def test_what_is_done_to_an_entry_shows() -> None:
    world = await _busy()
    records = world.store._disk.records
    whole = dict(records)
    heads = [report.head for report in reports(world)]
    assert problems(world, *heads) == []
    entries = sorted(place for place in records if place[0] in (EVENT_KIND, INTENT_KIND))
    for place in entries:
        records.update(whole)
        records[place] = records[place].replace(b"alice", b"mallo")
        assert any("is not as it was written" in problem for problem in problems(world))
        records.update(whole)
        del records[place]
        assert problems(world, *heads), place
    records.clear()
    records.update(whole)
    first, second = [place for place in entries if place[0] == INTENT_KIND]
    records[first], records[second] = records[second], records[first]
    records[first], records[second] = whole[first], whole[first]
    assert problems(world)


@virtually
async def test_an_end_that_is_cut_off_shows_by_a_head() -> None:
    world = await _busy()
    records = world.store._disk.records
    head = next(r.head for r in reports(world) if r.head.chain == "change")
    assert read_head(str(head)) == head
    ours = [place for place, body in records.items() if b'"chain":"change"' in body]
    del records[max(ours, key=lambda place: place[1])]
    assert any(f"before the head {head}" in problem for problem in problems(world, head))
    other = head._replace(position=1, digest="0" * 64)
    assert any("is another than that of the head" in problem for problem in problems(world, other))
    with pytest.raises(InvalidRequest, match="is not the head of an audit chain"):
        read_head("change:1")


@virtually
async def test_pruning_leaves_an_anchor_in_its_commit() -> None:
    store = MemoryStore()
    await store.open()
    audit = Audit(Journal(store), store.now, event_limit=3)
    seen: list[Records] = []
    for number in range(9):
        audit.record_event(ALICE, "SetQuota", f"u{number}")
        audit.record_event(BOB, "SetQuota", "u", error=NotFound("there is none"))
        await audit._journal.flush()
        seen.append(dict(store._disk.records))
    for records in seen:
        found = verify_chains(records, (EVENT_KIND, INTENT_KIND))
        assert [report.problems for report in found] == [(), ()]
    assert {kind for kind, _ in seen[-1]} == {EVENT_KIND, ANCHOR_KIND}
    assert [report.entries for report in found] == [3, 3]
    again = Audit(Journal(store), store.now, event_limit=3)
    again.load(store._disk.records)
    again.record_event(ALICE, "SetQuota", "after a restart")
    await again._journal.flush()
    assert [r.problems for r in verify_chains(store._disk.records, (EVENT_KIND, INTENT_KIND))] == [
        (),
        (),
    ]
    assert [head.position for head in again.heads] == [10, 9]


@virtually
async def test_a_restore_begins_new_chains() -> None:
    world = await _busy()
    records = world.store._disk.records
    for anchor in new_generations(records, CHAIN_NAMES, "f" * 64, "restored from pod.backup"):
        records[anchor.put.kind, anchor.put.key] = anchor.put.body
    await world.start()
    await world.create("p3", 2, caller=ALICE)
    await world.stop()
    assert problems(world) == []
    found = {(r.head.chain, r.head.generation): r for r in reports(world)}
    assert found["change", 2].anchor == "restored from pod.backup"
    assert found["change", 1].entries == found["change", 2].entries * 2


@virtually
async def test_others_learn_nothing_from_numbers() -> None:
    """Bob's events have the same numbers with and without Alice's calls between them."""
    seen = []
    for busy in (False, True):
        world = World()
        await world.start()
        for number in range(3):
            if busy:
                await world.create(f"a{number}", 1, caller=ALICE)
            await world.time.advance(1.0)
            await world.create(f"b{number}", 1, caller=BOB)
            await world.time.advance(1.0)
        found = await world.controller.list_events(BOB, EventsRequest())
        late = await world.controller.list_events(BOB, EventsRequest(since=found.last))
        seen.append(([e.number for e in found.events], found.last, late.last))
        await world.stop()
    assert seen[0] == seen[1]


async def test_the_call_verifies_for_administrators_alone() -> None:
    world = World()
    await world.start()
    await world.create("p1", 2, caller=ALICE)
    await world.controller._state.journal.flush()
    report = await world.controller.verify_audit(ROOT, AuditRequest())
    (chain,) = report.chains
    assert (chain.entries, chain.problems) == (2, [])
    (head,) = world.controller._services.audit.heads
    assert chain.head == str(head)
    other = str(head._replace(digest="0" * 64))
    report = await world.controller.verify_audit(ROOT, AuditRequest(heads=[other]))
    assert "is another than that of the head" in report.chains[0].problems[0]
    with pytest.raises(Denied):
        await world.controller.verify_audit(ALICE, AuditRequest())
    await world.stop()


@virtually
async def test_the_heads_go_to_the_log_each_hour(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await world.start()
    caplog.set_level("INFO", "podwright.events")
    await world.create("p1", 2, caller=ALICE)
    await world.time.advance(3660.0)
    lines = [line for line in caplog.messages if line.startswith("audit heads: ")]
    assert 1 <= len(lines) <= 2
    assert str(read_head(lines[-1].split()[2])) == lines[-1].split()[2]
    await world.stop()


@virtually
async def test_a_start_with_a_wrong_clock_stamps_nothing_after_it_is_corrected() -> None:
    """Stamps follow the wall clock. Order and leases follow the store's clock, which never runs
    back.
    """
    world = World()
    world.time.wall_error = 2 * 86400.0
    await world.start()
    await world.create("p1", 2, caller=ALICE)
    world.time.wall_error = 0.0
    await world.restart()
    made = await world.create("p2", 2, caller=ALICE)
    assert made.created_at == pytest.approx(world.time.wall(), abs=5.0)
    (event,) = [e for e in await events(world) if e.about == "p2"]
    assert event.at == pytest.approx(world.time.wall(), abs=5.0)
    assert world.controller._state.now() >= world.time.wall() + 2 * 86400.0 - 5.0
    numbers = [e.number for e in await events(world)]
    assert numbers == sorted(numbers)
    await world.stop()


@virtually
async def test_the_newest_events_are_those_that_the_caller_may_see() -> None:
    world = World()
    await world.start()
    for number in range(6):
        owner = BOB if number % 2 else ALICE
        await world.create(f"p{number}", 1, caller=owner)
    newest = world.controller.observer.newest_events
    seen = await events(world)
    assert newest(ROOT, 3).events == seen[-3:]
    assert newest(ROOT, 3).last == seen[-1].number
    assert [event.about for event in newest(BOB, 2).events] == ["p3", "p5"]
    assert len(newest(ROOT, 1000).events) == len(seen)
    await world.stop()
