"""Who did what, when, from where, and how it ended: kept with the state, never changed.

Events travel with the next commit, so they cost none of their own; one that nothing follows is
written a moment later. The oldest go when there are too many, or when they are too old. What
changed something, what was refused, and what callers did whom nobody knows are kept apart: none of
them can push another out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from heapq import merge
from itertools import dropwhile, islice
from typing import Final

import msgspec

from podwright.controller import _event_log
from podwright.controller._caller import ANONYMOUS, Caller, Role
from podwright.controller._journal import Journal
from podwright.errors import InvalidRequest, PodwrightError
from podwright.store import Delete, Put
from podwright.wire import EventInfo, EventList, EventsRequest

EVENT: Final = "event"
MOST: Final = 10_000  #: events of a kind: changes, refusals, and those of anonymous callers
KEEP: Final = 30 * 86400.0  #: seconds
DETAIL: Final = 500  #: characters: what the command said
PAGE: Final = 1000  #: events of one answer
SERVER: Final = Caller("server", None, Role.ADMINISTRATOR, "server")
MAX_WAIT: Final = 60.0  #: seconds
_KINDS: Final = ("change", "refusal", "anonymous")


class Audit:
    """The events. now: seconds since 1970."""

    def __init__(
        self, journal: Journal, now: Callable[[], float], *, most: int = MOST, keep: float = KEEP
    ) -> None:
        self._journal, self._now, self._most, self._keep = journal, now, most, keep
        self._kept: dict[str, deque[EventInfo]] = {kind: deque() for kind in _KINDS}
        self._last = 0
        self._news = asyncio.Event()

    def load(self, records: Mapping[tuple[str, str], bytes]) -> None:
        """What the store remembers."""
        found = [
            msgspec.json.decode(body, type=EventInfo)
            for (kind, _), body in records.items()
            if kind == EVENT
        ]
        for event in sorted(found, key=_number):
            self._kept[_kind(event)].append(event)
            self._last = event.number

    def tell(
        self,
        caller: Caller,
        what: str,
        about: str,
        *,
        owner: str = "",
        error: PodwrightError | None = None,
        detail: str = "",
    ) -> None:
        """Something happened. about: the thing it happened to. owner: whose that is."""
        self._last += 1
        event = EventInfo(
            number=self._last,
            at=self._now(),
            who=caller.name,
            origin=caller.origin,
            what=what,
            about=_clean(about),
            outcome=error.code if error else "OK",
            detail=_clean(error.message if error else detail)[:DETAIL],
            owner=owner,
        )
        _event_log.log(event, own=caller is SERVER)
        self._kept[_kind(event)].append(event)
        self._journal.later(Put(EVENT, _key(event), msgspec.json.encode(event)))
        for kept in self._kept.values():
            while kept and (len(kept) > self._most or event.at - kept[0].at > self._keep):
                self._journal.later(Delete(EVENT, _key(kept.popleft())))
        self._news.set()

    async def list(self, caller: Caller, request: EventsRequest) -> EventList:
        """Events after a number; administrators see all, others their own.

        Waits up to the request's timeout where there is none. Raises InvalidRequest.
        """
        if not (0 <= request.timeout <= MAX_WAIT and 0 < request.limit <= PAGE):
            raise InvalidRequest(
                f"a timeout of {request.timeout:g} s or {request.limit} events at once will not do",
                asked="list events",
                would_work=f"use at most {MAX_WAIT:g} s and {PAGE} events",
            )
        found = self._after(caller, request)
        if not found.events and request.timeout:
            with suppress(TimeoutError):
                async with asyncio.timeout(request.timeout):
                    while not found.events:
                        self._news.clear()
                        await self._news.wait()
                        found = self._after(caller, request)
        return found

    def _after(self, caller: Caller, request: EventsRequest) -> EventList:
        later = (
            dropwhile(lambda event: event.number <= request.since, kept)
            for kept in self._kept.values()
            if kept and kept[-1].number > request.since
        )
        mine = (event for event in merge(*later, key=_number) if _may_see(caller, event))
        events = list(islice(mine, request.limit))
        last = events[-1].number if len(events) == request.limit else self._last
        return EventList(events=events, last=last)


def _kind(event: EventInfo) -> str:
    if event.who == ANONYMOUS:
        return "anonymous"
    return "change" if event.outcome == "OK" else "refusal"


def _number(event: EventInfo) -> int:
    return event.number


def _may_see(caller: Caller, event: EventInfo) -> bool:
    return caller.role is Role.ADMINISTRATOR or caller.name in (event.who, event.owner)


def _clean(text: str) -> str:
    """What callers wrote, fit for a store and a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _key(event: EventInfo) -> str:
    return f"{event.number:012d}"
