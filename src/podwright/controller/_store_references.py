"""The references between records of a store, and what it means that one leads nowhere.

Each reference is one row of `REFERENCES`. Each start checks all of them, before anything is served.
Where a device could go to two programs, or a tenant's device to another tenant, the server does not
start. Otherwise the record is set aside: it stays in the store, the server starts without it, and
`vipu-server --repair` removes it. A partition is served even then, in error, so that its owner can
remove it. What names something that may be gone in the ordinary course of things has no row;
`_MAY_BE_GONE` lists it with the reason.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from podwright.controller.administration._allocations import ALLOCATION, AllocationRecord
from podwright.controller.administration._audit import CHAIN_NAMES, EVENT_KIND
from podwright.controller.administration._audit_chain import ANCHOR_KIND
from podwright.controller.administration._users import USER, UserRecord
from podwright.controller.hardware._registry import AGENT, CLUSTER
from podwright.controller.queue._stored_weights import SHARE_KIND
from podwright.controller.queue._waiter import WaiterRecord
from podwright.controller.requests._quotas import QUOTA
from podwright.controller.state._caller import Role
from podwright.controller.state._records import (
    FENCE,
    LEASE,
    META,
    NO_LIMIT,
    PARTITION,
    QUARANTINE,
    WAITER,
    LeaseRecord,
    MetaRecord,
    PartitionRecord,
)
from podwright.controller.state._request_ids import REQUEST_KIND
from podwright.fabric import Cluster
from podwright.placement import Block

#: The decoded records of each kind, by their keys.
ByKind = Mapping[str, Mapping[str, Any]]

_MAY_BE_GONE: Final[Mapping[str, str]] = {
    "waiter.partition, waiter.lease": "what a waiter got may be given back before it says so",
    "waiter.create, waiter.acquire": "each turn of the queue checks the request anew",
    "request.name, request.lease": "a remembered request outlives what it made",
    "user.allocations, quota.allocation": "a grant or a limit stays when its allocation goes",
    "quota.user, partition.owner, allocation.owner": "a user may be an account of the machine",
    "drain's key": "a drained machine may leave its cluster",
    "fabric": "its journal is compared with the fabric itself",
}


class Gravity(enum.Enum):
    """What a fault means for the start of the server."""

    REFUSED = "the server does not start"
    SET_ASIDE = "the server starts without the record"
    SERVED = "the record is served, and reported"


class StoreFault(NamedTuple):
    """A record that breaks an invariant. reason: a sentence whose subject is the record."""

    kind: str
    key: str
    reason: str
    gravity: Gravity = Gravity.REFUSED

    def __str__(self) -> str:
        return f"{self.kind} {self.key} {self.reason}"


class Stock(NamedTuple):
    """What is checked: the records, and what they may lead to.

    clusters: those that are served, by name. allocations: of each cluster, with the machines of
    each. holders: the names of partitions with a lease or a fence, and one of these. all_clusters:
    whether there are no other clusters.
    """

    records: ByKind
    clusters: Mapping[str, Cluster]
    allocations: Mapping[str, Mapping[str, Sequence[str]]]
    holders: Mapping[str, str]
    all_clusters: bool

    def records_of(self, kind: str) -> Mapping[str, Any]:
        """The records of a kind, by key."""
        return self.records.get(kind, {})


class Reference(NamedTuple):
    """A field that names another record.

    names: the names in a record. targets: what there is. missing: the gravity of a record whose
    target is not there.
    """

    kind: str
    field: str
    names: Callable[[Any], Iterable[str]]
    target: str
    targets: Callable[[Stock], Mapping[str, Any]]
    missing: Callable[[Any, Stock], Gravity]


def _gravity_of_partition(record: PartitionRecord, stock: Stock) -> Gravity:
    """Nobody may get the devices of a partition in which a program may run."""
    return Gravity.REFUSED if record.name in stock.holders else Gravity.SERVED


def _gravity_of_allocation(record: AllocationRecord, stock: Stock) -> Gravity:
    """Without its allocation, a machine is open to all users of its cluster."""
    machines = {name for cluster in stock.clusters.values() for name in machine_names(cluster)}
    return Gravity.REFUSED if machines & set(record.agents) else Gravity.SET_ASIDE


def _set_aside(record: Any, stock: Stock) -> Gravity:
    return Gravity.SET_ASIDE


def _served(record: Any, stock: Stock) -> Gravity:
    return Gravity.SERVED


def _clusters(stock: Stock) -> Mapping[str, Any]:
    return stock.clusters


REFERENCES: Final = (
    Reference(
        PARTITION, "cluster", lambda r: (r.cluster,), "cluster", _clusters, _gravity_of_partition
    ),
    Reference(
        LEASE,
        "partition",
        lambda r: (r.partition,),
        "partition",
        lambda stock: stock.records_of(PARTITION),
        _set_aside,
    ),
    Reference(
        LEASE,
        "parent",
        lambda r: (r.parent,) if r.parent else (),
        "lease",
        lambda stock: stock.records_of(LEASE),
        _served,
    ),
    Reference(
        FENCE,
        "lease.partition",
        lambda r: (r.lease.partition,),
        "partition",
        lambda stock: stock.records_of(PARTITION),
        _set_aside,
    ),
    Reference(
        CLUSTER,
        "machines",
        lambda r: machine_names(r.cluster),
        "agent",
        lambda stock: stock.records_of(AGENT),
        _served,
    ),
    Reference(QUARANTINE, "cluster", lambda r: (r.cluster,), "cluster", _clusters, _set_aside),
    Reference(
        ALLOCATION, "cluster", lambda r: (r.cluster,), "cluster", _clusters, _gravity_of_allocation
    ),
)


def reference_faults(stock: Stock) -> Iterator[StoreFault]:
    """Return the faults of all rows, and of what rows cannot say: places, overlaps, circles."""
    for reference in REFERENCES:
        if reference.target == CLUSTER and not stock.all_clusters:
            continue
        targets = reference.targets(stock)
        names_of = reference.names
        for key, record in stock.records_of(reference.kind).items():
            for name in names_of(record):
                if name not in targets:
                    gravity = reference.missing(record, stock)
                    reason = f"names {reference.target} {name}, which is not there"
                    if gravity is Gravity.REFUSED and key in stock.holders:
                        reason += f", while {stock.holders[key]} holds its devices"
                    yield StoreFault(reference.kind, key, reason, gravity)
    yield from _machines_twice(stock)
    yield from _allocations_apart(stock)
    yield from _partitions_out_of_place(stock)
    yield from _parents_in_circles(stock.records_of(LEASE))


def machine_names(cluster: Cluster) -> list[str]:
    """The machines of a cluster, in the order of domains and links."""
    return [machine.name for domain in cluster.domains for machine in domain.machines]


def _machines_twice(stock: Stock) -> Iterator[StoreFault]:
    """A machine in two places: its devices would be given out at each."""
    places: dict[str, str] = {}
    for name, cluster in stock.clusters.items():
        for machine in machine_names(cluster):
            if machine in places:
                reason = f"has machine {machine}, which is in cluster {places[machine]} too"
                if places[machine] == name:
                    reason = f"has machine {machine} twice"
                yield StoreFault(CLUSTER, name, reason)
            places[machine] = name
    addresses: dict[tuple[str, int], str] = {}
    for key, record in stock.records_of(AGENT).items():
        address = record.host, record.port
        if record.name in places and (other := addresses.get(address)):
            reason = f"is at {record.host}:{record.port}, as agent {other} is"
            yield StoreFault(AGENT, key, reason)
        if record.name in places:
            addresses[address] = record.name


def _allocations_apart(stock: Stock) -> Iterator[StoreFault]:
    """A machine in two allocations, or one that is not in its allocation's cluster."""
    homes: dict[tuple[str, str], str] = {}
    machines = {name: set(machine_names(cluster)) for name, cluster in stock.clusters.items()}
    for key, record in stock.records_of(ALLOCATION).items():
        if not record.agents:
            yield StoreFault(ALLOCATION, key, "has no machines", Gravity.SET_ASIDE)
        for machine in record.agents:
            place = record.cluster, machine
            if place in homes:
                other = homes[place]
                reason = f"has machine {machine}, which is in allocation {other} too"
                if other == record.name:
                    reason = f"has machine {machine} twice"
                yield StoreFault(ALLOCATION, key, reason)
            homes[place] = record.name
            if record.cluster in machines and machine not in machines[record.cluster]:
                reason = f"has machine {machine}, which is not in cluster {record.cluster}"
                yield StoreFault(ALLOCATION, key, reason, _gravity_of_allocation(record, stock))


