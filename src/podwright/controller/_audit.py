"""Who did what, when, from where, and how it ended: kept with the state, never changed.

Events travel with the next commit, so they cost none of their own; one that nothing follows is
written a moment later. The oldest go when there are too many, or when they are too old.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

import msgspec

from podwright.controller._caller import Caller, Role
from podwright.controller._journal import Journal
from podwright.store import Delete, Put
from podwright.wire import EventInfo, EventList, EventsRequest, InvalidRequest, PodwrightError

EVENT: Final = "event"
MOST: Final = 10_000  #: events
KEEP: Final = 30 * 86400.0  #: seconds
PAGE: Final = 1000  #: events of one answer
SERVER: Final = Caller("server", None, Role.ADMINISTRATOR, "server")
MAX_WAIT: Final = 60.0  #: seconds


class Audit:
    """The events. now: seconds since 1970."""

    def __init__(
        self, journal: Journal, now: Callable[[], float], *, most: int = MOST, keep: float = KEEP
    ) -> None:
        self._journal, self._now, self._most, self._keep = journal, now, most, keep
        self._events: deque[EventInfo] = deque()
        self._last = 0
        self._news = asyncio.Event()

    def load(self, records: Mapping[tuple[str, str], bytes]) -> None:
        """What the store remembers."""
        found = [
            msgspec.json.decode(body, type=EventInfo)
            for (kind, _), body in records.items()
            if kind == EVENT
        ]
        self._events = deque(sorted(found, key=lambda event: event.number))
        self._last = self._events[-1].number if self._events else 0

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
            detail=_clean(error.problem if error else detail)[:300],
            owner=owner,
        )
        self._events.append(event)
        self._journal.later(Put(EVENT, _key(event), msgspec.json.encode(event)))
        first = self._events[0]
        while len(self._events) > self._most or event.at - first.at > self._keep:
            self._events.popleft()
            self._journal.later(Delete(EVENT, _key(first)))
            first = self._events[0]
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
        skip = request.since - self._events[0].number + 1 if self._events else 0
        later = islice(self._events, min(max(0, skip), len(self._events)), None)
        mine = (event for event in later if _may_see(caller, event))
        events = list(islice(mine, request.limit))
        last = events[-1].number if len(events) == request.limit else self._last
        return EventList(events=events, last=last)


def _may_see(caller: Caller, event: EventInfo) -> bool:
    return caller.role is Role.ADMINISTRATOR or caller.name in (event.who, event.owner)


def _clean(text: str) -> str:
    """What callers wrote, fit for a store and a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _key(event: EventInfo) -> str:
    return f"{event.number:012d}"
