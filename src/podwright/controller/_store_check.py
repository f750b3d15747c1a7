"""Checks whether a store can be served: every record is readable, and all agree with each other.

A store that breaks an invariant (a disk that lies, a hand that edited it, an older program that
wrote to it) must not be served: one device would go to two programs. So each start looks first, and
`vipu-server --check` looks without starting. The functions here are pure; they neither mend
anything nor ask a machine.

The invariants:
- every record of a known kind is JSON of its type, under the key that it names itself;
- no device is in two partitions;
- a lease lies within its partition, and disjoint from all its leases but its ancestors'; so does
  what a lease left behind a fence;
- no epoch is from the future: the server's epochs only grow;
- numbers are in their ranges, and references lead to records (`_store_references`).

Records of unknown kinds are left alone, since the next Podwright may have written them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from podwright.controller._store_references import (
    ByKind,
    Gravity,
    Stock,
    StoreFault,
    machine_names,
    number_faults,
    reference_faults,
)
from podwright.controller.administration._allocations import ALLOCATION, AllocationRecord
from podwright.controller.administration._audit import (
    EVENT_KIND,
    INTENT_KIND,
    SealedEvent,
    SealedIntent,
)
from podwright.controller.administration._audit_chain import ANCHOR_KIND, AnchorRecord
from podwright.controller.administration._users import USER, UserRecord
from podwright.controller.hardware._registry import AGENT, CLUSTER, AgentRecord, ClusterRecord
from podwright.controller.queue._stored_weights import SHARE_KIND, ShareRecord
from podwright.controller.queue._waiter import WaiterRecord
from podwright.controller.requests._quotas import QUOTA
from podwright.controller.state._device_epochs import EPOCH_SHIFT
from podwright.controller.state._records import (
    DRAIN,
    FENCE,
    LEASE,
    META,
    PARTITION,
    QUARANTINE,
    WAITER,
    DrainRecord,
    FenceRecord,
    LeaseRecord,
    MetaRecord,
    PartitionRecord,
    QuarantineRecord,
    QuotaRecord,
)
from podwright.controller.state._request_ids import REQUEST_KIND, RememberedRequest
from podwright.errors import Unavailable
from podwright.fabric import Cluster, rule_of

Records = Mapping[tuple[str, str], bytes]

#: The type of each kind of record.
_TYPES: Final[Mapping[str, Any]] = {
    PARTITION: PartitionRecord,
    LEASE: LeaseRecord,
    FENCE: FenceRecord,
    QUARANTINE: QuarantineRecord,
    DRAIN: DrainRecord,
    AGENT: AgentRecord,
    CLUSTER: ClusterRecord,
    ALLOCATION: AllocationRecord,
    USER: UserRecord,
    QUOTA: QuotaRecord,
    SHARE_KIND: ShareRecord,
    WAITER: WaiterRecord,
    REQUEST_KIND: RememberedRequest,
    EVENT_KIND: SealedEvent,
    INTENT_KIND: SealedIntent,
    ANCHOR_KIND: AnchorRecord,
}
#: The types of single records.
_SINGLE_RECORD_TYPES: Final[Mapping[tuple[str, str], Any]] = {
    (META, "schema"): MetaRecord,
    (META, "server"): str,
    (META, "epoch-floor"): int,
    (META, "moves"): bool,
}
#: What a record calls itself, which must be its key.
_RECORD_KEYS: Final[Mapping[str, Callable[[Any], str]]] = {
    PARTITION: lambda record: str(record.name),
    LEASE: lambda record: str(record.id),
    FENCE: lambda record: str(record.id),
    QUARANTINE: lambda record: str(record.key),
    AGENT: lambda record: str(record.name),
    WAITER: lambda record: str(record.id),
    SHARE_KIND: lambda record: str(record.guest),
    CLUSTER: lambda record: str(record.cluster.name),
    ALLOCATION: lambda record: str(record.name),
    USER: lambda record: str(record.name),
    QUOTA: lambda record: f"{record.user}/{record.allocation}",
}
#: A refusal names at most this many faults; `--check` lists all.
_MAX_SHOWN_FAULTS: Final = 3


class ServedClusters(NamedTuple):
    """The clusters that the server has beside those in its store.

    allocations: those that it was started with, by cluster; none: one of all machines. known: false
    where these cannot be told, so that a cluster that the store has not may be there.
    """

    layouts: Sequence[Cluster] = ()
    allocations: Mapping[str, Mapping[str, Sequence[str]]] = {}
    known: bool = True


_NO_MORE_CLUSTERS: Final = ServedClusters()


def find_faults(
    records: Records,
    epoch: int,
    served: ServedClusters = _NO_MORE_CLUSTERS,
    extra_single_types: Mapping[tuple[str, str], Any] | None = None,
) -> list[StoreFault]:
    """All faults of a store, those that forbid a start first; empty for a sound store.

    epoch: no record can be of this server epoch or a later one. served: the clusters beside those
    of the store. extra_single_types: the types of single records that the caller knows beside those
    of the controller.
    """
    collects = gc.isenabled()
    gc.disable()  # no garbage is made, and each collection would visit every record
    try:
        return _all_faults(records, epoch, served, extra_single_types or {})
    finally:
        if collects:
            gc.enable()


def _all_faults(
    records: Records,
    epoch: int,
    served: ServedClusters,
    extra_single_types: Mapping[tuple[str, str], Any],
) -> list[StoreFault]:
    faults: list[StoreFault] = []
    decoded_records: dict[tuple[str, str], Any] = {}
    by_kind: dict[str, dict[str, Any]] = {kind: {} for kind in (*_TYPES, META)}
    single_types = {**_SINGLE_RECORD_TYPES, **extra_single_types}
    decoders: dict[Any, Callable[[bytes], Any]] = {}
    for kind_and_key, record_json in records.items():
        kind, key = kind_and_key
        record_type = _TYPES.get(kind) or single_types.get(kind_and_key)
        if record_type is None:
            continue
        decode = decoders.get(record_type)
        if decode is None:
            decode = msgspec.json.Decoder(record_type, dec_hook=rule_of).decode
            decoders[record_type] = decode
        try:
            record = decoded_records[kind_and_key] = decode(record_json)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, TypeError) as error:
            faults.append(StoreFault(kind, key, f"cannot be read ({error})"))
            continue
        if kind in by_kind:
            by_kind[kind][key] = record
        name_of_record = _RECORD_KEYS.get(kind)
        if name_of_record is not None and name_of_record(record) != key:
            faults.append(StoreFault(kind, key, f"calls itself {name_of_record(record)}"))
    epoch_floor = decoded_records.get((META, "epoch-floor"), 0)
    faults += _future_epochs(decoded_records, (epoch << EPOCH_SHIFT) + epoch_floor)
    stock = _stock(by_kind, served)
    number_problems = list(number_faults(stock))
    faults += number_problems
    if not number_problems:  # places are not compared where there are none
        partitions = list(stock.records_of(PARTITION).values())
        faults += _shared_devices(partitions)
        faults += _misplaced_leases(
            {partition.name: partition for partition in partitions},
            list(stock.records_of(LEASE).values()),
            list(stock.records_of(FENCE).values()),
        )
        faults += reference_faults(stock)
    return sorted(faults, key=lambda fault: (fault.gravity is not Gravity.REFUSED, fault[:2]))


def _stock(by_kind: ByKind, served: ServedClusters) -> Stock:
    """The records, and what they may lead to. An option's cluster hides one of the store."""
    clusters = {
        **{record.cluster.name: record.cluster for record in by_kind.get(CLUSTER, {}).values()},
        **{cluster.name: cluster for cluster in served.layouts},
    }
    allocations: dict[str, dict[str, Sequence[str]]] = {
        name: dict(machines) for name, machines in served.allocations.items()
    }
    for record in by_kind.get(ALLOCATION, {}).values():
        own = allocations.setdefault(record.cluster, {})
        if list(own) == [record.cluster]:
            own.clear()  # the one of all machines makes room for the first
        own[record.name] = record.agents
    for name, cluster in clusters.items():
        if not allocations.get(name):
            allocations[name] = {name: machine_names(cluster)}
    holders = {
        record.lease.partition: f"the fence of lease {record.id}"
        for record in by_kind.get(FENCE, {}).values()
    }
    holders |= {record.partition: f"lease {key}" for key, record in by_kind.get(LEASE, {}).items()}
    return Stock(by_kind, clusters, allocations, holders, served.known)


