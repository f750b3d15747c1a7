"""The values of podwright.v1, which commands, the server and its agents exchange.

They are defined once, with the calls that carry them (CALLS): here for partitions, leases and
listings, and in `_waiters`, `_jobs`, `_moving` and `_admin` for the rest. `_methods` joins the
calls. On the Unix socket they are JSON over HTTP. On TCP they are the messages of
`podwright_v1.proto`, which `make proto` generates from them. Names of partition settings are those
of the V-IPU 1.18 protocol, without its prefixes.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from podwright.wire._method import (
    CREATORS,
    EVERYBODY,
    About,
    AuditEntry,
    May,
    Method,
    ObjectKind,
    Repeat,
)
from podwright.wire._value import Value


class ReadyState(enum.Enum):
    """Is the partition fit for use (V-IPU 1.18 protocol, PartitionReadyState)."""

    __hash__ = object.__hash__  # Enum's own is a call in Python, and each step looks states up

    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    REMOVED = "REMOVED"
    ERROR = "ERROR"


class OperationState(enum.Enum):
    """What is being done to the partition (V-IPU 1.18 protocol, PartitionOperationState).

    FENCING is ours: a lease on it ended without word that its instances are gone, and nobody gets
    those devices until they are cut off from them. In V-IPU's protocol it is RESETTING.
    """

    __hash__ = object.__hash__

    IDLE = "IDLE"
    CREATING = "CREATING"
    REMOVING = "REMOVING"
    RESETTING = "RESETTING"
    FAILED = "FAILED"
    FENCING = "FENCING"


class Routing(enum.Enum):
    """Routing on the links of one link domain (V-IPU 1.18 protocol, IpuLinkRoutingType)."""

    DEFAULT = "DEFAULT"
    DNC = "DNC"
    SWNC = "SWNC"
    BTNC = "BTNC"
    RINGSWNC = "RINGSWNC"


class GatewayRouting(enum.Enum):
    """Routing between link domains (V-IPU 1.18 protocol, GatewayRoutingType)."""

    DEFAULT = "DEFAULT"
    RING = "RING"
    SWRING = "SWRING"


class SyncType(enum.Enum):
    """Synchronisation (V-IPU 1.18 protocol, SyncType)."""

    DEFAULT = "DEFAULT"
    GS2_DEFAULT = "GS2_DEFAULT"
    GS2_INDEPENDENT_RAILS = "GS2_INDEPENDENT_RAILS"
    POD_NATIVE_DEFAULT = "POD_NATIVE_DEFAULT"
    POD_NATIVE_REPLICATED_PIPELINE = "POD_NATIVE_REPLICATED_PIPELINE"


class DeviceRef(Value):
    """One device and where it answers.

    domain, offset: its place in the cluster (fabric.Cluster). index: its place in its machine.
    ip, server_port, rdma_port: its IPUoF server (V-IPU 1.18 protocol, IpuofDevice).
    """

    domain: int
    offset: int
    machine: str = ""
    index: int = 0
    ip: str = ""
    server_port: int = 0
    rdma_port: int = 0
    arch_id: int = 0
    chip_id: str = ""


#: Attributes of a device that its driver measures.
READING_ATTRIBUTES: Final = frozenset(
    {
        *("load", "memory used", "power", "temperature"),
        *("ecc errors", "row remapping", "last xid", "problems"),
    }
)


class DeviceInfo(Value):
    """A device in a listing. state: FREE, RESERVED (for a waiter), IN_USE, RESETTING, DRAINED,
    DOWN."""

    cluster: str
    device: DeviceRef
    allocation: str = ""
    state: str = "FREE"
    partition: str = ""
    attributes: dict[str, str] = {}


class DrainInfo(Value):
    """A machine's drain. reason: empty where none was given. who: the user that drained it.

    at: seconds since 1970; 0: not known.
    """

    machine: str
    reason: str = ""
    who: str = ""
    at: float = 0.0


class ClusterInfo(Value):
    """A cluster in a listing. ild_sizes: devices of each link domain, in loop order.

    drained, down: those of its machines that take nothing new, or do not answer. drains: why those
    of `drained` do.
    """

    name: str
    family: str
    size: int
    free: int
    machines: list[str] = []
    ild_sizes: list[int] = []
    topology: str = "none"
    ild_topology: str = "mesh"
    simulated: bool = False
    drained: list[str] = []
    down: list[str] = []
    drains: list[DrainInfo] = []


class AllocationInfo(Value):
    """An allocation in a listing: whole machines of one cluster.

    scheduler: the only user that creates in it, where there is one. owner: the only user but
    administrators, for whose job it was made.
    """

    name: str
    cluster: str
    size: int
    free: int
    agents: list[str] = []
    scheduler: str = ""
    owner: str = ""


class PartitionSpec(Value):
    """What a partition is asked to be.

    size: devices; 0 only together with `devices`. num_gcds: 0 leaves it open: one (or the fewest
    that its link domains allow), until a launch divides it. num_replicas: over all GCDs; 0 leaves
    it open: as many as GCDs.
    num_ilds: link domains to span; 0 lets the server decide. devices: explicit (domain, offset)
    pairs, or none. auto_reset: the server resets a partition in error by itself. profile: slices
    of GPUs (MIG) of this kind, such as `1g.10gb`; empty takes whole devices. movable: the server
    may ask its launch to end and start again on other devices, once that launch can do so.
    hosts: to which the devices of a pool are attached, in equal shares in their order; empty for
    devices that are not a pool's.
    """

    name: str
    size: int = 0
    cluster: str = ""
    allocation: str = ""
    num_gcds: int = 0
    num_replicas: int = 0
    num_ilds: int = 0
    routing: Routing = Routing.DEFAULT
    gw_routing: GatewayRouting = GatewayRouting.DEFAULT
    sync_type: SyncType = SyncType.DEFAULT
    reconfigurable: bool = False
    devices: list[tuple[int, int]] = []
    auto_reset: bool = True
    relocatable: bool = False
    profile: str = ""
    movable: bool = False
    hosts: list[str] = []


class LeaseInfo(Value):
    """A lease as its holder and others see it.

    epoch: grows with each lease on the same devices; agents refuse an old one.
    ttl: seconds from one renewal to the end. expires_in: seconds left when this was said.
    devices: the offsets in routing order that the lease covers; empty means all.
    hosts: where its instances run, as far as that was said. state: HELD; or FENCING: it is over,
    but nobody gets its devices before what `waits_for` names has confirmed its part.
    move: its launch is asked to end within `move_within` seconds, and to say so by `Move` with this
    word; empty: it is not, or no longer. errors: of its partition, in the reply to a renewal.
    """

    id: str
    partition: str
    epoch: int
    holder: str = ""
    owner: str = ""
    ttl: float = 300.0
    expires_in: float = 0.0
    parent: str = ""
    devices: list[int] = []
    hosts: list[str] = []
    state: str = "HELD"
    waits_for: list[str] = []
    move: str = ""
    move_within: float = 0.0
    errors: list[str] = []


class PartitionInfo(Value):
    """A partition as it stands. gcds: the devices of each GCD, in routing order.

    owner, creator: user names or `anonymous`. job: the scheduler's job, or empty.
    times are seconds since 1970: created_at and auto_reset_last by the system's clock, until by the
    store's. ilds: the link domains it lies in.
    until: when its creator said that it would no longer be needed; 0: never said.
    hosts: to which its devices are attached, in equal shares in routing order; empty where they are
    no pool's.
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
    reconfigurable: bool = False
    ready_state: ReadyState = ReadyState.PENDING
    operation_state: OperationState = OperationState.IDLE
    errors: list[str] = []
    gcds: list[list[DeviceRef]] = []
    ilds: list[int] = []
    owner: str = ""
    owner_uid: int = -1
    creator: str = ""
    job: str = ""
    epoch: int = 0
    created_at: float = 0.0
    auto_reset: bool = True
    relocatable: bool = False
    auto_reset_count: int = 0
    auto_reset_max: int = 0
    auto_reset_last: float = 0.0
    leases: list[LeaseInfo] = []
    server_version: str = ""
    simulated: bool = False
    until: float = 0.0
    movable: bool = False
    hosts: list[str] = []


