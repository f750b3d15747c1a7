"""The values of podwright.v1 for the queue, explanations, quotas, events and the audit."""

from __future__ import annotations

from podwright.wire._method import (
    EVERYBODY,
    OWN_OBJECTS_ONLY,
    WAITERS,
    About,
    AuditEntry,
    Method,
    ObjectKind,
    Repeat,
)
from podwright.wire._value import Value
from podwright.wire._values import (
    AcquireRequest,
    CreateRequest,
    Empty,
    LeaseInfo,
    ListRequest,
    PartitionInfo,
    PartitionSpec,
)


class WaitRequest(Value):
    """Join the queue, or ask how it goes there.

    id: as an earlier reply gave it; empty to join. create or acquire: what is wanted, when joining.
    priority: the higher is served first; above 0 for administrators and schedulers alone.
    timeout: seconds for which the answer may keep its asker waiting, at most 60. One who does
    not ask again for 30 seconds has left the queue.

    request_id: as `CreateRequest` has it; who joins twice under one id has one place in the queue.
    The id of `create` or `acquire` counts where this one is empty.
    acknowledges: the client will acknowledge what it was given, by another call with its `id` or by
    any call on the partition or the lease. The server takes back what is not acknowledged within
    45 seconds. Without this, the answer that names the partition acknowledges it.
    """

    id: str = ""
    create: CreateRequest | None = None
    acquire: AcquireRequest | None = None
    priority: int = 0
    timeout: float = 0.0
    request_id: str = ""
    acknowledges: bool = False


class WaiterInfo(Value):
    """Somebody in the queue. state: WAITING, STARTING or DONE.

    place: from 1. asked: what for. needs: what it waits for, in words. since: seconds since 1970.
    estimate: seconds until it can start, as far as others said how long they need; 0: unknown.
    reserved: devices that are free and kept for it.
    """

    id: str
    owner: str = ""
    state: str = "WAITING"
    place: int = 0
    asked: str = ""
    needs: str = ""
    priority: int = 0
    since: float = 0.0
    estimate: float = 0.0
    reserved: int = 0


class WaitReply(Value):
    """How it stands. partition, and lease where one was asked for: once it is DONE."""

    waiter: WaiterInfo
    partition: PartitionInfo | None = None
    lease: LeaseInfo | None = None
    created: bool = False


class WaiterName(Value):
    """Somebody in the queue, by id. request_id: as `CreateRequest` has it."""

    id: str
    request_id: str = ""


class WaiterList(Value):
    """The queue. The waiter that is served first comes first."""

    waiters: list[WaiterInfo] = []
    next_page_token: str = ""


class Standing(Value):
    """A partition that stands in the way. ends_in: seconds, where its creator said; 0: unknown."""

    partition: str
    owner: str = ""
    size: int = 0
    holders: list[str] = []
    ends_in: float = 0.0


class ExplainRequest(Value):
    """Why. spec or acquire: of this request, were it made now; or name: of what there is.

    What there is: a waiter, a lease, a partition. for_job: the request would be a scheduler's,
    for a job; so whether its allocation is the caller's to create in is not asked.
    """

    name: str = ""
    spec: PartitionSpec | None = None
    duration: float = 0.0
    acquire: AcquireRequest | None = None
    for_job: bool = False


class Explanation(Value):
    """Why something cannot start now; the `data` of NoCapacity is the same.

    problem: the rule in the way. lines: all that stands in the way, a sentence each.
    free, largest: devices, and the largest request of that kind that would start now.
    fragmented: enough are free, but no block is. down, drained: machines. drain_reasons: of those
    of `drained` for which one was given. kept_for: waiters.
    nearest: the request nearest to this one that would start at once, if any.
    """

    asked: str = ""
    starts_now: bool = False
    problem: str = ""
    would_work: str = ""
    lines: list[str] = []
    free: int = 0
    largest: int = 0
    fragmented: bool = False
    partitions: list[Standing] = []
    down: list[str] = []
    drained: list[str] = []
    kept_for: list[str] = []
    nearest: PartitionSpec | None = None
    drain_reasons: dict[str, str] = {}


class QuotaInfo(Value):
    """How much a user, an allocation, or a user in an allocation may have; -1: no limit."""

    user: str = ""
    allocation: str = ""
    devices: int = -1
    partitions: int = -1
    used_devices: int = 0
    used_partitions: int = 0