def set_aside_faulty(
    records: dict[tuple[str, str], bytes], epoch: int, store_name: str, served: ServedClusters
) -> list[StoreFault]:
    """Remove the records that are set aside, and return the faults that do not forbid to serve.

    Raises wire.Unavailable for a store in which a device could go to two programs. store_name: its
    name, for messages. epoch, served: as for `find_faults`.
    """
    faults = find_faults(records, epoch, served)
    if refused := [fault for fault in faults if fault.gravity is Gravity.REFUSED]:
        raise damaged(refused, store_name)
    for name in orphans(faults):
        del records[name]
    return faults


def orphans(faults: Iterable[StoreFault]) -> set[tuple[str, str]]:
    """Return kind and key of the records that are set aside."""
    return {(fault.kind, fault.key) for fault in faults if fault.gravity is Gravity.SET_ASIDE}


def damaged(faults: list[StoreFault], store_name: str) -> Unavailable:
    """The error that refuses a damaged store. It names the store, the faults and the remedy."""
    shown_faults = "; ".join(map(str, faults[:_MAX_SHOWN_FAULTS]))
    text = f"; and {len(faults) - _MAX_SHOWN_FAULTS} more" if faults[_MAX_SHOWN_FAULTS:] else ""
    option = f"--storage {store_name} " if store_name else ""
    return Unavailable(
        f"the store {store_name} is damaged: {shown_faults}{text}".replace("  ", " "),
        would_work=f"restore a backup: vipu-server {option}--restore FILE --replace; "
        f"all faults: vipu-server {option}--check",
        damaged=[list(fault) for fault in faults[:_MAX_SHOWN_FAULTS]],
    )


