"""Request ids: a repeated request has its effect once.

A client whose answer was lost cannot tell whether its request was carried out. It repeats the
request, to this server or to the one that has taken over. A request with an id is recorded in the
very commit that makes its effect durable, so a crash leaves both or neither. Repeated under the
same id, it is not carried out again.

Which commit this is depends on the call. For a partition, a lease and a place in the queue it is
the commit that writes that record, since other commits may precede it: leases on a partition end
before it is reset, and a replaced partition is removed first. For every other call it is the first
commit that the call causes.

The commit asks a context variable, which every task that the call starts inherits. A task that
works for somebody else sets its own (`carry_record_of`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from podwright.controller.state._records import (
    LEASE,
    PARTITION,
    WAITER,
    PartitionRecord,
    Record,
    decode,
)
from podwright.controller.state._shielded_tasks import await_shielded
from podwright.errors import InvalidRequest
from podwright.store import Change, Delete, Put
from podwright.wire import OperationState

REQUEST_KIND: Final = "request"
REMEMBERED_S: Final = 300.0  #: seconds that an id is remembered; clients ask again within ten
MAX_REMEMBERED: Final = 50_000  #: ids remembered at once; then the oldest goes
MAX_ID_CHARS: Final = 64  #: characters of an id

#: By method: the step whose beginning is its effect, as the partition's record has it.
_STEP_BY_METHOD: Final[Mapping[str, OperationState]] = {
    "CreatePartition": OperationState.CREATING,
    "ResetPartition": OperationState.RESETTING,
    "RemovePartition": OperationState.REMOVING,
}
#: By method: the kind of record that is its effect. That of every other method is its first commit.
_EFFECT_KIND_BY_METHOD: Final[Mapping[str, str]] = {
    **dict.fromkeys(_STEP_BY_METHOD, PARTITION),
    "Acquire": LEASE,
    "Wait": WAITER,
}

_T = TypeVar("_T")


class _CreatedRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What records of several kinds have in common: when their object was created."""

    created_at: float = 0.0


