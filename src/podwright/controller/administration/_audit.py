"""Who did what, when, from where, and how it ended: kept with the state, never changed.

Two kinds of records make the audit. An intent says who asked for what; it is in the very commit
that makes the change (`_audit_intents`). An event says how that ended, or what was refused, or
what the server found by itself; it travels with the next commit and is written a moment later at
the latest. A crash between the two loses no change: the next start sees an intent without an event
and adds one. It may lose a refusal, which changed nothing. Only events are shown.

The oldest go when there are too many, or when they are too old. Changes, refusals, and the calls of
unknown callers have a hash chain each (`_audit_chain`), so none of them can push another out.
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
from typing import Final

import msgspec

from podwright.controller.administration import _event_log
from podwright.controller.administration._audit_chain import (
    ANCHOR_KIND,
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

EVENT_KIND: Final = "event"
INTENT_KIND: Final = "intent"
MAX_EVENTS: Final = 10_000  #: events of a kind: changes, refusals, and those of anonymous callers
KEEP_S: Final = 30 * 86400.0  #: seconds
DETAIL_LIMIT: Final = 500  #: characters: what the command said
PAGE_EVENTS: Final = 1000  #: events of one answer
SERVER_CALLER: Final = Caller("server", None, Role.ADMINISTRATOR, "server")
MAX_WAIT_S: Final = 60.0  #: seconds
#: The outcome of a change whose server ended before it could say: it was written, and the next
#: start has finished or undone what it needed of machines.
RECOVERED_OUTCOME: Final = "RECOVERED"
CHAIN_NAMES: Final = ("change", "refusal", "anonymous")
_SURPLUS_PART: Final = 64  #: one of so many events of a kind is the most that waits to be pruned
_PRUNING_PART: Final = 1 / 1000  #: of `keep_seconds`: how often events are looked at for their age
_encode_json = msgspec.json.Encoder().encode


class IntentRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Who asked for what. at: seconds since 1970."""

    number: int
    at: float
    who: str
    what: str
    origin: str = ""
    about: str = ""
    owner: str = ""


class _EventIntent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an event's record says beside the event. intent: the number of the one that it ends."""

    intent: int = 0


class SealedEvent(EventInfo, frozen=True, kw_only=True):
    """All that an event's record says, for a check of the store: see `AuditChainPlace`."""

    intent: int = 0
    chain: str = ""
    generation: int = 0
    position: int = 0
    hash: str = ""


class SealedIntent(IntentRecord, frozen=True, kw_only=True):
    """All that an intent's record says, as `SealedEvent`."""

    chain: str = ""
    generation: int = 0
    position: int = 0
    hash: str = ""