def _future_epochs(
    decoded_records: Mapping[tuple[str, str], Any], epoch_limit: int
) -> Iterable[StoreFault]:
    for (kind, key), record in decoded_records.items():
        if kind in (PARTITION, LEASE, QUARANTINE) and record.epoch >= epoch_limit:
            yield StoreFault(
                kind, key, f"has epoch {record.epoch}, and the store is before {epoch_limit}"
            )


def _shared_devices(partitions: list[PartitionRecord]) -> Iterable[StoreFault]:
    """Devices in two partitions. Blocks are sorted by link domain, so the cost is n log n."""
    block_extents = sorted(
        (record.cluster, block.domain, block.offset, block.size, record.name)
        for record in partitions
        for block in record.blocks
    )
    # The block whose end is the farthest of those seen so far.
    farthest_block: tuple[str, int, int, int, str] | None = None
    for block_extent in block_extents:
        cluster, domain, offset, device_count, partition_name = block_extent
        if (
            farthest_block is not None
            and farthest_block[:2] == (cluster, domain)
            and offset < farthest_block[2] + farthest_block[3]
        ):
            reason = (
                f"shares device {offset} of link domain {domain} with partition {farthest_block[4]}"
            )
            yield StoreFault(PARTITION, partition_name, reason)
        if (
            farthest_block is None
            or farthest_block[:2] != (cluster, domain)
            or offset + device_count > farthest_block[2] + farthest_block[3]
        ):
            farthest_block = block_extent


def _misplaced_leases(
    partitions: Mapping[str, PartitionRecord],
    leases: list[LeaseRecord],
    fences: list[FenceRecord],
) -> Iterable[StoreFault]:
    fenced_leases = [fence.lease for fence in fences]
    lease_by_id = {lease.id: lease for lease in (*fenced_leases, *leases)}
    holders = [(LEASE, lease) for lease in leases] + [(FENCE, lease) for lease in fenced_leases]
    earlier_holders: dict[str, list[tuple[str, LeaseRecord]]] = {}
    for kind, lease in holders:
        partition_record = partitions.get(lease.partition)
        if partition_record is None:
            continue
        end_device = lease.first + lease.count
        if end_device > partition_record.size:
            reason = (
                f"covers devices {lease.first} to {end_device - 1} of partition "
                f"{partition_record.name}, "
                f"which has {partition_record.size}"
            )
            yield StoreFault(kind, lease.id, reason)
        earlier = earlier_holders.setdefault(lease.partition, [])
        for other_kind, other_lease in earlier:
            is_overlapping = (
                lease.first < other_lease.first + other_lease.count
                and other_lease.first < end_device
            )
            is_known = LEASE == kind == other_kind or not (
                _has_lost_ancestor(lease, lease_by_id)
                or _has_lost_ancestor(other_lease, lease_by_id)
            )  # a lease in between may have been given back
            if is_overlapping and is_known and not _is_within(lease, other_lease, lease_by_id):
                yield StoreFault(
                    kind, lease.id, f"shares devices with {other_kind} {other_lease.id}"
                )
        earlier.append((kind, lease))


def _is_within(
    lease: LeaseRecord, other_lease: LeaseRecord, lease_by_id: Mapping[str, LeaseRecord]
) -> bool:
    """Whether one of the two is an ancestor of the other."""
    return other_lease.id in _ancestor_ids(lease, lease_by_id) or lease.id in _ancestor_ids(
        other_lease, lease_by_id
    )


def _has_lost_ancestor(lease: LeaseRecord, lease_by_id: Mapping[str, LeaseRecord]) -> bool:
    return not _ancestor_ids(lease, lease_by_id) <= lease_by_id.keys()


def _ancestor_ids(lease: LeaseRecord, lease_by_id: Mapping[str, LeaseRecord]) -> set[str]:
    ancestor_ids: set[str] = set()
    parent_id = lease.parent
    while parent_id and parent_id not in ancestor_ids:
        ancestor_ids.add(parent_id)
        parent = lease_by_id.get(parent_id)
        parent_id = parent.parent if parent is not None else ""
    return ancestor_ids