class RememberedRequest(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What a request did. at: when. name: its object, made at `created_at` where that is known. For
    Wait it is the waiter's id. lease: its id. created: Acquire made the partition.
    """

    method: str
    name: str
    at: float
    created_at: float = 0.0
    lease: str = ""
    created: bool = False


class RequestId(NamedTuple):
    """Which request it is, whenever it is asked. id: drawn by the caller's client; empty: none.

    name: the object that it is about, where that is known.
    """

    caller: str
    method: str
    id: str
    name: str = ""

    @property
    def key(self) -> str:
        """The key of the record that remembers the request's outcome."""
        return f"{self.caller}/{self.id}"


class Spawn(Protocol):
    """How work is begun that must not end with its caller."""

    def __call__(self, work: Coroutine[Any, Any, Any], /) -> asyncio.Task[Any]: ...


class Pending(Protocol):
    """Waits for the commit that makes its effect durable, and adds a record of its own to it."""

    def added(self, changes: Sequence[Change], /) -> Sequence[Change]:
        """The changes of a commit, with that record if one of them is the effect."""


class _PendingRequest:
    def __init__(self, requests: Requests, request: RequestId) -> None:
        self.requests, self.request = requests, request
        self.done = False

    def added(self, changes: Sequence[Change]) -> Sequence[Change]:
        """See `Pending`."""
        effect_change = None if self.done else next(filter(self._is_effect, changes), None)
        if effect_change is None:
            return changes
        self.done = True
        remembered = self._remembered_outcome(changes, effect_change)
        self.requests.remember(self.request.key, remembered)
        return [*changes, Put(REQUEST_KIND, self.request.key, msgspec.json.encode(remembered))]

    def _is_effect(self, change: Change) -> bool:
        method = self.request.method
        kind = _EFFECT_KIND_BY_METHOD.get(method)
        if kind is None:
            return True
        if not isinstance(change, Put) or change.kind != kind:
            return False
        if kind != PARTITION:
            return True
        state = decode(PartitionRecord, change.body).operation
        return change.key == self.request.name and state is _STEP_BY_METHOD[method]

    def _remembered_outcome(
        self, changes: Sequence[Change], effect_change: Change
    ) -> RememberedRequest:
        method, now = self.request.method, self.requests.now()
        if method == "Wait":
            return RememberedRequest(method=method, name=effect_change.key, at=now)
        lease_id = effect_change.key if method == "Acquire" else ""
        if method not in _EFFECT_KIND_BY_METHOD:
            created_at = (
                decode(_CreatedRecord, effect_change.body).created_at
                if isinstance(effect_change, Put)
                else 0.0
            )
            return RememberedRequest(
                method=method, name=self.request.name, at=now, created_at=created_at
            )
        partition_record = last_partition_in(changes, "" if lease_id else self.request.name)
        return RememberedRequest(
            method=method,
            name=partition_record.name if partition_record else self.request.name,
            at=now,
            created_at=partition_record.created_at if partition_record else 0.0,
            lease=lease_id,
            created=partition_record is not None
            and partition_record.operation is OperationState.CREATING,
        )


def last_partition_in(
    changes: Sequence[Change], partition_name: str = ""
) -> PartitionRecord | None:
    """The last record of a partition among changes. partition_name: of this one alone."""
    record = None
    for change in changes:
        if (
            isinstance(change, Put)
            and change.kind == PARTITION
            and partition_name in ("", change.key)
        ):
            record = decode(PartitionRecord, change.body)
    return record


_current_request: ContextVar[Pending | None] = ContextVar("request", default=None)


def with_request(changes: Sequence[Change]) -> Sequence[Change]:
    """The changes, and with them what records that they are the effect of a request."""
    pending_request = _current_request.get()
    return changes if pending_request is None else pending_request.added(changes)


def carry_record_of(pending: Pending) -> None:
    """Let the commits of this task, and of those that it starts, carry a record of `pending`."""
    _current_request.set(pending)


class Requests:
    """The ids of requests that were done, and of those under way.

    write_later: has a change written with the next commit.
    """

    def __init__(
        self, write_later: Callable[[Change], None], now: Callable[[], float], spawn: Spawn
    ) -> None:
        self._later, self.now, self._spawn = write_later, now, spawn
        self._done: dict[str, RememberedRequest] = {}
        self._under_way: dict[str, asyncio.Task[Any]] = {}

    def load(self, records: Mapping[tuple[str, str], bytes]) -> None:
        """Load the requests that were done before."""
        pairs = [
            (key, decode(RememberedRequest, record_json))
            for (kind, key), record_json in records.items()
            if kind == REQUEST_KIND
        ]
        self._done = dict(sorted(pairs, key=lambda key_and_record: key_and_record[1].at))

    def remember(self, request_key: str, remembered: RememberedRequest) -> None:
        """Remember that a request was done, and forget those that are too old."""
        self._done[request_key] = remembered
        for old_key, record in list(_first_remembered(self._done, 2)):
            if old_key != request_key and (
                remembered.at - record.at > REMEMBERED_S or len(self._done) > MAX_REMEMBERED
            ):
                del self._done[old_key]
                self._later(Delete(REQUEST_KIND, old_key))

    def forget(self, request_key: str) -> None:
        """Forget a request that had no effect; repeated, it is carried out."""
        self._done.pop(request_key, None)

    async def once(
        self,
        request: RequestId,
        start_work: Callable[[], Coroutine[Any, Any, _T]],
        repeat_answer: Callable[[RememberedRequest], Awaitable[_T | None]],
    ) -> _T:
        """Do `start_work` once, however often it is requested under one id; without an id, always
        do it.

        The work goes on if the caller disconnects. repeat_answer: returns the answer of work that
        was done before, or None if its effect is gone; the work is then done again. Raises
        wire.InvalidRequest for a malformed id, and for one that belongs to another request.
        """
        if not request.id:
            return await await_shielded(self._spawn(start_work()))
        if len(request.id) > MAX_ID_CHARS or not request.id.isprintable():
            raise InvalidRequest(
                "the request's id is too long or not printable",
                operation=request.method,
                would_work=f"use at most {MAX_ID_CHARS} printable characters, drawn at random",
            )
        request_key = request.key
        if (request_task := self._under_way.get(request_key)) is None:
            request_task = self._spawn(self._begin_or_repeat(request, start_work, repeat_answer))
            self._under_way[request_key] = request_task
            request_task.add_done_callback(lambda _: self._under_way.pop(request_key, None))
        return await await_shielded(request_task)

    async def _begin_or_repeat(
        self,
        request: RequestId,
        start_work: Callable[[], Coroutine[Any, Any, _T]],
        repeat_answer: Callable[[RememberedRequest], Awaitable[_T | None]],
    ) -> _T:
        remembered = self._done.get(request.key)
        if remembered is not None:
            if remembered.method != request.method or (
                request.name and remembered.name != request.name
            ):
                raise InvalidRequest(
                    "this request's id was another request's",
                    operation=request.method,
                    would_work="draw a new one for each request",
                )
            outcome = await repeat_answer(remembered)
            if outcome is not None:
                return outcome
        carry_record_of(_PendingRequest(self, request))
        return await start_work()


def _first_remembered(
    remembered_by_key: Mapping[str, RememberedRequest], limit: int
) -> list[tuple[str, RememberedRequest]]:
    return [
        key_and_record
        for key_and_record, _ in zip(remembered_by_key.items(), range(limit), strict=False)
    ]
