"""The newest events of the page: as many as it shows, however far apart in time they lie."""

from __future__ import annotations

from typing import Any, cast

import pytest

from podwright.controller import Caller, Role
from podwright.page import EVENTS
from podwright.server._dispatch_calls import Calls
from podwright.server._page_backend import PageServer, PageVisitor
from podwright.wire import EventInfo, EventList, EventsRequest

ROOT = Caller("root", 0, Role.ADMINISTRATOR, "unix")


@pytest.mark.parametrize("apart", [1, 10**6, 3600 * 10**6])
@pytest.mark.parametrize("count", [0, 1, EVENTS, 2500])
async def test_events_are_found_whatever_their_numbers(apart: int, count: int) -> None:
    """apart: microseconds between two events, as their numbers count them."""
    numbers = [10**15 + place * apart for place in range(count)]
    events = [
        EventInfo(number=n, at=n / 1e6, who="root", what="CreatePartition", about="p", outcome="OK")
        for n in numbers
    ]

    async def calls(caller: Caller, method: object, request: EventsRequest) -> EventList:
        later = [event for event in events if event.number > request.since]
        last = numbers[-1] if numbers else 0
        return EventList(events=later[: request.limit], last=last)

    server = PageServer(cast(Calls, cast(Any, calls)), lambda: None)
    found = await server.listed(PageVisitor(ROOT), "ListEvents")
    shown = [event.number for event in found.events]
    assert shown == numbers[len(numbers) - len(shown) :]
    assert len(shown) >= min(EVENTS, count)
