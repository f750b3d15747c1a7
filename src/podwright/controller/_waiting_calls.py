"""Calls about the waiting line: join it, ask how it goes there, leave it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from podwright.controller import _lease_expiry as ends
from podwright.controller import _views as views
from podwright.controller._caller import Caller
from podwright.controller._core import Core, Entry
from podwright.controller._leases import to_info
from podwright.controller._list_pages import ListPage, bad_token
from podwright.controller._waiter import Order
from podwright.controller._waiting import Waiting
from podwright.wire import (
    Empty,
    ListRequest,
    PartitionInfo,
    WaiterInfo,
    WaiterList,
    WaiterName,
    WaitReply,
    WaitRequest,
)


class WaitingCalls:
    """The part of the controller that keeps the line."""

    _core: Core
    _waiting: Waiting
    _run: Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
    _info: Callable[[Entry], PartitionInfo]

    async def wait(self, caller: Caller, request: WaitRequest) -> WaitReply:
        """Join the waiting line, or ask how it goes there.

        Raises what CreatePartition and Acquire raise, but for NoCapacity and Held; NotFound.
        """
        waiter = await self._waiting.wait(caller, request)
        info = self._waiting.info(waiter)
        if not waiter.partition:
            return WaitReply(waiter=info)
        entry = self._core.partitions.get(waiter.partition)
        if entry is None or entry.record is None:
            raise self._core.missing(waiter.partition, waiter.action)
        lease = self._core.leases.get(waiter.lease)
        if waiter.lease and lease is None:
            raise ends.over(waiter.lease, waiter.action)
        return WaitReply(
            waiter=info,
            partition=self._info(entry),
            lease=to_info(lease, entry.known.size, self._core.now()) if lease else None,
            created=waiter.created,
        )

    async def leave(self, caller: Caller, request: WaiterName) -> Empty:
        """Leave the waiting line. Raises NotFound, Denied."""
        await self._run(self._waiting.leave(caller, request.id))
        return Empty()

    async def list_waiters(self, caller: Caller, request: ListRequest) -> WaiterList:
        """The waiting line, first first."""
        views.check_filters(self._core, request, "list waiters")
        page = ListPage[WaiterInfo](request)
        behind = _order(request.page_token)
        for place, waiter in enumerate(self._waiting.line, 1):
            if waiter.order <= behind or not (
                request.cluster in ("", waiter.spec.cluster)
                and request.allocation in ("", waiter.spec.allocation)
            ):
                continue
            if page.full:
                break
            page.add(_token(waiter.order), self._waiting.info(waiter, place))
        return WaiterList(waiters=page.items, next_page_token=page.token)


def _token(order: Order) -> str:
    return f"{order[0]}/{order[1]!r}/{order[2]}"


def _order(token: str) -> Order:
    """Raises InvalidRequest for a token of no list."""
    if not token:
        return (-sys.maxsize, 0.0, "")
    try:
        priority, since, name = token.split("/")
        return int(priority), float(since), name
    except ValueError:
        raise bad_token(token) from None