def _partitions_out_of_place(stock: Stock) -> Iterator[StoreFault]:
    """Devices that are not in a partition's cluster, or not in its allocation."""
    grounds: dict[tuple[str, str], set[tuple[int, int]] | None] = {}
    for key, record in stock.records_of(PARTITION).items():
        cluster = stock.clusters.get(record.cluster)
        if cluster is None:
            continue
        pool = record.cluster, record.allocation
        if pool not in grounds:
            machines = stock.allocations.get(record.cluster, {}).get(record.allocation)
            grounds[pool] = None if machines is None else _places(cluster, machines)
        ground = grounds[pool]
        if ground is None:
            reason = f"names allocation {record.allocation}, which cluster {record.cluster} has not"
        elif not all(_is_on(block, ground, cluster) for block in record.blocks):
            reason = f"has devices that are not in allocation {record.allocation}"
        else:
            continue
        gravity = _gravity_of_partition(record, stock)
        if key in stock.holders:
            reason += f", while {stock.holders[key]} holds them"
        yield StoreFault(PARTITION, key, reason, gravity)


def _places(cluster: Cluster, machines: Sequence[str]) -> set[tuple[int, int]]:
    wanted = set(machines)
    return {
        (domain_index, machine_index)
        for domain_index, domain in enumerate(cluster.domains)
        for machine_index, machine in enumerate(domain.machines)
        if machine.name in wanted
    }