class ServerInfoRequest(Value):
    """A server is asked for its description of itself and of its caller."""


class ServerInfo(Value):
    """What a server is and can do.

    apis: of `virmgrpc` and `podwright.v1`. host, port: where its gRPC answers.
    caller, role: who the server takes the asker for.
    counters: what it did since its start: `calls`, `commits`.
    standby: it answers nothing else, since another one is active: that one's words in `active`.
    page: where its page is for browsers, `http://host:port/`; empty where there is none.
    fabric: what joins devices of several machines, such as `NMX-M`; empty where nothing does.
    fabric_age: seconds since it was last read and compared; -1: not since the server's start.
    fabric_problem: why the last attempt to read it failed; empty: it did not.
    read_only: why it changes nothing for now, as when its store's disk is full; empty: it does.
    """

    version: str
    apis: list[str] = []
    host: str = ""
    port: int = 0
    caller: str = "anonymous"
    role: str = "reader"
    simulated: bool = False
    pid: int = 0
    clusters: list[str] = []
    counters: dict[str, int] = {}
    standby: bool = False
    active: str = ""
    page: str = ""
    fabric: str = ""
    read_only: str = ""
    fabric_age: float = -1.0
    fabric_problem: str = ""


class TokenRequest(Value):
    """Asks for a token bound to the caller's uid; Unix socket only.

    audience: where the token counts. Empty: in the metadata of gRPC calls, until it expires.
    `page`: in one log-in on the page of the server, once."""

    audience: str = ""


