"""Who did what, when, from where, and how it ended: kept with the state, never changed.

Two kinds of records make the audit. An intent says who asked for what; it is in the very commit
that makes the change (`_audit_intents`). An event says how that ended, or what was refused, or
what the server found by itself; it travels with the next commit and is written a moment later at
the latest. A crash between the two loses no change: the next start sees an intent without an event
and adds one. It may lose a refusal, which changed nothing. Only events are shown.

The oldest go when there are too many, or when they are too old. What changed something, what was
refused, and what callers did whom nobody knows are kept apart, each in a hash chain of its own
(`_audit_chain`): none of them can push another out.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from heapq import merge
from itertools import dropwhile, islice
from typing import Final, NamedTuple

import msgspec

from podwright.controller.administration import _event_log
from podwright.controller.administration._audit_chain import (
    ANCHOR,
    AnchorRecord,
    AuditChainEnd,
    AuditChainPlace,
    Head,
    new_generations,
)
from podwright.controller.state._audit_intents import Intent
from podwright.controller.state._caller import ANONYMOUS, Caller, Role
from podwright.controller.state._journal import Journal
from podwright.controller.state._records import Record
from podwright.errors import InvalidRequest, PodwrightError
from podwright.store import Delete, Put
from podwright.wire import EventInfo, EventList, EventsRequest

EVENT: Final = "event"
INTENT: Final = "intent"
MOST: Final = 10_000  #: events of a kind: changes, refusals, and those of anonymous callers
KEEP: Final = 30 * 86400.0  #: seconds
DETAIL: Final = 500  #: characters: what the command said
PAGE: Final = 1000  #: events of one answer
SERVER: Final = Caller("server", None, Role.ADMINISTRATOR, "server")
MAX_WAIT: Final = 60.0  #: seconds
#: The outcome of a change whose server ended before it could say: it was written, and the next
#: start has finished or undone what it needed of machines.
RECOVERED: Final = "RECOVERED"
CHAINS: Final = ("change", "refusal", "anonymous")
_SURPLUS_PART: Final = 64  #: one of so many events of a kind is the most that waits to be pruned
_LOOK_PART: Final = 1 / 1000  #: of `keep`: how often events are looked at for their age
_encode = msgspec.json.Encoder().encode


class IntentRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Who asked for what. at: seconds since 1970."""

    number: int
    at: float
    who: str
    what: str
    origin: str = ""
    about: str = ""
    owner: str = ""


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an event's record says beside the event. intent: the number of the one that it ends."""

    intent: int = 0


class _Kept(NamedTuple):
    """An entry of a chain that is in the store. generation, position, digest: its place there."""

    kind: str
    key: str
    at: float
    generation: int
    position: int
    digest: str


