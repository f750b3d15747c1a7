"""The values of podwright.v1 about what waits, why, how much one may have, and what happened."""

from __future__ import annotations

from podwright.wire._method import EVERYBODY, THEIR_OWN, WAITERS, Method, Repeat
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
    """Join the waiting line, or ask how it goes there.

    id: as an earlier reply gave it; empty to join. create or acquire: what is wanted, when joining.
    priority: the higher is served first; above 0 for administrators and schedulers alone.
    timeout: seconds for which the answer may keep its asker waiting, at most 60. One who does
    not ask again for 30 seconds has left the line.
    """

    id: str = ""
    create: CreateRequest | None = None
    acquire: AcquireRequest | None = None
    priority: int = 0
    timeout: float = 0.0


class WaiterInfo(Value):
    """Somebody in the waiting line. state: WAITING, STARTING or DONE.

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
    """Somebody in the waiting line, by id."""

    id: str


class WaiterList(Value):
    """The waiting line, first first."""

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
    fragmented: enough are free, but no block is. down, drained: machines. kept_for: waiters.
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
    """Something that happened. number: grows by one. at: seconds since 1970.

    who, origin: the caller, or `server`. what: the call, or what the server did. about: to what.
    outcome: OK or the code of the refusal. owner: whose the thing is.
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


class MachineName(Value):
    """A machine, by its name."""

    name: str


CALLS = (
    # A waiter's questions: no event says that one still waits.
    Method("Wait", WaitRequest, WaitReply, WAITERS, Repeat.ID, audited=False),
    Method("Leave", WaiterName, Empty, WAITERS),
    Method("ListWaiters", ListRequest, WaiterList, EVERYBODY, Repeat.READS),
    Method("Explain", ExplainRequest, Explanation, EVERYBODY, Repeat.READS),
    Method("SetQuota", QuotaInfo, QuotaInfo, repeat=Repeat.SAME),
    Method("ListQuotas", ListRequest, QuotaList, THEIR_OWN, Repeat.READS),
    Method("ListEvents", EventsRequest, EventList, THEIR_OWN, Repeat.READS),
    Method("DrainMachine", MachineName, Empty, repeat=Repeat.SAME),
    Method("ResumeMachine", MachineName, Empty, repeat=Repeat.SAME),
)