class _ChainEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a chain that is in the store. generation, position, digest: its place there."""

    kind: str
    key: str
    at: float
    generation: int
    position: int
    digest: str


class Audit:
    """The events. clock: seconds since 1970, never backwards. wall_clock: what the clock on the
    wall shows, for people.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Callable[[], float],
        *,
        wall_clock: Callable[[], float] | None = None,
        event_limit: int = MAX_EVENTS,
        keep_seconds: float = KEEP_S,
    ) -> None:
        self._journal, self._now, self._limit, self._keep = (
            journal,
            clock,
            event_limit,
            keep_seconds,
        )
        self._wall = wall_clock or clock
        # Each pruning costs an anchor, so some more than `event_limit` may gather before the next
        # one.
        self._event_surplus = event_limit // _SURPLUS_PART
        self._next_pruning_at = -math.inf
        self._events: dict[str, deque[EventInfo]] = {name: deque() for name in CHAIN_NAMES}
        #: The same events, by chain and by the person who caused or owns what they are about.
        self._own_events: dict[tuple[str, str], deque[EventInfo]] = {}
        self._entries: dict[str, deque[_ChainEntry]] = {name: deque() for name in CHAIN_NAMES}
        self._chains = {name: AuditChainEnd(name) for name in CHAIN_NAMES}
        self._last = 0
        self._open: dict[int, IntentRecord] = {}
        self._new_event = asyncio.Event()

    @property
    def heads(self) -> list[Head]:
        """The last entry of each chain that has one."""
        return [chain.head for chain in self._chains.values() if chain.position]

    def load(self, records: Mapping[tuple[str, str], bytes]) -> None:
        """Load the audit from the store. `recover` then adds events for intents without one."""
        entries: list[tuple[int, str, _ChainEntry]] = []
        closed_intents: set[int] = set()
        for (record_kind, record_key), record_bytes in records.items():
            if record_kind == EVENT_KIND:
                event = msgspec.json.decode(record_bytes, type=EventInfo)
                closed_intents.add(msgspec.json.decode(record_bytes, type=_EventIntent).intent)
                chain_name = msgspec.json.decode(
                    record_bytes, type=AuditChainPlace
                ).chain or _chain_of(event)
                self._events[chain_name].append(event)
                entry_number, recorded_at = event.number, event.at
            elif record_kind == INTENT_KIND:
                intent = msgspec.json.decode(record_bytes, type=IntentRecord)
                self._open[intent.number] = intent
                entry_number, recorded_at = intent.number, intent.at
                chain_name = _chain_of_caller(intent.who)
            else:
                continue
            chain_place = msgspec.json.decode(record_bytes, type=AuditChainPlace)
            chain_entry = _ChainEntry(
                record_kind,
                record_key,
                recorded_at,
                chain_place.generation,
                chain_place.position,
                chain_place.hash,
            )
            entries.append((entry_number, chain_name, chain_entry))
        for entry_number, chain_name, chain_entry in sorted(entries, key=lambda entry: entry[0]):
            self._entries[chain_name].append(chain_entry)
            self._chains[chain_name].go_on(
                chain_entry.generation, chain_entry.position, chain_entry.digest
            )
            self._last = entry_number
        for chain_name, events in self._events.items():
            self._events[chain_name] = deque(sorted(events, key=_event_number))
            for event in self._events[chain_name]:
                self._add_to_own(chain_name, event)
        for (record_kind, _), record_bytes in records.items():
            if record_kind == ANCHOR_KIND:
                anchor = msgspec.json.decode(record_bytes, type=AnchorRecord)
                self._chains[anchor.chain].go_on(anchor.generation, anchor.position, anchor.digest)
        for entry_number in closed_intents:
            self._open.pop(entry_number, None)

    def recover(self) -> None:
        """Add an event for each change that was committed before its server ended."""
        for intent_number, intent in sorted(self._open.items()):
            event = EventInfo(
                number=self._next_number(),
                at=self._wall(),
                who=intent.who,
                origin=intent.origin,
                what=intent.what,
                about=intent.about,
                outcome=RECOVERED_OUTCOME,
                detail="the server ended before it could answer",
                owner=intent.owner,
            )
            self._write_event(event, intent=intent_number)
        self._open = {}

    def new_intent(self, caller: Caller, action: str, about: str, owner: str) -> Intent:
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
            number=self._next_number(),
            at=self._wall(),
            who=caller.name,
            origin=caller.origin,
            what=action,
            about=_printable_text(about),
            outcome=error.code if error else "OK",
            detail=_printable_text(error.message if error else detail)[:DETAIL_LIMIT],
            owner=owner,
        )
        intent_number = 0
        if intent is not None:
            intent.closed, intent_number = True, intent.number
        _event_log.log(event, own=caller is SERVER_CALLER)
        self._write_event(event, intent=intent_number)

    def _intent_record(self, intent: Intent) -> Put:
        """An intent's record; it goes into a commit at once, before anything else is numbered."""
        caller = intent.caller
        record = IntentRecord(
            number=self._next_number(),
            at=self._wall(),
            who=caller.name,
            origin=caller.origin,
            what=intent.action,
            about=_printable_text(intent.about),
            owner=intent.owner,
        )
        intent.number = record.number
        chain_name = _chain_of_caller(caller.name)
        return self._sealed_entry(
            chain_name, INTENT_KIND, record.number, record.at, _encode_json(record)
        )

    def _write_event(self, event: EventInfo, *, intent: int) -> None:
        # What has an intent changed something, however it ended.
        name = _chain_of_caller(event.who) if intent else _chain_of(event)
        event_bytes = _encode_json(event)
        if intent:
            event_bytes = event_bytes[:-1] + f',"intent":{intent}}}'.encode()
        events = self._events[name]
        events.append(event)
        self._add_to_own(name, event)
        self._journal.later(
            self._sealed_entry(name, EVENT_KIND, event.number, event.at, event_bytes)
        )
        if len(events) > self._limit + self._event_surplus or event.at >= self._next_pruning_at:
            self._prune()
        self._new_event.set()

    def _sealed_entry(
        self,
        chain_name: str,
        record_kind: str,
        entry_number: int,
        recorded_at: float,
        record_bytes: bytes,
    ) -> Put:
        chain = self._chains[chain_name]
        sealed_bytes = chain.seal_entry(record_bytes)
        key = f"{entry_number:016d}"
        chain_entry = _ChainEntry(
            record_kind, key, recorded_at, chain.generation, chain.position, chain.digest
        )
        self._entries[chain_name].append(chain_entry)
        return Put(record_kind, key, sealed_bytes)

    def _prune(self) -> None:
        """Drop the oldest entries and store the anchor of the rest, in one commit."""
        now = self._wall()
        cutoff = now - self._keep
        self._next_pruning_at = now + self._keep * _PRUNING_PART
        for chain_name, entries in self._entries.items():
            events = self._events[chain_name]
            anchor: _ChainEntry | None = None
            while entries and (len(events) > self._limit or entries[0].at < cutoff):
                oldest_entry = entries.popleft()
                self._journal.later(Delete(oldest_entry.kind, oldest_entry.key))
                if oldest_entry.kind == EVENT_KIND:
                    self._drop_from_own(chain_name, events.popleft())
                if oldest_entry.position:
                    anchor = oldest_entry
            if anchor is not None:
                anchor_record = AnchorRecord(
                    chain=chain_name,
                    generation=anchor.generation,
                    position=anchor.position,
                    digest=anchor.digest,
                    reason="pruned",
                    at=now,
                )
                self._journal.later(anchor_record.put)

    def _add_to_own(self, chain_name: str, event: EventInfo) -> None:
        for person in {event.who, event.owner}:
            self._own_events.setdefault((chain_name, person), deque()).append(event)

    def _drop_from_own(self, chain_name: str, event: EventInfo) -> None:
        """Forget the oldest event of a chain: it is also the oldest of each person's there."""
        for person in {event.who, event.owner}:
            own_events = self._own_events[chain_name, person]
            own_events.popleft()
            if not own_events:
                del self._own_events[chain_name, person]

    def _visible_chains(self, caller: Caller) -> list[deque[EventInfo]]:
        """The events of each chain that a caller may see, in order."""
        if caller.role is Role.ADMINISTRATOR:
            return list(self._events.values())
        own_chains = (self._own_events.get((name, caller.name)) for name in CHAIN_NAMES)
        return [events for events in own_chains if events is not None]

    def _next_number(self) -> int:
        """A number above all before. It grows with time and not by one: whoever may see a part of
        the events learns nothing from its numbers of those between them."""
        self._last = max(self._last + 1, int(self._now() * 1e6))
        return self._last

    async def list(self, caller: Caller, request: EventsRequest) -> EventList:
        """Events after a number; administrators see all, others their own.

        Waits up to the request's timeout where there is none. Raises InvalidRequest.
        """
        if not (0 <= request.timeout <= MAX_WAIT_S and 0 < request.limit <= PAGE_EVENTS):
            raise InvalidRequest(
                f"a timeout of {request.timeout:g} s or {request.limit} events at once will not do",
                operation="list events",
                would_work=f"use at most {MAX_WAIT_S:g} s and {PAGE_EVENTS} events",
            )
        event_list = self._events_after(caller, request)
        if not event_list.events and request.timeout:
            with suppress(TimeoutError):
                async with asyncio.timeout(request.timeout):
                    while not event_list.events:
                        self._new_event.clear()
                        await self._new_event.wait()
                        event_list = self._events_after(caller, request)
        return event_list

    def newest(self, caller: Caller, limit: int) -> EventList:
        """The newest events that a caller may see, the oldest of them first."""
        newest_events = merge(
            *map(reversed, self._visible_chains(caller)), key=lambda event: -event.number
        )
        events = list(islice(newest_events, limit))[::-1]
        return EventList(events=events, last=events[-1].number if events else 0)

    def _events_after(self, caller: Caller, request: EventsRequest) -> EventList:
        chains = self._visible_chains(caller)
        later_events = (
            dropwhile(lambda event: event.number <= request.since, events)
            for events in chains
            if events and events[-1].number > request.since
        )
        events = list(islice(merge(*later_events, key=_event_number), request.limit))
        if events:
            return EventList(events=events, last=events[-1].number)
        # The last that this caller may see: of others' events not even the number is told.
        last_numbers = (events[-1].number for events in chains if events)
        return EventList(events=[], last=max(last_numbers, default=0))


def with_new_chains(
    records: Mapping[tuple[str, str], bytes], backup_name: str
) -> dict[tuple[str, str], bytes]:
    """The records of a backup as a restore writes them: each chain of the audit begins anew.

    backup_name: written into the anchors. The new chains begin with the digest of all that the
    backup holds.
    """
    hasher = hashlib.sha256()
    for kind_and_key, record_bytes in sorted(records.items()):
        hasher.update(repr(kind_and_key).encode() + record_bytes)
    digest = hasher.hexdigest()
    anchor_puts = [
        anchor.put
        for anchor in new_generations(
            records, CHAIN_NAMES, digest, f"restored from {backup_name} (sha256 {digest[:16]})"
        )
    ]
    return {**records, **{(put.kind, put.key): put.body for put in anchor_puts}}


def _chain_of(event: EventInfo) -> str:
    return _chain_of_caller(event.who, event.outcome in ("OK", RECOVERED_OUTCOME))


def _chain_of_caller(caller_name: str, changed: bool = True) -> str:
    return "anonymous" if caller_name == ANONYMOUS else "change" if changed else "refusal"


def _event_number(event: EventInfo) -> int:
    return event.number


def _printable_text(text: str) -> str:
    """Text from callers, made safe for a store and a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)