class Token(Value):
    """A token for gRPC metadata, `authorization: Bearer …`, or for one log-in on the page. ttl in
    seconds."""

    token: str
    ttl: float


class ListRequest(Value):
    """What to list. cluster, allocation: only of this one; empty for all.

    page_size: items of one answer, at most; 0: as many as the server sees fit, which may give
    fewer in any case. page_token: `next_page_token` of the answer before; empty for the first.
    """

    cluster: str = ""
    allocation: str = ""
    page_size: int = 0
    page_token: str = ""


class ClusterList(Value):
    """All clusters."""

    clusters: list[ClusterInfo] = []
    next_page_token: str = ""


class AllocationList(Value):
    """All allocations the caller may see."""

    allocations: list[AllocationInfo] = []
    next_page_token: str = ""


class DeviceList(Value):
    """Devices, in the order of cluster, domain, offset."""

    devices: list[DeviceInfo] = []
    next_page_token: str = ""


class PartitionList(Value):
    """Partitions, in the order of their names."""

    partitions: list[PartitionInfo] = []
    next_page_token: str = ""


class LeaseList(Value):
    """Leases, in the order of their ids; those that are over and FENCING, too."""

    leases: list[LeaseInfo] = []
    next_page_token: str = ""


class CreateRequest(Value):
    """Create a partition. wait: answer when it is ACTIVE or in ERROR, not at once.
    duration: seconds for which it will be needed, so that others know what to expect; 0: unknown.
    owner, owner_uid, job: whose it will be, and for which job of a scheduler's, where schedulers
    and administrators ask in somebody's name. guest: the name under which the scheduler enqueues.

    request_id: chosen by a client that may have to ask again, since the answer got lost; asked
    twice under one id, it is done once. So in the requests below.
    """

    spec: PartitionSpec
    wait: bool = True
    request_id: str = ""
    duration: float = 0.0
    owner: str = ""
    owner_uid: int = -1
    job: str = ""
    guest: str = ""


class PartitionName(Value):
    """A partition, by its name. attach: the reply also has the addresses of its devices."""

    name: str
    attach: bool = False


class ResetRequest(Value):
    """Reset a partition's devices. force: although somebody holds a lease on it."""

    name: str
    relocatable: bool = False
    wait: bool = True
    force: bool = False
    request_id: str = ""


class RemoveRequest(Value):
    """Remove a partition. force: ignore errors, and leases of others (owner, administrator).

    job: only while it is for this job of a scheduler's, in the words that it was created with;
    empty: whosever it is. One that is for another counts as not found.
    """

    name: str
    force: bool = False
    wait: bool = True
    request_id: str = ""
    job: str = ""


class Empty(Value):
    """Nothing to say."""


class AcquireRequest(Value):
    """Find or create a partition and hold it, in one step.

    spec: what is needed; spec.name empty means the only one there is, or a new one.
    create: one that is missing may be created (and, unless `keep`, goes with the lease).
    update: one that does not fit may be removed and created anew.
    reset: before use; None means: yes, unless it is reconfigurable.
    holder: who holds it, in words for others to read. ttl: seconds without a renewal after which
    it is over and its devices are fenced, at most 3600; renew it every few seconds.
    hosts: where its instances will run. run: the value of PODWRIGHT_RUN in the environment of all
    that it starts, by which the server finds what is left of it on its own host.
    parent: the lease within which this one is taken, or empty.
    duration: seconds for which it will be held, as far as that is known; 0: unknown.
    owner, owner_uid: whose the lease will be, where a scheduler or an administrator asks in
    somebody's name, on a partition that is there.
    """

    spec: PartitionSpec
    create: bool = False
    update: bool = False
    keep: bool = False
    reset: bool | None = None
    holder: str = ""
    ttl: float = 300.0
    parent: str = ""
    request_id: str = ""
    duration: float = 0.0
    owner: str = ""
    owner_uid: int = -1
    hosts: list[str] = []
    run: str = ""


class AcquireReply(Value):
    """The lease and the partition as it stands, ACTIVE. created: by this very call."""

    lease: LeaseInfo
    partition: PartitionInfo
    created: bool = False


class LeaseRequest(Value):
    """Renew or release a lease; epoch as the lease has it.

    Renew: hosts, if any, are those on which its instances run from now on. move_seconds: its
    instances can be moved, and lose so many seconds by it; 0: they cannot.
    Release: who releases says that its instances are gone, on all hosts, or on `hosts` alone; the
    others may say so later, by the same call. confirmed false: nobody knows that they are gone.
    What is not confirmed is fenced at the devices, or waited for (OperationState.FENCING).
    force: an administrator knows better; nothing is waited for.
    """

    id: str
    epoch: int
    hosts: list[str] = []
    confirmed: bool = True
    force: bool = False
    move_seconds: float = 0.0


