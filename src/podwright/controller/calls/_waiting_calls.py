"""Calls about the queue: join it, ask for a waiter's state, leave it."""

from __future__ import annotations

import sys
from typing import Final

from podwright.controller.calls import _object_replies as views
from podwright.controller.calls._call_context import Services
from podwright.controller.calls._list_pages import ListPage, bad_page_token
from podwright.controller.partitions import _lease_lifetime as ends
from podwright.controller.queue._waiter import WaiterOrder
from podwright.controller.state._caller import Caller
from podwright.controller.state._leases import lease_info_of
from podwright.controller.state._request_ids import RememberedRequest, RequestId
from podwright.errors import InvalidRequest
from podwright.wire import (
    Empty,
    ListRequest,
    WaiterInfo,
    WaiterList,
    WaiterName,
    WaitReply,
    WaitRequest,
)

MAX_WAIT_S: Final = 60.0  #: seconds of one answer


async def wait(services: Services, caller: Caller, request: WaitRequest) -> WaitReply:
    """Join the queue, or ask for the waiter's state.

    Raises what CreatePartition and Acquire raise, but for NoCapacity and Held; NotFound.
    """
    if not 0 <= request.timeout <= MAX_WAIT_S:
        raise InvalidRequest(
            f"an answer cannot take {request.timeout:g} s",
            operation="wait",
            would_work=f"use a timeout from 0 to {MAX_WAIT_S:g} s, and ask again",
        )
    waiting = services.waiting
    waiter_id = request.id or await waiting.join(caller, request)
    waiter = await waiting.hear(caller, waiter_id, request.timeout)
    waiter_info = services.waiting.info(waiter)
    if not waiter.partition:
        return WaitReply(waiter=waiter_info)
    entry = services.state.partitions.get(waiter.partition)
    if entry is None or entry.record is None:
        raise services.state.missing(waiter.partition, waiter.action, caller)
    lease = services.state.leases.get(waiter.lease)
    if waiter.lease and lease is None:
        raise ends.over(waiter.lease, waiter.action)
    return WaitReply(
        waiter=waiter_info,
        partition=services.info(entry),
        lease=lease_info_of(lease, entry.known.size, services.state.now()) if lease else None,
        created=waiter.created,
    )


async def leave(services: Services, caller: Caller, request: WaiterName) -> Empty:
    """Leave the queue. Raises NotFound, Denied."""

    async def leave() -> Empty:
        await services.waiting.leave(caller, request.id)
        return Empty()

    async def left_before(earlier_request: RememberedRequest) -> Empty | None:
        return None if services.waiting.waits(request.id) else Empty()

    request_id = RequestId(caller.name, "Leave", request.request_id, request.id)
    return await services.requests.once(request_id, leave, left_before)


async def list_waiters(services: Services, caller: Caller, request: ListRequest) -> WaiterList:
    """The waiters in the order of the queue."""
    views.check_filters(services.state, request, "list waiters")
    page = ListPage[WaiterInfo](request)
    order = _parse_page_token(request.page_token)
    for queue_place, waiter in enumerate(services.waiting.line, 1):
        if waiter.order <= order or not (
            services.state.sight.waiter(caller, waiter.record.name)
            and request.cluster in ("", waiter.spec.cluster)
            and request.allocation in ("", waiter.spec.allocation)
        ):
            continue
        if page.full:
            break
        page.add(_page_token(waiter.order), services.waiting.info(waiter, queue_place))
    return WaiterList(waiters=page.items, next_page_token=page.token)


def _page_token(order: WaiterOrder) -> str:
    return f"{order[0]}/{order[1]!r}/{order[2]}"


def _parse_page_token(page_token: str) -> WaiterOrder:
    """Raises InvalidRequest for a token of no list."""
    if not page_token:
        return (-sys.maxsize, 0.0, "")
    try:
        priority, joined_at, waiter_id = page_token.split("/")
        return int(priority), float(joined_at), waiter_id
    except ValueError:
        raise bad_page_token(page_token) from None
