"""Requests that are asked twice: a client whose answer got lost cannot tell whether it was done,
and asks again, this server or the one that has taken over.

A request that comes with an id is written down in the very commit that makes its effect durable,
so a crash leaves both or neither. Asked again under the same id, it is not done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

import msgspec

from podwright.controller._records import LEASE, PARTITION, PartitionRecord, Record, decode
from podwright.controller._shielded import shielded
from podwright.errors import InvalidRequest
from podwright.store import Change, Delete, Put
from podwright.wire import OperationState

REQUEST: Final = "request"
KEEP: Final = 300.0  #: seconds that an id is remembered; clients ask again within ten
MOST: Final = 50_000  #: ids remembered at once; then the oldest goes
LONGEST: Final = 64  #: characters of an id

_T = TypeVar("_T")


class Remembered(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What a request did. at: when. name: the partition, made at `created_at`. lease: its id.

    created: Acquire made the partition.
    """

    method: str
    name: str
    at: float
    created_at: float = 0.0
    lease: str = ""
    created: bool = False


class Spawn(Protocol):
    """How work is begun that must not end with its caller."""

    def __call__(self, work: Coroutine[Any, Any, Any], /) -> asyncio.Task[Any]: ...


class _PendingRequest:
    """A request under way: waits for the commit that carries its effect."""

    def __init__(self, requests: Requests, key: str, method: str, name: str) -> None:
        self.requests, self.key, self.method, self.name = requests, key, method, name
        self.done = False

    def added(self, changes: Sequence[Change]) -> Sequence[Change]:
        for change in () if self.done else changes:
            if isinstance(change, Put) and self._is_effect(change):
                self.done = True
                known = self._seen(changes, change.key)
                self.requests.remember(self.key, known)
                return [*changes, Put(REQUEST, self.key, msgspec.json.encode(known))]
        return changes

    def _is_effect(self, change: Put) -> bool:
        if self.method == "Acquire":
            return change.kind == LEASE
        return change.kind == PARTITION and change.key == self.name

    def _seen(self, changes: Sequence[Change], key: str) -> Remembered:
        lease = key if self.method == "Acquire" else ""
        name, made, created = self.name, 0.0, False
        for change in changes:
            if isinstance(change, Put) and change.kind == PARTITION:
                record = decode(PartitionRecord, change.body)
                if lease or record.name == self.name:
                    name, made = record.name, record.created_at
                    created = record.operation is OperationState.CREATING
        now = self.requests.now()
        return Remembered(
            method=self.method, name=name, at=now, created_at=made, lease=lease, created=created
        )


_current: ContextVar[_PendingRequest | None] = ContextVar("request", default=None)


def with_request(changes: Sequence[Change]) -> Sequence[Change]:
    """The changes, and with them the request that they are the effect of, if it has an id."""
    pending = _current.get()
    return changes if pending is None else pending.added(changes)


class Requests:
    """The ids of requests that were done, and of those under way.

    later: has a change written with the next commit.
    """

    def __init__(
        self, later: Callable[[Change], None], now: Callable[[], float], spawn: Spawn
    ) -> None:
        self._later, self.now, self._spawn = later, now, spawn
        self._done: dict[str, Remembered] = {}
        self._under_way: dict[str, asyncio.Task[Any]] = {}

    def load(self, records: Mapping[tuple[str, str], bytes]) -> None:
        """Remember what the store remembers."""
        found = [
            (key, decode(Remembered, body))
            for (kind, key), body in records.items()
            if kind == REQUEST
        ]
        self._done = dict(sorted(found, key=lambda entry: entry[1].at))

    def remember(self, key: str, known: Remembered) -> None:
        """A request was done; what is too old is forgotten."""
        self._done[key] = known
        for old, entry in list(_first(self._done, 2)):
            if old != key and (known.at - entry.at > KEEP or len(self._done) > MOST):
                del self._done[old]
                self._later(Delete(REQUEST, old))

    async def once(
        self,
        caller: str,
        method: str,
        name: str,
        request_id: str,
        work: Callable[[], Coroutine[Any, Any, _T]],
        again: Callable[[Remembered], Awaitable[_T | None]],
    ) -> _T:
        """The outcome of a request; see Controller._once. It goes on although the caller goes.

        Raises wire.InvalidRequest for an id that is none or belongs to another request.
        """
        if len(request_id) > LONGEST or not request_id.isprintable():
            raise InvalidRequest(
                "the request's id is too long or not printable",
                asked=method,
                would_work=f"use at most {LONGEST} printable characters, drawn at random",
            )
        key = f"{caller}/{request_id}"
        if (task := self._under_way.get(key)) is None:
            task = self._spawn(self._begin(key, method, name, work, again))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await shielded(task)

    async def _begin(
        self,
        key: str,
        method: str,
        name: str,
        work: Callable[[], Coroutine[Any, Any, _T]],
        again: Callable[[Remembered], Awaitable[_T | None]],
    ) -> _T:
        known = self._done.get(key)
        if known is not None:
            if known.method != method or (name and known.name != name):
                raise InvalidRequest(
                    "this request's id was another request's",
                    asked=method,
                    would_work="draw a new one for each request",
                )
            outcome = await again(known)
            if outcome is not None:
                return outcome
        _current.set(_PendingRequest(self, key, method, name))  # for this task, and what it starts
        return await work()


def _first(entries: Mapping[str, Remembered], count: int) -> list[tuple[str, Remembered]]:
    return [entry for entry, _ in zip(entries.items(), range(count), strict=False)]