class BackupRequest(Value):
    """The store as of one instant, for an administrator."""


class BackupReply(Value):
    """content: the text of a backup file."""

    content: str


class ErrorBody(Value):
    """A refusal as it travels (wire.PodwrightError)."""

    code: str
    message: str
    type: str = ""
    asked: str = ""
    problem: str = ""
    would_work: str = ""
    data: dict[str, Any] = {}


_ABOUT_PARTITION = About(ObjectKind.PARTITION)
_ABOUT_NEW_PARTITION = About(ObjectKind.PARTITION, ("spec.name",), new=True)
_ABOUT_SPEC_PARTITION = About(ObjectKind.PARTITION, ("spec.name",))
_ABOUT_LEASE = About(ObjectKind.LEASE, ("id",))

#: What answers and refusals reveal of other tenants, even where all is private (docs/security.md).
_REVEALS_CAPACITY = "which devices are free, taken, down or drained"
_REVEALS_DRAINS = f"{_REVEALS_CAPACITY}; who drained a machine, when and why"
_REVEALS_NAME_AND_CAPACITY = (
    "that a name is taken; in a refusal, how many devices are free, the size of the largest free "
    "block, how many partitions of others stand in the way and for how many waiters devices are "
    "kept; by the numbers of epochs and leases, how many there were"
)
_REVEALS_NEED_TO_MOVE = "that others need the devices, where the launch is asked to move"
_REVEALS_COUNTERS = "how many calls, commits and moves there were"

CALLS = (
    Method(
        "GetServerInfo",
        ServerInfoRequest,
        ServerInfo,
        EVERYBODY,
        Repeat.CHANGES_NOTHING,
        reveals=_REVEALS_COUNTERS,
    ),
    # Available on the Unix socket alone, where the kernel vouches for the uid to which the token
    # is bound.
    Method(
        "IssueToken",
        TokenRequest,
        Token,
        EVERYBODY._replace(anonymous=May.NO),
        Repeat.CHANGES_NOTHING,
    ),
    Method(
        "ListClusters",
        ListRequest,
        ClusterList,
        EVERYBODY,
        Repeat.CHANGES_NOTHING,
        reveals=_REVEALS_DRAINS,
    ),
    Method(
        "ListAllocations",
        ListRequest,
        AllocationList,
        EVERYBODY,
        Repeat.CHANGES_NOTHING,
        reveals=_REVEALS_CAPACITY,
    ),
    Method(
        "ListDevices",
        ListRequest,
        DeviceList,
        EVERYBODY,
        Repeat.CHANGES_NOTHING,
        reveals=_REVEALS_DRAINS,
    ),
    Method("ListPartitions", ListRequest, PartitionList, EVERYBODY, Repeat.CHANGES_NOTHING),
    Method("ListLeases", ListRequest, LeaseList, EVERYBODY, Repeat.CHANGES_NOTHING),
    Method(
        "GetPartition",
        PartitionName,
        PartitionInfo,
        EVERYBODY,
        Repeat.CHANGES_NOTHING,
        _ABOUT_PARTITION,
    ),
    Method(
        "CreatePartition",
        CreateRequest,
        PartitionInfo,
        CREATORS,
        Repeat.REQUEST_ID,
        _ABOUT_NEW_PARTITION,
        reveals=_REVEALS_NAME_AND_CAPACITY,
    ),
    Method(
        "ResetPartition", ResetRequest, PartitionInfo, CREATORS, Repeat.REQUEST_ID, _ABOUT_PARTITION
    ),
    Method("RemovePartition", RemoveRequest, Empty, CREATORS, Repeat.REQUEST_ID, _ABOUT_PARTITION),
    Method(
        "Acquire",
        AcquireRequest,
        AcquireReply,
        CREATORS,
        Repeat.REQUEST_ID,
        _ABOUT_SPEC_PARTITION,
        AuditEntry.LEASE,
        reveals=_REVEALS_NAME_AND_CAPACITY,
    ),
    # The heartbeat of a lease. It is not an event and is kept in memory only.
    Method(
        "Renew",
        LeaseRequest,
        LeaseInfo,
        CREATORS,
        Repeat.SAME,
        _ABOUT_LEASE,
        AuditEntry.NOTHING,
        stored=False,
        reveals=_REVEALS_NEED_TO_MOVE,
    ),
    Method("Release", LeaseRequest, Empty, CREATORS, Repeat.SAME, _ABOUT_LEASE),
    Method("Backup", BackupRequest, BackupReply, repeat=Repeat.CHANGES_NOTHING),
)
