"""Partitions in memory: by name, by machine and by person; those in error; how many there are.

All of it changes with a record, so that no call and no timer walks the partitions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from heapq import merge
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from podwright.agents import attached_name
from podwright.controller.state._change_feed import ChangeFeed
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._machine_calls import DevicesByMachine
from podwright.controller.state._read_only_mapping import ReadOnlyMapping
from podwright.controller.state._records import FenceRecord, LeaseRecord, PartitionRecord
from podwright.controller.state._sorted_names import SortedNames
from podwright.wire import ReadyState

_T = TypeVar("_T")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class PartitionEntry:
    """A partition in memory. `lock` is held by whoever takes it through a step.

    record: None until it is durable, and again when it is gone. retry_at: when the server may
    reset it by itself. machines: where its devices are, as `PartitionIndex.on` has it. makers:
    who may know of it before it is durable: its owner to be, and who requested it.
    """

    __slots__ = (
        "cluster", "fences", "leases", "lock", "machines", "makers", "name", "record", "removed",
        "retry_at",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        cluster: IndexedCluster | None,
        makers: tuple[str, ...] = (),
    ) -> None:
        self.makers = makers
        self.name = name
        self.cluster = cluster
        self.record: PartitionRecord | None = None
        self.lock = asyncio.Lock()
        # Replaced when one comes or goes: most partitions have none, and share what is empty.
        self.leases: Mapping[str, HeldLease] = _NOTHING
        #: What leases left behind that are over, by their ids (`_fences`).
        self.fences: Mapping[str, FenceRecord] = _NOTHING
        self.machines: tuple[str, ...] = ()
        self.removed = False
        self.retry_at = 0.0

    @property
    def known(self) -> PartitionRecord:
        """The record of a partition whose lock is held and that was not removed."""
        assert self.record is not None
        return self.record

    def parts(self, device_mask: int | None = None) -> dict[str, list[int]]:
        """Its devices by machine: all of them, or those in a mask over the routing order."""
        if self.cluster is None:
            return {}
        record = self.known
        if device_mask is None:
            return self.cluster.parts(record.blocks)
        return self.cluster.parts(self.cluster.span(record.gcds, device_mask))

    def joins(self, devices_by_machine: DevicesByMachine) -> dict[str, DevicesByMachine]:
        """Some of its devices as the fabric joins them: by the fabric's name of the partition.

        Devices of a pool are joined for each host apart, since two hosts in one zone would reach
        each other's devices. All others are joined under the partition's own name.
        """
        hosts = self.known.hosts
        if not hosts:
            return {self.name: devices_by_machine}
        host_share = self.known.size // len(hosts)
        joins_by_name: dict[str, DevicesByMachine] = {}
        for host_index, host in enumerate(hosts):
            attached_devices = self.parts(((1 << host_share) - 1) << host_index * host_share)
            chosen_devices = {
                machine: [
                    device_index
                    for device_index in indices
                    if device_index in devices_by_machine.get(machine, ())
                ]
                for machine, indices in attached_devices.items()
            }
            if host_devices := {
                machine: indices for machine, indices in chosen_devices.items() if indices
            }:
                joins_by_name[attached_name(self.name, host)] = host_devices
        return joins_by_name


def without(things: Mapping[str, _T], key: str) -> Mapping[str, _T]:
    """The leases or fences of a partition without one of them."""
    return {name: thing for name, thing in things.items() if name != key} or _NOTHING


class Usage(NamedTuple):
    """How many devices and partitions somebody has."""

    devices: int
    partitions: int


class PartitionIndex(ReadOnlyMapping[PartitionEntry]):
    """All partitions by name, also those whose first record is being written down.

    All else follows from the records. Only `set_record` and `remove` change a record, and they
    change what follows from it without waiting. So whoever does not wait sees all of it as of one
    moment. A partition without a record is on no machine, although its devices are taken already.

    names: of those that are durable, in order. states: how many there are, by cluster and ready
    state. guest_devices: how many devices each guest has, by its key. feed: which changed, by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self._on: dict[str, dict[PartitionEntry, None]] = {}
        self._broken: set[str] = set()
        self._usage: dict[tuple[str, str], list[int]] = {}
        self._of_person: dict[str, dict[str, int]] = {}
        self._in_pool: dict[tuple[str, str], dict[PartitionEntry, None]] = {}
        #: Names by cluster and allocation, then by size.
        self._sized: dict[tuple[str, str], dict[int, SortedNames]] = {}
        self._on_hosts: dict[PartitionEntry, None] = {}
        self.names = SortedNames()
        self.states: Counter[tuple[str, str]] = Counter()
        self.guest_devices: Counter[str] = Counter()
        self.feed = ChangeFeed()

    @property
    def broken(self) -> AbstractSet[str]:
        """The names of those in error."""
        return self._broken

    def records(self) -> Iterable[PartitionRecord]:
        """All partitions that are durable."""
        return (entry.record for entry in self.values() if entry.record is not None)

    def on(self, machine: str) -> list[PartitionEntry]:
        """The partitions that have devices in a machine. It costs what they are, not what all
        are: every machine is looked at again and again."""
        return list(self._on.get(machine, ()))

    def usage(self, owner: str, allocation: str) -> Usage:
        """What an owner has in an allocation. Empty: of all owners, in all allocations."""
        return Usage(*self._usage.get((owner, allocation), (0, 0)))

    def owned(self) -> Mapping[str, Usage]:
        """What each owner has in all allocations."""
        return {
            owner: Usage(*used)
            for (owner, allocation), used in self._usage.items()
            if owner and not allocation
        }

    def of_person(self, person: str) -> list[str]:
        """The names of partitions that somebody owns, created, or holds a lease or fence on, in
        order."""
        return sorted(self._of_person.get(person, ()))

    def in_pool(self, cluster: str, allocation: str) -> Collection[PartitionEntry]:
        """The partitions in an allocation of a cluster."""
        return self._in_pool.get((cluster, allocation), {}).keys()

    def largest(self, cluster: str, allocation: str) -> Iterator[PartitionEntry]:
        """The partitions in an allocation of a cluster, the largest first, equal ones by name.
        Empty: in any."""
        pools = [
            sizes
            for (pool_cluster, pool_allocation), sizes in self._sized.items()
            if pool_cluster == cluster and allocation in ("", pool_allocation)
        ]
        for size in sorted({size for sizes in pools for size in sizes}, reverse=True):
            names = merge(*(iter(sizes[size]) for sizes in pools if size in sizes))
            yield from (self._by_name[name] for name in names)

    def count_in(self, cluster: str, allocation: str) -> int:
        """How many partitions are in an allocation of a cluster. Empty: in any."""
        return sum(
            len(entries)
            for (pool_cluster, pool_allocation), entries in self._in_pool.items()
            if pool_cluster == cluster and allocation in ("", pool_allocation)
        )

    def any_in(self, cluster: str, allocation: str) -> bool:
        """Whether a partition is in an allocation of a cluster. Empty: in any."""
        return any(
            cluster in ("", pool_cluster) and allocation in ("", pool_allocation) and entries
            for (pool_cluster, pool_allocation), entries in self._in_pool.items()
        )

    def on_hosts(self) -> Iterable[PartitionRecord]:
        """The partitions whose devices are attached to hosts."""
        return (entry.known for entry in self._on_hosts)

    def note_holders(self, entry: PartitionEntry, holders: Iterable[str], change: int) -> None:
        """Note who came to hold a lease or a fence on a partition (change: 1), or no longer does
        (-1)."""
        for holder in holders:
            self._count_person(holder, entry.name, change)
        self._touch(entry)

    def owners(self, machine: str) -> dict[int, str]:
        """Index -> partition, for all devices of a machine that a partition has."""
        return {
            index: entry.name
            for entry in self._on.get(machine, ())
            for index in entry.parts().get(machine, ())
        }

    def add(self, entry: PartitionEntry) -> None:
        """Give a partition its name. One that is being removed may have had it."""
        self._by_name[entry.name] = entry

    def set_record(self, partition_entry: PartitionEntry, record: PartitionRecord) -> None:
        """Replace a partition's record, which is durable or derivable from what is."""
        old_record, partition_entry.record = partition_entry.record, record
        if (
            old_record is None
            or not partition_entry.machines
            or old_record.blocks is not record.blocks
        ):
            if old_record is not None:
                self._touch_domains(partition_entry, old_record)
            self._move_to_machines(partition_entry, tuple(partition_entry.parts()))
        if old_record is None:
            self.names.add(partition_entry.name)
            self._count(partition_entry, record, 1)
        elif _lasting(old_record) != _lasting(record):
            self._count(partition_entry, old_record, -1)
            self._count(partition_entry, record, 1)
        elif old_record.ready is not record.ready:
            self.states[record.cluster, old_record.ready.value] -= 1
            self.states[record.cluster, record.ready.value] += 1
        if record.ready is ReadyState.ERROR:
            self._broken.add(partition_entry.name)
        elif self._broken:
            self._broken.discard(partition_entry.name)
        self._touch(partition_entry)

    def remove(self, entry: PartitionEntry) -> None:
        """Remove a partition. Another that has its name by now stays."""
        for lease in entry.leases.values():
            self.note_holders(entry, holders_of(lease.record), -1)
        self._touch(entry)
        self._count(entry, entry.record, -1)
        self._move_to_machines(entry, ())
        entry.record = None
        entry.removed = True
        self._broken.discard(entry.name)
        if self._by_name.get(entry.name) is entry:
            del self._by_name[entry.name]
        present = self._by_name.get(entry.name)
        if present is None or present.record is None:
            self.names.discard(entry.name)

    def _touch(self, entry: PartitionEntry) -> None:
        self.feed.touch(entry.name)
        if entry.record is not None:
            self._touch_domains(entry, entry.record)

    def _touch_domains(self, entry: PartitionEntry, record: PartitionRecord) -> None:
        if entry.cluster is not None:
            for block in record.blocks:
                entry.cluster.touched.add(block.domain)

    def _count(self, entry: PartitionEntry, record: PartitionRecord | None, change: int) -> None:
        """Count a record, or count it no more (change: -1)."""
        if record is None:
            return
        owner, creator, allocation = record.owner, record.creator, record.allocation
        devices = change * record.size
        keys = [("", allocation), (owner, ""), (owner, allocation)] if owner else [("", allocation)]
        for key in keys:
            counts = self._usage.get(key)
            if counts is None:
                counts = self._usage[key] = [0, 0]
            counts[0] += devices
            counts[1] += change
            if not counts[1]:
                del self._usage[key]
        self.states[record.cluster, record.ready.value] += change
        self.guest_devices[record.guest] += devices
        if not self.guest_devices[record.guest]:
            del self.guest_devices[record.guest]
        if owner:
            self._count_person(owner, record.name, change)
        if creator and creator != owner:
            self._count_person(creator, record.name, change)
        pool_key, size, name = (record.cluster, allocation), record.size, record.name
        pool = self._in_pool.get(pool_key)
        if pool is None:
            pool, self._sized[pool_key] = {}, {}
            self._in_pool[pool_key] = pool
        sizes = self._sized[pool_key]
        if change > 0:
            pool[entry] = None
            if size not in sizes:
                sizes[size] = SortedNames()
            sizes[size].add(name)
            if record.hosts:
                self._on_hosts[entry] = None
        else:
            del pool[entry]
            self._on_hosts.pop(entry, None)
            present = self._by_name.get(name)  # another may have the name by now
            if (
                present is None
                or present is entry
                or present not in pool
                or (present.known.size != size)
            ):
                sizes[size].discard(name)
                if not sizes[size]:
                    del sizes[size]

    def _count_person(self, person: str, name: str, change: int) -> None:
        counts = self._of_person.get(person)
        if counts is None:
            counts = self._of_person[person] = {}
        if count := counts.get(name, 0) + change:
            counts[name] = count
        else:
            del counts[name]
            if not counts:
                del self._of_person[person]

    def _move_to_machines(self, partition_entry: PartitionEntry, machines: tuple[str, ...]) -> None:
        for machine in partition_entry.machines:
            del self._on[machine][partition_entry]
        for machine in machines:
            self._on.setdefault(machine, {})[partition_entry] = None
        partition_entry.machines = machines


#: What is counted of a record, beside its ready state.
_lasting = attrgetter("owner", "creator", "cluster", "allocation", "size", "hosts", "guest")


def holders_of(lease: LeaseRecord) -> set[str]:
    """Who has a lease: its owner, and who asked in the owner's name."""
    return {lease.owner, lease.creator} - {""}
