"""A waiter in the queue: what it waits for, since when, and how it ended. Values only."""

from __future__ import annotations

import asyncio

from podwright.controller.requests._spec import CheckedSpec
from podwright.controller.state._caller import Caller, Role
from podwright.controller.state._records import Record
from podwright.errors import PodwrightError
from podwright.wire import AcquireRequest, CreateRequest, PartitionSpec

WaiterOrder = tuple[int, float, str]  #: who comes first: priority, then age


class WaiterRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A waiter as it is stored, so that a restart keeps its place.

    request_id: of the call that joined. acknowledges: its client says when it has what it was
    given. partition, created_at, created, lease: what that is, once it is served. acknowledged: its
    client has it. names_given: the build that wrote this record names what is given in it.
    """

    id: str
    since: float
    name: str
    role: Role
    uid: int = -1
    origin: str = "unix"
    priority: int = 0
    create: CreateRequest | None = None
    acquire: AcquireRequest | None = None
    request_id: str = ""
    acknowledges: bool = False
    partition: str = ""
    created_at: float = 0.0
    created: bool = False
    lease: str = ""
    acknowledged: bool = False
    names_given: bool = False


class Waiter:
    """A waiter in memory.

    target: the partition that it waits for; empty while it waits for devices. seen: when it last
    asked. asking: how many of its calls are being answered now. reported: an answer has named what
    it was given. refused: its failure is durable. cancelled: it has left the queue. tag: the
    virtual time of all people when it became the first; None: it was not yet.
    """

    __slots__ = (
        "_checked", "action", "asking", "cancelled", "changed", "created", "error", "lease",
        "partition", "record", "refused", "reported", "seen", "starting", "tag", "target", "waited",
    )  # fmt: skip

    def __init__(self, record: WaiterRecord, action: str, seen: float) -> None:
        self.record = record
        self.action = action
        self._checked: CheckedSpec | None = None
        self.seen = seen
        self.asking = 0
        self.target = ""
        self.tag: float | None = None
        self.starting = self.cancelled = self.created = self.waited = False
        self.reported = self.refused = False
        self.error: PodwrightError | None = None
        self.partition = ""
        self.lease = ""
        self.changed = asyncio.Event()

    @property
    def id(self) -> str:
        """The id of the waiter."""
        return self.record.id

    @property
    def order(self) -> WaiterOrder:
        """The rank of the waiter: the smallest is served first."""
        return -self.record.priority, self.record.since, self.record.id

    @property
    def spec(self) -> PartitionSpec:
        """The partition that it requests."""
        request = self.record.create or self.record.acquire
        assert request is not None
        return request.spec

    @property
    def checked(self) -> CheckedSpec:
        """The same, checked once. Raises InvalidRequest."""
        if self._checked is None:
            request = self.record.acquire
            hosts = request.hosts if request is not None else ()
            self._checked = CheckedSpec(self.spec, self.action, launch_hosts=hosts)
        return self._checked

    @property
    def duration(self) -> float:
        """Seconds for which it wants the partition; 0: unknown."""
        request = self.record.create or self.record.acquire
        assert request is not None
        return request.duration

    @property
    def creates(self) -> bool:
        """Whether a new partition may be created for it."""
        request = self.record.acquire
        return request is None or ((request.create or request.update) and not request.parent)

    @property
    def caller(self) -> Caller:
        """The caller who waits."""
        uid = None if self.record.uid < 0 else self.record.uid
        return Caller(self.record.name, uid, self.record.role, self.record.origin)

    @property
    def settled(self) -> bool:
        """Whether it was served or has failed."""
        return bool(self.error or self.partition)

    @property
    def owed(self) -> bool:
        """Whether it was given something that its client has not acknowledged."""
        return bool(self.partition) and not self.record.acknowledged

    def give(self, partition: str, lease: str, *, created: bool) -> None:
        """Record what the waiter was given, and wake its callers."""
        self.starting = False
        self.partition, self.lease, self.created = partition, lease, created
        self.changed.set()

    def fail(self, error: PodwrightError) -> None:
        """Record that the request failed, and wake its callers."""
        self.error = error
        self.changed.set()