def _is_on(block: Block, ground: set[tuple[int, int]], cluster: Cluster) -> bool:
    devices = cluster.family.devices_per_machine
    first, last = block.offset // devices, (block.offset + block.size - 1) // devices
    if first == last:
        return (block.domain, first) in ground
    return all((block.domain, machine) in ground for machine in range(first, last + 1))


def _parents_in_circles(leases: Mapping[str, LeaseRecord]) -> Iterator[StoreFault]:
    """A lease within itself: its devices would be nobody's to give, and everybody's."""
    for key, lease in leases.items():
        seen, parent = {key}, lease.parent
        while parent in leases and parent not in seen:
            seen.add(parent)
            parent = leases[parent].parent
        if parent == key:
            yield StoreFault(LEASE, key, "is within itself")


def number_faults(stock: Stock) -> Iterator[StoreFault]:
    """Numbers and words that no record can have."""
    for kind, reason_of in _LIMITS.items():
        for key, record in stock.records_of(kind).items():
            if reason := reason_of(record):
                yield StoreFault(kind, key, reason)


def _limit_of_partition(record: PartitionRecord) -> str:
    device_count = 0
    for block in record.blocks:
        if block.size < 1 or block.offset < 0 or block.domain < 0:
            return "has devices that cannot be"
        device_count += block.size
    if not device_count or any(block.size < 1 or block.offset < 0 for block in record.gcds):
        return "has devices that cannot be"
    if record.size != device_count:
        return f"says that it has {record.size} devices, and has {device_count}"
    numbers = record.num_gcds, record.num_replicas, record.num_ilds, record.auto_resets
    if min(numbers) < 0 or record.epoch < 0 or max(numbers) > _MOST:
        return _NO_NUMBER
    if not _is_time(record.created_at, record.placed_at, record.until):
        return _NO_TIME
    if not _is_account(record.owner_uid):
        return _NO_ACCOUNT
    if not record.dirty:
        return ""
    try:
        mask = record.dirty_mask
    except ValueError:
        return f"marks {record.dirty[:40]!r} as to be reset, which is no number"
    return "marks devices as to be reset that it has not" if mask >> record.size else ""