class Audit:
    """The events. now: seconds since 1970, never backwards. wall: what the clock on the wall shows,
    for people."""

    def __init__(
        self,
        journal: Journal,
        now: Callable[[], float],
        *,
        wall: Callable[[], float] | None = None,
        most: int = MOST,
        keep: float = KEEP,
    ) -> None:
        self._journal, self._now, self._limit, self._keep = journal, now, most, keep
        self._wall = wall or now
        # Each pruning costs an anchor, so some more than `most` may gather before the next one.
        self._surplus = most // _SURPLUS_PART
        self._next_pruning = -math.inf
        self._events: dict[str, deque[EventInfo]] = {name: deque() for name in CHAINS}
        self._entries: dict[str, deque[_Kept]] = {name: deque() for name in CHAINS}
        self._chains = {name: AuditChainEnd(name) for name in CHAINS}
        self._last = 0
        self._open: dict[int, IntentRecord] = {}
        self._news = asyncio.Event()

    @property
    def heads(self) -> list[Head]:
        """The last entry of each chain that has one."""
        return [chain.head for chain in self._chains.values() if chain.position]

    def load(self, records: Mapping[tuple[str, str], bytes]) -> None:
        """Load the audit from the store. `recover` then adds events for intents without one."""
        entries: list[tuple[int, str, _Kept]] = []
        closed_intents: set[int] = set()
        for (kind, key), body in records.items():
            if kind == EVENT:
                event = msgspec.json.decode(body, type=EventInfo)
                closed_intents.add(msgspec.json.decode(body, type=_Outcome).intent)
                name = msgspec.json.decode(body, type=AuditChainPlace).chain or _chain_of(event)
                self._events[name].append(event)
                number, recorded_at = event.number, event.at
            elif kind == INTENT:
                intent = msgspec.json.decode(body, type=IntentRecord)
                self._open[intent.number] = intent
                number, recorded_at = intent.number, intent.at
                name = _chain_of_caller(intent.who)
            else:
                continue
            place = msgspec.json.decode(body, type=AuditChainPlace)
            stored = _Kept(kind, key, recorded_at, place.generation, place.position, place.hash)
            entries.append((number, name, stored))
        for number, name, stored in sorted(entries, key=lambda entry: entry[0]):
            self._entries[name].append(stored)
            self._chains[name].go_on(stored.generation, stored.position, stored.digest)
            self._last = number
        for name, events in self._events.items():
            self._events[name] = deque(sorted(events, key=_number))
        for (kind, _), body in records.items():
            if kind == ANCHOR:
                anchor = msgspec.json.decode(body, type=AnchorRecord)
                self._chains[anchor.chain].go_on(anchor.generation, anchor.position, anchor.digest)
        for number in closed_intents:
            self._open.pop(number, None)

    def recover(self) -> None:
        """Add an event for each change that was committed before its server ended."""
        for number, intent in sorted(self._open.items()):
            event = EventInfo(
                number=self._next(),
                at=self._wall(),
                who=intent.who,
                origin=intent.origin,
                what=intent.what,
                about=intent.about,
                outcome=RECOVERED,
                detail="the server ended before it could answer",
                owner=intent.owner,
            )
            self._write(event, intent=number)
        self._open = {}

    def intend(self, caller: Caller, action: str, about: str, owner: str) -> Intent:
        """A call that is about to begin; see `_audit_intents`."""
        return Intent(self._intent_record, caller, action, about, owner)

    def record_event(
        self,
        caller: Caller,
        action: str,
        about: str,
        *,
        owner: str = "",
        error: PodwrightError | None = None,
        detail: str = "",
        intent: Intent | None = None,
    ) -> None:
        """Record an event. about: the thing that it concerns. owner: the user whose thing that is.

        intent: that of the call which this event ends; it is closed.
        """
        event = EventInfo(
            number=self._next(),
            at=self._wall(),
            who=caller.name,
            origin=caller.origin,
            what=action,
            about=_clean(about),
            outcome=error.code if error else "OK",
            detail=_clean(error.message if error else detail)[:DETAIL],
            owner=owner,
        )
        number = 0
        if intent is not None:
            intent.closed, number = True, intent.number
        _event_log.log(event, own=caller is SERVER)
        self._write(event, intent=number)

    def _intent_record(self, intent: Intent) -> Put:
        """An intent's record; it goes into a commit at once, before anything else is numbered."""
        caller = intent.caller
        record = IntentRecord(
            number=self._next(),
            at=self._wall(),
            who=caller.name,
            origin=caller.origin,
            what=intent.action,
            about=_clean(intent.about),
            owner=intent.owner,
        )
        intent.number = record.number
        name = _chain_of_caller(caller.name)
        return self._sealed(name, INTENT, record.number, record.at, _encode(record))

    def _write(self, event: EventInfo, *, intent: int) -> None:
        # What has an intent changed something, however it ended.
        name = _chain_of_caller(event.who) if intent else _chain_of(event)
        body = _encode(event)
        if intent:
            body = body[:-1] + f',"intent":{intent}}}'.encode()
        events = self._events[name]
        events.append(event)
        self._journal.later(self._sealed(name, EVENT, event.number, event.at, body))
        if len(events) > self._limit + self._surplus or event.at >= self._next_pruning:
            self._prune()
        self._news.set()

    def _sealed(self, name: str, kind: str, number: int, recorded_at: float, body: bytes) -> Put:
        chain = self._chains[name]
        sealed = chain.sealed(body)
        key = f"{number:016d}"
        stored = _Kept(kind, key, recorded_at, chain.generation, chain.position, chain.digest)
        self._entries[name].append(stored)
        return Put(kind, key, sealed)

    def _prune(self) -> None:
        """Drop the oldest entries and store the anchor of the rest, in one commit."""
        now = self._wall()
        before = now - self._keep
        self._next_pruning = now + self._keep * _LOOK_PART
        for name, entries in self._entries.items():
            events = self._events[name]
            anchor: _Kept | None = None
            while entries and (len(events) > self._limit or entries[0].at < before):
                oldest = entries.popleft()
                self._journal.later(Delete(oldest.kind, oldest.key))
                if oldest.kind == EVENT:
                    events.popleft()
                if oldest.position:
                    anchor = oldest
            if anchor is not None:
                record = AnchorRecord(
                    chain=name,
                    generation=anchor.generation,
                    position=anchor.position,
                    digest=anchor.digest,
                    reason="pruned",
                    at=now,
                )
                self._journal.later(record.put)

    def _next(self) -> int:
        """A number above all before. It grows with time and not by one: whoever may see a part of
        the events learns nothing from its numbers of those between them."""
        self._last = max(self._last + 1, int(self._now() * 1e6))
        return self._last

    async def list(self, caller: Caller, request: EventsRequest) -> EventList:
        """Events after a number; administrators see all, others their own.

        Waits up to the request's timeout where there is none. Raises InvalidRequest.
        """
        if not (0 <= request.timeout <= MAX_WAIT and 0 < request.limit <= PAGE):
            raise InvalidRequest(
                f"a timeout of {request.timeout:g} s or {request.limit} events at once will not do",
                operation="list events",
                would_work=f"use at most {MAX_WAIT:g} s and {PAGE} events",
            )
        listed = self._after(caller, request)
        if not listed.events and request.timeout:
            with suppress(TimeoutError):
                async with asyncio.timeout(request.timeout):
                    while not listed.events:
                        self._news.clear()
                        await self._news.wait()
                        listed = self._after(caller, request)
        return listed

    def _after(self, caller: Caller, request: EventsRequest) -> EventList:
        later = (
            dropwhile(lambda event: event.number <= request.since, events)
            for events in self._events.values()
            if events and events[-1].number > request.since
        )
        visible = (event for event in merge(*later, key=_number) if _may_see(caller, event))
        events = list(islice(visible, request.limit))
        if events:
            return EventList(events=events, last=events[-1].number)
        # The last that this caller may see: of others' events not even the number is told.
        seen = (
            next((e.number for e in reversed(log) if _may_see(caller, e)), 0)
            for log in self._events.values()
        )
        return EventList(events=[], last=max(seen))


def with_new_chains(
    records: Mapping[tuple[str, str], bytes], backup: str
) -> dict[tuple[str, str], bytes]:
    """The records of a backup as a restore writes them: each chain of the audit begins anew.

    backup: its name. The new chains begin with the digest of all that it holds.
    """
    hasher = hashlib.sha256()
    for place, body in sorted(records.items()):
        hasher.update(repr(place).encode() + body)
    digest = hasher.hexdigest()
    changes = [
        anchor.put
        for anchor in new_generations(
            records, CHAINS, digest, f"restored from {backup} (sha256 {digest[:16]})"
        )
    ]
    return {**records, **{(put.kind, put.key): put.body for put in changes}}


def _chain_of(event: EventInfo) -> str:
    return _chain_of_caller(event.who, event.outcome in ("OK", RECOVERED))


def _chain_of_caller(who: str, changed: bool = True) -> str:
    return "anonymous" if who == ANONYMOUS else "change" if changed else "refusal"


def _number(event: EventInfo) -> int:
    return event.number


def _may_see(caller: Caller, event: EventInfo) -> bool:
    return caller.role is Role.ADMINISTRATOR or caller.name in (event.who, event.owner)


def _clean(text: str) -> str:
    """Text from callers, made safe for a store and a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)
