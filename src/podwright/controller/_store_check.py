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
from podwright.controller.administration._audit import EVENT, INTENT, IntentRecord
from podwright.controller.administration._audit_chain import ANCHOR, AnchorRecord
from podwright.controller.administration._users import USER, UserRecord
from podwright.controller.hardware._registry import AGENT, CLUSTER, AgentRecord, ClusterRecord
from podwright.controller.queue._stored_weights import SHARE, ShareRecord
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
from podwright.controller.state._request_ids import REQUEST, Remembered
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
    SHARE: ShareRecord,
    WAITER: WaiterRecord,
    REQUEST: Remembered,
    EVENT: EventInfo,
    INTENT: IntentRecord,
    ANCHOR: AnchorRecord,
}
#: The types of single records.
_SINGLE: Final[Mapping[tuple[str, str], Any]] = {
    (META, "schema"): MetaRecord,
    (META, "server"): str,
    (META, "epoch-floor"): int,
    (META, "moves"): bool,
}
#: What a record calls itself, which must be its key.
_NAMES: Final[Mapping[str, Callable[[Any], str]]] = {
    PARTITION: lambda record: str(record.name),
    LEASE: lambda record: str(record.id),
    FENCE: lambda record: str(record.id),
    QUARANTINE: lambda record: str(record.key),
    AGENT: lambda record: str(record.name),
    WAITER: lambda record: str(record.id),
    SHARE: lambda record: str(record.guest),
}
#: A refusal names at most this many faults; `--check` lists all.
_SHOWN: Final = 3


class StoreFault(NamedTuple):
    """A record that breaks an invariant. reason: a sentence whose subject is the record."""

    kind: str
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key} {self.reason}"


def find_faults(
    records: Records, epoch: int, single: Mapping[tuple[str, str], Any] | None = None
) -> list[StoreFault]:
    """All faults of a store, in the order of its records; empty for a sound store.

    epoch: no record can be of this server epoch or a later one. single: the types of single
    records that the caller knows beside those of the controller.
    """
    faults: list[StoreFault] = []
    read: dict[tuple[str, str], Any] = {}
    singles = {**_SINGLE, **(single or {})}
    for place, body in sorted(records.items()):
        kind, key = place
        known = singles.get(place) or _TYPES.get(kind)
        if known is None:
            continue
        try:
            record = read[place] = msgspec.json.decode(body, type=known, dec_hook=rule_of)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, TypeError) as error:
            faults.append(StoreFault(kind, key, f"cannot be read ({error})"))
            continue
        name = _NAMES.get(kind)
        if name is not None and name(record) != key:
            faults.append(StoreFault(kind, key, f"calls itself {name(record)}"))
    floor = read.get((META, "epoch-floor"), 0)
    faults += _epochs(read, (epoch << EPOCH_SHIFT) + floor)
    faults += _shared_devices(_of(read, PARTITION))
    faults += _misplaced_leases({r.name: r for r in _of(read, PARTITION)}, _of(read, LEASE))
    return faults


def verify(records: Records, epoch: int, store: str) -> None:
    """Raise wire.Unavailable for a store that breaks an invariant.

    store: its name, for messages. epoch: as for `find_faults`.
    """
    if faults := find_faults(records, epoch):
        raise damaged(faults, store)


def damaged(faults: list[StoreFault], store: str) -> Unavailable:
    """The error that refuses a damaged store. It names the store, the faults and the remedy."""
    named = "; ".join(map(str, faults[:_SHOWN]))
    more = f"; and {len(faults) - _SHOWN} more" if faults[_SHOWN:] else ""
    place = f"--storage {store} " if store else ""
    return Unavailable(
        f"the store {store} is damaged: {named}{more}".replace("  ", " "),
        would_work=f"restore a backup: vipu-server {place}--restore FILE --replace; "
        f"all faults: vipu-server {place}--check",
        damaged=[list(fault) for fault in faults[:_SHOWN]],
    )


def _of(read: Mapping[tuple[str, str], Any], kind: str) -> list[Any]:
    return [record for (other_kind, _), record in read.items() if other_kind == kind]


def _epochs(read: Mapping[tuple[str, str], Any], end: int) -> Iterable[StoreFault]:
    for (kind, key), record in read.items():
        if kind in (PARTITION, LEASE, QUARANTINE) and record.epoch >= end:
            yield StoreFault(kind, key, f"has epoch {record.epoch}, and the store is before {end}")


def _shared_devices(partitions: list[PartitionRecord]) -> Iterable[StoreFault]:
    """Devices in two partitions. Blocks are sorted by link domain, so the cost is n log n."""
    places = sorted(
        (record.cluster, block.domain, block.offset, block.size, record.name)
        for record in partitions
        for block in record.blocks
    )
    last: tuple[str, int, int, int, str] | None = None  # the block that reaches farthest so far
    for place in places:
        cluster, domain, offset, size, name = place
        if last is not None and last[:2] == (cluster, domain) and offset < last[2] + last[3]:
            reason = f"shares device {offset} of link domain {domain} with partition {last[4]}"
            yield StoreFault(PARTITION, name, reason)
        if last is None or last[:2] != (cluster, domain) or offset + size > last[2] + last[3]:
            last = place


def _misplaced_leases(
    partitions: Mapping[str, PartitionRecord], leases: list[LeaseRecord]
) -> Iterable[StoreFault]:
    by_id = {lease.id: lease for lease in leases}
    together: dict[str, list[LeaseRecord]] = {}
    for lease in leases:
        record = partitions.get(lease.partition)
        if record is None:
            continue
        end = lease.first + lease.count
        if lease.first < 0 or lease.count < 1 or end > record.size:
            reason = (
                f"covers devices {lease.first} to {end - 1} of partition {record.name}, "
                f"which has {record.size}"
            )
            yield StoreFault(LEASE, lease.id, reason)
        for other in together.setdefault(lease.partition, []):
            related = _ancestors(lease, by_id) | _ancestors(other, by_id)
            overlap = lease.first < other.first + other.count and other.first < end
            if overlap and lease.id not in related and other.id not in related:
                yield StoreFault(LEASE, lease.id, f"shares devices with lease {other.id}")
        together[lease.partition].append(lease)


def _ancestors(lease: LeaseRecord, by_id: Mapping[str, LeaseRecord]) -> set[str]:
    ancestors: set[str] = set()
    parent = lease.parent
    while parent and parent not in ancestors and parent in by_id:
        ancestors.add(parent)
        parent = by_id[parent].parent
    return ancestors