class QuotaList(Value):
    """All quotas that the caller may see."""

    quotas: list[QuotaInfo] = []
    next_page_token: str = ""


class EventInfo(Value):
    """Something that happened. number: grows with time, not by one. at: seconds since 1970.

    who, origin: the caller, or `server`. what: the call, or what the server did. about: to what.
    outcome: OK, the code of the refusal, or RECOVERED for a change that was written before its
    server ended and that the next start finished or undid. owner: the owner of that thing.
    """

    number: int
    at: float
    who: str
    what: str
    origin: str = ""
    about: str = ""
    outcome: str = "OK"
    detail: str = ""
    owner: str = ""


class EventsRequest(Value):
    """Events after the number `since`. timeout: seconds to wait for one, at most 60."""

    since: int = 0
    timeout: float = 0.0
    limit: int = 1000


class EventList(Value):
    """Events, oldest first. last: what to ask for next as `since`."""

    events: list[EventInfo] = []
    last: int = 0


class AuditRequest(Value):
    """A look at the audit. heads: what its chains must contain, as the log of the server has it."""

    heads: list[str] = []


class AuditChain(Value):
    """A chain, of one generation. head: its last entry. entries: how many it has. anchor: how it
    begins, if not with its first entry. problems: sentences; none where it is as it was written."""

    head: str
    entries: int = 0
    anchor: str = ""
    problems: list[str] = []


class AuditReport(Value):
    """All chains of the audit."""

    chains: list[AuditChain] = []


class MachineName(Value):
    """A machine, by its name."""

    name: str


class DrainRequest(Value):
    """A machine is to take nothing new. reason: for everybody who sees that it is drained."""

    name: str
    reason: str = ""


_ABOUT_WAITER = About(ObjectKind.WAITER, ("id",))
_ABOUT_MACHINE = About(ObjectKind.MACHINE)
_ABOUT_QUOTA = About(ObjectKind.QUOTA, ("user", "allocation"))

#: What answers and refusals reveal of other tenants, even where all is private (docs/security.md).
_REVEALS_QUEUE = "that a name is taken; how many wait ahead, and when devices become free"
_REVEALS_QUEUE_LENGTH = "how many wait ahead of the caller's own waiters"
_REVEALS_REFUSAL_REASONS = (
    "how many devices are free, the size of the largest free block, how many partitions of others "
    "stand in the way, for how many waiters devices are kept, and which request would start now"
)
_REVEALS_SHARED_QUOTA = "what others use of a quota that is for everybody in an allocation"

CALLS = (
    # The calls by which a waiter keeps its place. No event records that it still waits.
    Method(
        "Wait",
        WaitRequest,
        WaitReply,
        WAITERS,
        Repeat.WAITER,
        _ABOUT_WAITER,
        AuditEntry.NOTHING,
        reveals=_REVEALS_QUEUE,
    ),
    Method("Leave", WaiterName, Empty, WAITERS, Repeat.REQUEST_ID, _ABOUT_WAITER),
    Method(
        "ListWaiters",
        ListRequest,
        WaiterList,
        EVERYBODY,
        Repeat.CHANGES_NOTHING,
        reveals=_REVEALS_QUEUE_LENGTH,
    ),
    Method(
        "Explain",
        ExplainRequest,
        Explanation,
        EVERYBODY,
        Repeat.CHANGES_NOTHING,
        reveals=_REVEALS_REFUSAL_REASONS,
    ),
    Method(
        "SetQuota",
        QuotaInfo,
        QuotaInfo,
        repeat=Repeat.SAME,
        about=_ABOUT_QUOTA,
    ),
    Method(
        "ListQuotas",
        ListRequest,
        QuotaList,
        OWN_OBJECTS_ONLY,
        Repeat.CHANGES_NOTHING,
        reveals=_REVEALS_SHARED_QUOTA,
    ),
    Method(
        "ListEvents",
        EventsRequest,
        EventList,
        OWN_OBJECTS_ONLY,
        Repeat.CHANGES_NOTHING,
    ),
    Method("VerifyAudit", AuditRequest, AuditReport, repeat=Repeat.CHANGES_NOTHING),
    Method("DrainMachine", DrainRequest, Empty, repeat=Repeat.SAME, about=_ABOUT_MACHINE),
    Method("ResumeMachine", MachineName, Empty, repeat=Repeat.SAME, about=_ABOUT_MACHINE),
)
