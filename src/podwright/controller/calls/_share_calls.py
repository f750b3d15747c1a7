"""An administrator's calls about the weights of the common queue (`_guest_first_jobs`)."""

from __future__ import annotations

from typing import Final

from podwright.controller.calls._call_context import Services
from podwright.controller.calls._list_pages import ListPage, after
from podwright.controller.calls._scheduler_queues import LONGEST_GUEST_NAME
from podwright.controller.queue._fair_share import LEAST_WEIGHT, MOST_WEIGHT, is_weight
from podwright.controller.queue._stored_weights import store_weight
from podwright.controller.state._caller import Caller
from podwright.errors import InvalidRequest
from podwright.wire import ListRequest, ShareInfo, ShareList, ShareRequest

_SET_ACTION: Final = "set share"


async def set_share(services: Services, caller: Caller, request: ShareRequest) -> ShareInfo:
    """Store the weight of a guest, or forget the stored one. Raises InvalidRequest."""
    guest_name = request.guest.strip()
    if not guest_name or len(guest_name) > LONGEST_GUEST_NAME or not guest_name.isprintable():
        raise InvalidRequest(
            "the request does not say whose weight it sets"
            if not guest_name
            else f"{guest_name[:80]!r} is not a scheduler's name",
            operation=_SET_ACTION,
            would_work="name slurm, 'kubernetes NAME' or people; vipu-admin list shares shows all",
        )
    if not request.remove and not is_weight(request.weight):
        raise InvalidRequest(
            f"{request.weight:g} is not a weight",
            operation=_SET_ACTION,
            would_work=f"use a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}; 1 is the weight of "
            "everybody for whom none is set",
        )
    await services.run(
        _store_guest_weight(services, guest_name, None if request.remove else request.weight)
    )
    return _share_info(services, guest_name)


async def _store_guest_weight(services: Services, guest_name: str, weight: float | None) -> None:
    line = services.waiting.line
    await store_weight(services.state, line.guest_queue, guest_name, weight)
    line.start_ready()  # it may be somebody else's turn now


async def list_shares(services: Services, caller: Caller, request: ListRequest) -> ShareList:
    """The weights of all who have one, and of all who share the pods now."""
    queue = services.waiting.line.guest_queue
    guest_names = {*queue.names, *queue.stored_weights, *queue.option_weights}
    page = ListPage[ShareInfo](request)
    for name in after(guest_names, request.page_token):
        if page.full:
            break
        page.add(name, _share_info(services, name))
    return ShareList(shares=page.items, next_page_token=page.token)


def _share_info(services: Services, guest_name: str) -> ShareInfo:
    queue = services.waiting.line.guest_queue
    active = guest_name in queue.names
    for weight_source, weight_by_guest in (
        ("STORED", queue.stored_weights),
        ("OPTION", queue.option_weights),
    ):
        if guest_name in weight_by_guest:
            return ShareInfo(
                guest=guest_name,
                weight=weight_by_guest[guest_name],
                source=weight_source,
                active=active,
            )
    return ShareInfo(guest=guest_name, active=active)
