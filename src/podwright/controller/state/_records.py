"""What is written down: the records of the store, and their JSON.

Records never change; a step replaces one by another, so memory and store cannot drift apart
half way.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from podwright.fabric import rule_of
from podwright.placement import Block, Placement
from podwright.store import Delete, Put
from podwright.wire import GatewayRouting, OperationState, ReadyState, Routing, SyncType

SCHEMA_VERSION: Final = 1

PARTITION: Final = "partition"
LEASE: Final = "lease"
FENCE: Final = "fence"
QUARANTINE: Final = "quarantine"
META: Final = "meta"
DRAIN: Final = "drain"
WAITER: Final = "waiter"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all records."""


class MetaRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """meta/schema: which version of these records the store holds."""

    version: int


class DrainRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """drain/MACHINE. reason, who: as `wire.DrainInfo` has them. at: by the system's clock."""

    reason: str = ""
    who: str = ""
    at: float = 0.0


class PartitionRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A partition. blocks, gcds: its devices, in routing order.

    epoch: of the last step on its hardware. dirty: hexadecimal bit mask over the devices in routing
    order; a set bit must be reset before the next holder. transient: goes with the lease that
    created it. open_gcds, open_replicas: creation left the count open, so the one that stands here
    is that of the last launch. until: when its creator said that it ends; 0: unknown. profile: of
    its slices; empty for whole devices. movable: its launch may be asked to move. hosts: to which a
    fabric attaches its devices, in equal shares in routing order; empty where they are not a
    pool's. guest: the scheduler that it was created for, as `_guest_first_jobs` knows it; empty for
    people. unremoved: it is in error because its removal failed. created_at, auto_reset_at: by the
    system's clock (`ControllerState.wall`), to be shown.
    placed_at, until: by the store's (`ControllerState.now`).
    """

    name: str
    cluster: str
    allocation: str
    size: int
    num_gcds: int
    num_replicas: int
    num_ilds: int
    routing: Routing
    gw_routing: GatewayRouting
    sync_type: SyncType
    blocks: tuple[Block, ...]
    gcds: tuple[Block, ...]
    ready: ReadyState
    operation: OperationState
    owner: str
    creator: str
    epoch: int
    created_at: float
    owner_uid: int = -1
    job: str = ""
    reconfigurable: bool = False
    open_gcds: bool = False
    open_replicas: bool = False
    auto_reset: bool = True
    relocatable: bool = False
    movable: bool = False
    transient: bool = False
    errors: tuple[str, ...] = ()
    dirty: str = ""
    auto_resets: int = 0
    auto_reset_at: float = 0.0
    until: float = 0.0
    profile: str = ""
    placed_at: float = 0.0
    hosts: tuple[str, ...] = ()
    guest: str = ""
    unremoved: bool = False

    @property
    def placed(self) -> float:
        """When it was placed, by the store's clock; of an older record, when it was created."""
        return self.placed_at or self.created_at

    @property
    def placement(self) -> Placement:
        """Its devices as placement knows them."""
        return Placement(self.allocation, self.blocks, self.gcds)

    @property
    def dirty_mask(self) -> int:
        """`dirty` as a number."""
        return int(self.dirty, 16) if self.dirty else 0


class LeaseRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A lease. first, count: the devices that it covers, in the partition's routing order.
    creator: who asked in its owner's name, or empty. owner_uid: the account that its launch runs
    under; -1: unknown. hosts: where its instances run; empty: never said. run: what marks them.

    Its end is not written down: renewing costs no commit, and after a restart every lease
    that was not ended has a full ttl again.
    """

    id: str
    partition: str
    epoch: int
    owner: str
    first: int
    count: int
    ttl: float
    holder: str = ""
    parent: str = ""
    creator: str = ""
    owner_uid: int = -1
    hosts: tuple[str, ...] = ()
    run: str = ""

    @property
    def mask(self) -> int:
        """Its devices as a bit mask."""
        return ((1 << self.count) - 1) << self.first


class FenceRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What a lease left that ended without word that its instances are gone: nobody gets its
    devices until every host has said so, or every machine has cut them off and reset them.

    lease: as it was. hosts: those that have not said so; one that is empty stands for hosts that
    were never named. since: when it ended.
    """

    lease: LeaseRecord
    hosts: tuple[str, ...]
    since: float

    @property
    def id(self) -> str:
        """That of the lease."""
        return self.lease.id


class QuarantineRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Devices of one machine that left a partition unreset: nobody gets them until they are."""

    cluster: str
    allocation: str
    machine: str
    block: Block
    epoch: int
    partition: str

    @property
    def key(self) -> str:
        """One key per block, so that no two steps write the same record."""
        return f"{self.cluster}/{self.block.domain}/{self.block.offset}/{self.block.size}"

    @property
    def placement(self) -> Placement:
        """Its devices as placement knows them."""
        return Placement(self.allocation, (self.block,), (self.block,))


_encode_json = msgspec.json.Encoder().encode
_T = TypeVar("_T", bound=Record)


def put(partition_record: PartitionRecord) -> Put:
    """The change that writes a partition."""
    return Put(PARTITION, partition_record.name, _encode_json(partition_record))


def put_lease(record: LeaseRecord) -> Put:
    """The change that writes a lease."""
    return Put(LEASE, record.id, _encode_json(record))


def put_fence(record: FenceRecord) -> Put:
    """The change that writes a fence."""
    return Put(FENCE, record.id, _encode_json(record))


def put_quarantine(record: QuarantineRecord) -> Put:
    """The change that writes a quarantine."""
    return Put(QUARANTINE, record.key, _encode_json(record))


def put_drain(machine: str, record: DrainRecord) -> Put:
    """The change that writes a machine's drain."""
    return Put(DRAIN, machine, _encode_json(record))


def put_meta() -> Put:
    """The change that writes the schema's version."""
    return Put(META, "schema", _encode_json(MetaRecord(version=SCHEMA_VERSION)))


def drop(partition_name: str) -> Delete:
    """The change that forgets a partition."""
    return Delete(PARTITION, partition_name)


def drop_lease(lease_id: str) -> Delete:
    """The change that forgets a lease."""
    return Delete(LEASE, lease_id)


def drop_fence(lease_id: str) -> Delete:
    """The change that ends a fence."""
    return Delete(FENCE, lease_id)


def drop_quarantine(record: QuarantineRecord) -> Delete:
    """The change that ends a quarantine."""
    return Delete(QUARANTINE, record.key)


def decode(record_type: type[_T], record_json: bytes) -> _T:
    """A record from its JSON. Raises msgspec.ValidationError or DecodeError."""
    return msgspec.json.decode(record_json, type=record_type, dec_hook=rule_of)


NO_LIMIT: Final = -1


class QuotaRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A quota. user, allocation: whose; empty: everybody together, everywhere together."""

    user: str = ""
    allocation: str = ""
    devices: int = NO_LIMIT
    partitions: int = NO_LIMIT

    @property
    def key(self) -> tuple[str, str]:
        """Whose it is."""
        return self.user, self.allocation