def _limit_of_lease(record: LeaseRecord) -> str:
    if record.first < 0 or record.count < 1 or record.epoch < 0:
        return _NO_NUMBER
    if not _is_account(record.owner_uid):
        return _NO_ACCOUNT
    return "" if 0 < record.ttl < _LATEST else f"lasts {record.ttl:g} s"


def _limit_of_cluster(cluster: Cluster) -> str:
    if not machine_names(cluster):
        return "has no machines"
    numbers = cluster.family.devices_per_machine, cluster.family.max_domain_devices
    return "" if min(numbers) > 0 else "has machines without devices"


def _limit_of_user(record: UserRecord) -> str:
    if record.role not in _ROLES:
        return f"has the role {record.role[:40]!r}, which is none"
    if not _is_account(record.uid):
        return _NO_ACCOUNT
    return "" if _is_time(record.created_at) else _NO_TIME


def _limit_of_waiter(record: WaiterRecord) -> str:
    if not (record.create or record.acquire):
        return "waits for nothing"
    if not _is_account(record.uid):
        return _NO_ACCOUNT
    return "" if _is_time(record.since, record.created_at) else _NO_TIME


def _is_account(uid: int) -> bool:
    return -1 <= uid < 1 << 32


def _is_time(*seconds: float) -> bool:
    return min(seconds) >= 0 and max(seconds) < _LATEST


_CHAINS: Final = frozenset(("", *CHAIN_NAMES))
_ROLES: Final = frozenset(role.value for role in Role)
_NO_NUMBER, _NO_TIME = "has a number that cannot be", "has a time that cannot be"
_NO_ACCOUNT = "is of an account that cannot be"
#: More than any count of a partition, and later than any time, in seconds since 1970.
_MOST, _LATEST = 1 << 31, 1e11
_LIMITS: Final[Mapping[str, Callable[[Any], str]]] = {
    PARTITION: _limit_of_partition,
    LEASE: _limit_of_lease,
    FENCE: lambda record: _limit_of_lease(record.lease),
    QUARANTINE: lambda record: (
        "has devices that cannot be"
        if record.block.size < 1 or record.block.offset < 0 or record.block.domain < 0
        else ""
    ),
    AGENT: lambda record: (
        "" if 0 < record.port < 65536 else f"has port {record.port}, which cannot be"
    ),
    CLUSTER: lambda record: _limit_of_cluster(record.cluster),
    # A newer version is refused by name, with other advice than a backup.
    META: lambda record: (
        "has no version" if isinstance(record, MetaRecord) and record.version < 1 else ""
    ),
    QUOTA: lambda record: (
        "" if min(record.devices, record.partitions) >= NO_LIMIT else "limits to less than nothing"
    ),
    SHARE_KIND: lambda record: (
        "" if 0 < record.weight < math.inf else f"has the weight {record.weight:g}"
    ),
    USER: lambda record: _limit_of_user(record),
    WAITER: lambda record: _limit_of_waiter(record),
    EVENT_KIND: lambda record: "" if record.chain in _CHAINS else "is in no chain of the audit",
    ANCHOR_KIND: lambda record: "" if record.chain in _CHAINS else "is of no chain of the audit",
    REQUEST_KIND: lambda record: "" if _is_time(record.at, record.created_at) else _NO_TIME,
}
