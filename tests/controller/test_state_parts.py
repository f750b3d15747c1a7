"""The parts of the controller's state, each alone: epochs, leases, partitions, fences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast
from unittest import mock

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from podwright.controller.state._change_feed import ChangeFeed
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._device_epochs import EPOCH_SHIFT, DeviceEpochs
from podwright.controller.state._fence_index import FenceIndex
from podwright.controller.state._leases import HeldLease, LeaseIndex
from podwright.controller.state._partition_index import PartitionEntry, PartitionIndex
from podwright.controller.state._records import FenceRecord, LeaseRecord, PartitionRecord
from podwright.controller.state._sorted_names import SortedNames
from podwright.placement import Block
from podwright.wire import GatewayRouting, OperationState, ReadyState, Routing, SyncType

# -- epochs ----------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.integers(1, 1000).map(lambda count: ("give", count)),
            st.integers(0, 2**40).map(lambda above: ("meet", above)),
            st.sampled_from((("write", 0), ("restart", 0))),
        ),
        max_size=30,
    )
)
@example([("meet", 2**40), ("give", 5), ("restart", 0)])
def test_an_epoch_is_higher_than_all_that_any_device_has_seen(
    steps: list[tuple[str, int]],
) -> None:
    """Devices come that served another store, and the server starts again, before or after what
    they brought was written down. Other devices get epochs while it is being written. If it was
    not written, the new devices were not taken over.
    """
    server_epoch, floor, highest = 1, 0, 0
    written: int | None = None  # the floor of a commit that is under way
    epochs = DeviceEpochs()
    epochs.begin(server_epoch)
    for what, number in steps:
        if what == "give":
            for _ in range(number):
                last, highest = highest, epochs.next()
                assert highest > last
        elif what == "meet" and written is None:
            seen = max(0, highest - 2**39 + number)
            if epochs.exceeded_by(seen):
                written = seen
            else:
                assert seen < epochs.next()
        elif what == "write" and written is not None:
            floor, highest = written, max(highest, written)
            epochs.raise_floor(written)
            written = None
        elif what == "restart":
            server_epoch, written = server_epoch + 1, None
            epochs = DeviceEpochs()
            epochs.floor = floor
            epochs.begin(server_epoch)
    assert epochs.next() > highest


def test_the_counter_of_each_start_begins_anew() -> None:
    epochs = DeviceEpochs()
    epochs.begin(3)
    assert [epochs.next(), epochs.next()] == [(3 << EPOCH_SHIFT) + 1, (3 << EPOCH_SHIFT) + 2]
    assert not epochs.exceeded_by((3 << EPOCH_SHIFT) + 1)
    assert epochs.exceeded_by(7 << EPOCH_SHIFT)
    epochs.raise_floor(7 << EPOCH_SHIFT)
    assert epochs.next() == (7 << EPOCH_SHIFT) + (3 << EPOCH_SHIFT) + 3


# -- leases ----------------------------------------------------------------------------------


def lease_record(name: str, **more: Any) -> LeaseRecord:
    return LeaseRecord(
        id=name, partition="p", epoch=1, owner="ada", first=0, count=4, ttl=9.0, **more
    )


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "renew", "release", "wait"]), st.integers(0, 20)),
        max_size=200,
    )
)
def test_every_lease_is_due_when_it_ends_and_not_before(steps: list[tuple[str, int]]) -> None:
    leases, now = LeaseIndex(), 0.0
    ends: dict[str, float] = {}
    for number, (what, seconds) in enumerate(steps):
        names = sorted(ends)
        if what == "add":
            lease = HeldLease(lease_record(f"l{number}"), now + seconds + 1)
            leases.add(lease)
            ends[f"l{number}"] = lease.expires
            assert leases.watched <= 2 * len(leases) + LeaseIndex.STALE_ALLOWANCE + 1
        elif what == "renew" and names:
            name = names[seconds % len(names)]
            leases[name].expires = ends[name] = max(ends[name], now + seconds + 1)
        elif what == "release" and names:
            leases.remove(names[seconds % len(names)])
            del ends[names[seconds % len(names)]]
        elif what == "wait":
            now += seconds
            due = {lease.record.id for lease in leases.due(now)}
            assert due == {name for name, end in ends.items() if end <= now}
            assert leases.due(now) == []  # each is returned once
            for name in due:
                leases.remove(name)
                del ends[name]
    assert set(leases) == set(ends)


def test_a_lease_that_was_renewed_while_it_ended_is_watched_again() -> None:
    leases = LeaseIndex()
    lease = HeldLease(lease_record("l1"), 5.0)
    leases.add(lease)
    assert leases.due(4.9) == []
    assert leases.due(5.0) == [lease]
    lease.expires = 14.0
    assert leases.due(20.0) == []  # nobody watches it: whoever ends it decides
    leases.watch(lease)
    assert leases.due(13.0) == []
    assert leases.due(14.0) == [lease]
    leases.watch(lease)
    lease.ending = True
    assert leases.due(20.0) == []


# -- partitions ------------------------------------------------------------------------------


class FourDeviceMachines:
    """A cluster of which only the machines of blocks count: a machine has four devices."""

    def __init__(self) -> None:
        self.touched: set[int] = set()

    def parts(self, blocks: Sequence[Block]) -> dict[str, list[int]]:
        return {
            f"m{block.offset // 4}": [block.offset % 4 + i for i in range(block.size)]
            for block in blocks
        }


def entry_of(name: str) -> PartitionEntry:
    return PartitionEntry(name, cast(IndexedCluster, FourDeviceMachines()))


def record(name: str, *blocks: Block, ready: ReadyState = ReadyState.ACTIVE) -> PartitionRecord:
    return PartitionRecord(
        name=name,
        cluster="pod",
        allocation="pod",
        size=4,
        num_gcds=1,
        num_replicas=4,
        num_ilds=1,
        routing=Routing.DNC,
        gw_routing=GatewayRouting.DEFAULT,
        sync_type=SyncType.DEFAULT,
        blocks=blocks,
        gcds=blocks,
        ready=ready,
        operation=OperationState.IDLE,
        owner="ada",
        creator="",
        epoch=1,
        created_at=0.0,
    )


def test_what_follows_from_a_record_follows_at_once() -> None:
    partitions = PartitionIndex()
    entry = entry_of("a")
    partitions.add(entry)
    assert (partitions["a"], list(partitions.records()), partitions.on("m0")) == (entry, [], [])
    partitions.set_record(entry, record("a", Block(0, 2, 2)))
    assert (partitions.on("m0"), partitions.owners("m0")) == ([entry], {2: "a", 3: "a"})
    partitions.set_record(entry, record("a", Block(0, 4, 2), ready=ReadyState.ERROR))
    assert (partitions.on("m0"), partitions.on("m1")) == ([], [entry])
    assert partitions.broken == {"a"}
    partitions.set_record(entry, record("a", Block(0, 4, 2)))
    assert partitions.broken == set()


def test_a_partition_that_goes_leaves_another_of_its_name() -> None:
    partitions = PartitionIndex()
    old, new = entry_of("a"), entry_of("a")
    partitions.add(old)
    partitions.set_record(old, record("a", Block(0, 0, 4), ready=ReadyState.ERROR))
    partitions.add(new)
    partitions.set_record(new, record("a", Block(0, 4, 4)))
    partitions.remove(old)
    assert (old.removed, old.record, partitions.on("m0")) == (True, None, [])
    assert (partitions["a"], partitions.on("m1")) == (new, [new])
    assert (list(partitions.names), list(partitions.largest("pod", "pod"))) == (["a"], [new])
    partitions.remove(new)
    assert (list(partitions.names), list(partitions.largest("pod", "pod"))) == ([], [])
    assert (dict(partitions), partitions.on("m1"), partitions.broken) == ({}, [], set())


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["ada", "bob", ""]), st.booleans())))
def test_what_is_counted_of_partitions_is_what_a_walk_would_count(
    steps: list[tuple[int, str, bool]],
) -> None:
    """Each step gives a partition a record, or removes it: number, owner, whether it is broken."""
    partitions = PartitionIndex()
    for number, owner, broken in steps:
        entry = partitions.get(f"p{number}")
        if entry is not None and not owner:
            partitions.remove(entry)
        elif owner:
            if entry is None:
                entry = entry_of(f"p{number}")
                partitions.add(entry)
            present = record(
                entry.name,
                Block(0, number * 4, 4),
                ready=ReadyState.ERROR if broken else ReadyState.ACTIVE,
            )
            partitions.set_record(entry, msgspec.structs.replace(present, owner=owner))
    records = list(partitions.records())
    assert list(partitions.names) == sorted(each.name for each in records)
    assert {key: count for key, count in partitions.states.items() if count} == Counter(
        (each.cluster, each.ready.value) for each in records
    )
    for owner in ("ada", "bob"):
        own = [each for each in records if each.owner == owner]
        assert partitions.usage(owner, "pod") == (4 * len(own), len(own))
        assert partitions.usage(owner, "") == (4 * len(own), len(own))
        assert partitions.of_person(owner) == sorted(each.name for each in own)
    assert partitions.usage("", "pod") == (4 * len(records), len(records))
    assert {entry.name for entry in partitions.in_pool("pod", "pod")} == set(partitions)
    assert [entry.name for entry in partitions.largest("pod", "")] == sorted(partitions)
    assert partitions.count_in("pod", "pod") == len(partitions)


@given(st.lists(st.tuples(st.booleans(), st.text("abc", min_size=1, max_size=4))), st.text("abc"))
def test_sorted_names_are_a_set_in_order(changes: list[tuple[bool, str]], token: str) -> None:
    names = SortedNames()
    known: set[str] = set()
    with mock.patch("podwright.controller.state._sorted_names._BLOCK", 2):
        for comes, name in changes:
            (names.add if comes else names.discard)(name)
            (known.add if comes else known.discard)(name)
    assert (list(names), len(names)) == (sorted(known), len(known))
    assert list(names.after(token)) == sorted(name for name in known if name > token)


def test_names_that_come_and_go_while_they_are_read_do_no_harm() -> None:
    names = SortedNames()
    with mock.patch("podwright.controller.state._sorted_names._BLOCK", 2):
        for name in "abcdefgh":
            names.add(name)
        reader = names.after("")
        first = [next(reader), next(reader)]
        for name in "cde":
            names.discard(name)
        names.add("z")
        assert set("fghz") <= set(reader) - set(first)


def test_a_feed_tells_what_changed_since_and_says_when_it_does_not_know() -> None:
    feed = ChangeFeed(limit=3)
    feed.touch("a")
    seen = feed.revision
    feed.touch("b")
    feed.touch("c")
    feed.touch("b")
    assert feed.since(seen) == ["b", "c"]
    assert feed.since(feed.revision) == []
    feed.touch("d")
    assert feed.since(seen) == ["d", "b", "c"], "what changed before that is remembered no more"
    assert feed.since(0) is None
    feed.touch_all()
    assert feed.since(seen) is None
    assert feed.since(feed.revision) == []


# -- fences ----------------------------------------------------------------------------------


def test_a_fence_begins_uncut_and_leaves_nothing() -> None:
    fences, entry = FenceIndex(PartitionIndex()), entry_of("a")
    first, second = (FenceRecord(lease=lease_record(n), hosts=(), since=0.0) for n in ("l1", "l2"))
    fences.add(entry, first)
    fences.add(entry, second)
    fences.note_cut("l1", ["m0"])
    fences.note_cut("l1", ["m1"])
    assert (fences.cut("l1"), fences.cut("l2")) == ({"m0", "m1"}, set())
    assert (dict(fences), entry.fences) == ({"l1": entry, "l2": entry}, {"l1": first, "l2": second})
    fences.remove(entry, ["l1"])
    assert (dict(fences), entry.fences) == ({"l2": entry}, {"l2": second})
    fences.add(entry, first)  # the same lease's fence, as after a restart
    assert fences.cut("l1") == set()
