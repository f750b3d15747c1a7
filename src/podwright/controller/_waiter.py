"""Somebody in the waiting line: what for, since when, and how it ended. Values only."""

from __future__ import annotations

import asyncio
from typing import Final

from podwright.controller._caller import Caller, Role
from podwright.controller._records import Record
from podwright.controller._spec import CheckedSpec
from podwright.errors import PodwrightError
from podwright.wire import AcquireRequest, CreateRequest, PartitionSpec

Order = tuple[int, float, str]  #: who comes first: priority, then age
WAITER: Final = "waiter"


class WaiterRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A waiter as it is written down, so that a restart costs nobody his place."""

    id: str
    since: float
    name: str
    role: Role
    uid: int = -1
    origin: str = "unix"
    priority: int = 0
    create: CreateRequest | None = None
    acquire: AcquireRequest | None = None


class Waiter:
    """A waiter in memory. target: the partition that it waits for, if it is that and not devices.

    seen: when it last asked. asking: calls of its that are being answered now.
    """

    __slots__ = (
        "_checked", "action", "asking", "changed", "created", "delivered", "error", "gone", "lease",
        "partition", "record", "seen", "starting", "target", "waited",
    )  # fmt: skip

    def __init__(self, record: WaiterRecord, action: str, seen: float) -> None:
        self.record = record
        self.action = action
        self._checked: CheckedSpec | None = None
        self.seen = seen
        self.asking = 0
        self.target = ""
        self.starting = self.gone = self.delivered = self.created = self.waited = False
        self.error: PodwrightError | None = None
        self.partition = ""
        self.lease = ""
        self.changed = asyncio.Event()

    @property
    def id(self) -> str:
        """Its id."""
        return self.record.id

    @property
    def order(self) -> Order:
        """Its place among others: the smaller is served first."""
        return -self.record.priority, self.record.since, self.record.id

    @property
    def spec(self) -> PartitionSpec:
        """What it wants."""
        wanted = self.record.create or self.record.acquire
        assert wanted is not None
        return wanted.spec

    @property
    def checked(self) -> CheckedSpec:
        """The same, checked once. Raises InvalidRequest."""
        if self._checked is None:
            self._checked = CheckedSpec(self.spec, self.action)
        return self._checked

    @property
    def duration(self) -> float:
        """Seconds for which it wants it; 0: unknown."""
        wanted = self.record.create or self.record.acquire
        assert wanted is not None
        return wanted.duration

    @property
    def creates(self) -> bool:
        """Whether it can do with a partition that is not there yet."""
        acquire = self.record.acquire
        return acquire is None or ((acquire.create or acquire.update) and not acquire.parent)

    @property
    def caller(self) -> Caller:
        """Who waits."""
        uid = None if self.record.uid < 0 else self.record.uid
        return Caller(self.record.name, uid, self.record.role, self.record.origin)

    @property
    def ended(self) -> bool:
        """Whether it got what it wanted, or cannot."""
        return bool(self.error or self.partition)

    def fail(self, error: PodwrightError) -> None:
        """It cannot have it."""
        self.error = error
        self.changed.set()
