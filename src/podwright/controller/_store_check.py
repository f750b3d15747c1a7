"""Checks whether a store can be served: every record is readable, and all agree with each other.

A store that breaks an invariant (a disk that lies, a hand that edited it, an older program that
wrote to it) must not be served: one device would go to two programs. So each start looks first, and
`vipu-server --check` looks without starting. The functions here are pure; they neither mend
anything nor ask a machine.

The invariants:
- every record of a known kind is JSON of its type, under the key that it names itself;
- no device is in two partitions;
- a lease lies within its partition, and disjoint from all its leases but its ancestors';
- no epoch is from the future: the server's epochs only grow.

A lease, a fence or a parent that refers to something that is gone is not damage: whoever ended the
other end made it meaningless, and the start drops it. Records of unknown kinds are left alone,
since the next Podwright may have written them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from podwright.controller.administration._allocations import ALLOCATION, AllocationRecord
from podwright.controller.administration._audit import EVENT_KIND, INTENT_KIND, IntentRecord
from podwright.controller.administration._audit_chain import ANCHOR_KIND, AnchorRecord
from podwright.controller.administration._users import USER, UserRecord
from podwright.controller.hardware._registry import AGENT, CLUSTER, AgentRecord, ClusterRecord
from podwright.controller.queue._stored_weights import SHARE_KIND, ShareRecord
from podwright.controller.queue._waiter import WaiterRecord
from podwright.controller.requests._quotas import QUOTA
from podwright.controller.state._device_epochs import EPOCH_SHIFT
from podwright.controller.state._records import (
    FENCE,
    LEASE,
    META,
    PARTITION,
    QUARANTINE,
    WAITER,
    FenceRecord,
    LeaseRecord,
    MetaRecord,
    PartitionRecord,
    QuarantineRecord,
    QuotaRecord,
)
from podwright.controller.state._request_ids import REQUEST_KIND, RememberedRequest
from podwright.errors import Unavailable
from podwright.fabric import rule_of
from podwright.wire import EventInfo

Records = Mapping[tuple[str, str], bytes]

#: The type of each kind of record.
_TYPES: Final[Mapping[str, Any]] = {
    PARTITION: PartitionRecord,
    LEASE: LeaseRecord,
    FENCE: FenceRecord,
    QUARANTINE: QuarantineRecord,
    AGENT: AgentRecord,
    CLUSTER: ClusterRecord,
    ALLOCATION: AllocationRecord,
    USER: UserRecord,
    QUOTA: QuotaRecord,
    SHARE_KIND: ShareRecord,
    WAITER: WaiterRecord,
    REQUEST_KIND: RememberedRequest,
    EVENT_KIND: EventInfo,
    INTENT_KIND: IntentRecord,
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
}
#: A refusal names at most this many faults; `--check` lists all.
_MAX_SHOWN_FAULTS: Final = 3


class StoreFault(NamedTuple):
    """A record that breaks an invariant. reason: a sentence whose subject is the record."""

    kind: str
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key} {self.reason}"


def find_faults(
    records: Records, epoch: int, extra_single_types: Mapping[tuple[str, str], Any] | None = None
) -> list[StoreFault]:
    """All faults of a store, in the order of its records; empty for a sound store.

    epoch: no record can be of this server epoch or a later one. extra_single_types: the types of
    single records that the caller knows beside those of the controller.
    """
    faults: list[StoreFault] = []
    decoded_records: dict[tuple[str, str], Any] = {}
    single_types = {**_SINGLE_RECORD_TYPES, **(extra_single_types or {})}
    for kind_and_key, record_json in sorted(records.items()):
        kind, key = kind_and_key
        record_type = single_types.get(kind_and_key) or _TYPES.get(kind)
        if record_type is None:
            continue
        try:
            record = decoded_records[kind_and_key] = msgspec.json.decode(
                record_json, type=record_type, dec_hook=rule_of
            )
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, TypeError) as error:
            faults.append(StoreFault(kind, key, f"cannot be read ({error})"))
            continue
        name_of_record = _RECORD_KEYS.get(kind)
        if name_of_record is not None and name_of_record(record) != key:
            faults.append(StoreFault(kind, key, f"calls itself {name_of_record(record)}"))
    epoch_floor = decoded_records.get((META, "epoch-floor"), 0)
    faults += _future_epochs(decoded_records, (epoch << EPOCH_SHIFT) + epoch_floor)
    faults += _shared_devices(_records_of_kind(decoded_records, PARTITION))
    faults += _misplaced_leases(
        {partition.name: partition for partition in _records_of_kind(decoded_records, PARTITION)},
        _records_of_kind(decoded_records, LEASE),
    )
    return faults


def verify(records: Records, epoch: int, store_name: str) -> None:
    """Raise wire.Unavailable for a store that breaks an invariant.

    store_name: its name, for messages. epoch: as for `find_faults`.
    """
    if faults := find_faults(records, epoch):
        raise damaged(faults, store_name)


def damaged(faults: list[StoreFault], store_name: str) -> Unavailable:
    """The error that refuses a damaged store. It names the store, the faults and the remedy."""
    shown_faults = "; ".join(map(str, faults[:_MAX_SHOWN_FAULTS]))
    more_text = (
        f"; and {len(faults) - _MAX_SHOWN_FAULTS} more" if faults[_MAX_SHOWN_FAULTS:] else ""
    )
    storage_option = f"--storage {store_name} " if store_name else ""
    return Unavailable(
        f"the store {store_name} is damaged: {shown_faults}{more_text}".replace("  ", " "),
        would_work=f"restore a backup: vipu-server {storage_option}--restore FILE --replace; "
        f"all faults: vipu-server {storage_option}--check",
        damaged=[list(fault) for fault in faults[:_MAX_SHOWN_FAULTS]],
    )


def _records_of_kind(decoded_records: Mapping[tuple[str, str], Any], kind: str) -> list[Any]:
    return [record for (record_kind, _), record in decoded_records.items() if record_kind == kind]


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
    partitions: Mapping[str, PartitionRecord], leases: list[LeaseRecord]
) -> Iterable[StoreFault]:
    lease_by_id = {lease.id: lease for lease in leases}
    leases_by_partition: dict[str, list[LeaseRecord]] = {}
    for lease in leases:
        partition_record = partitions.get(lease.partition)
        if partition_record is None:
            continue
        end_device = lease.first + lease.count
        if lease.first < 0 or lease.count < 1 or end_device > partition_record.size:
            reason = (
                f"covers devices {lease.first} to {end_device - 1} of partition "
                f"{partition_record.name}, "
                f"which has {partition_record.size}"
            )
            yield StoreFault(LEASE, lease.id, reason)
        for other_lease in leases_by_partition.setdefault(lease.partition, []):
            ancestor_ids = _ancestor_ids(lease, lease_by_id) | _ancestor_ids(
                other_lease, lease_by_id
            )
            is_overlapping = (
                lease.first < other_lease.first + other_lease.count
                and other_lease.first < end_device
            )
            if (
                is_overlapping
                and lease.id not in ancestor_ids
                and other_lease.id not in ancestor_ids
            ):
                yield StoreFault(LEASE, lease.id, f"shares devices with lease {other_lease.id}")
        leases_by_partition[lease.partition].append(lease)


def _ancestor_ids(lease: LeaseRecord, lease_by_id: Mapping[str, LeaseRecord]) -> set[str]:
    ancestor_ids: set[str] = set()
    parent_id = lease.parent
    while parent_id and parent_id not in ancestor_ids and parent_id in lease_by_id:
        ancestor_ids.add(parent_id)
        parent_id = lease_by_id[parent_id].parent
    return ancestor_ids
