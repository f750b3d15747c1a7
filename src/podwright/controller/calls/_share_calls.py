"""An administrator's calls about the weights of the common queue (`_guest_queue`)."""

from __future__ import annotations

from typing import Final

from podwright.controller.calls._call_services import Services
from podwright.controller.calls._list_pages import ListPage, after
from podwright.controller.calls._scheduler_queues import LONGEST_GUEST
from podwright.controller.queue._shares import LEAST_WEIGHT, MOST_WEIGHT, is_weight
from podwright.controller.queue._stored_weights import store_weight
from podwright.controller.state._caller import Caller
from podwright.errors import InvalidRequest
from podwright.wire import ListRequest, ShareInfo, ShareList, ShareRequest

_SET: Final = "set share"


async def set_share(services: Services, caller: Caller, request: ShareRequest) -> ShareInfo:
    """Store the weight of a guest, or forget the stored one. Raises InvalidRequest."""
    name = request.guest.strip()
    if not name or len(name) > LONGEST_GUEST or not name.isprintable():
        raise InvalidRequest(
            "the request does not say whose weight it sets"
            if not name
            else f"{name[:80]!r} is not a scheduler's name",
            operation=_SET,
            would_work="name slurm, 'kubernetes NAME' or people; vipu-admin list shares shows all",
        )
    if not request.remove and not is_weight(request.weight):
        raise InvalidRequest(
            f"{request.weight:g} is not a weight",
            operation=_SET,
            would_work=f"a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}; 1 is the weight of "
            "everybody for whom none is set",
        )
    await services.run(_store(services, name, None if request.remove else request.weight))
    return _share(services, name)


async def _store(services: Services, name: str, weight: float | None) -> None:
    line = services.waiting.line
    await store_weight(services.state, line.guest_queue, name, weight)
    line.start_ready()  # it may be somebody else's turn now


async def list_shares(services: Services, caller: Caller, request: ListRequest) -> ShareList:
    """The weights of all who have one, and of all who share the pods now."""
    queue = services.waiting.line.guest_queue
    names = {*queue.names, *queue.stored_weights, *queue.option_weights}
    page = ListPage[ShareInfo](request)
    for name in after(names, request.page_token):
        if page.full:
            break
        page.add(name, _share(services, name))
    return ShareList(shares=page.items, next_page_token=page.token)


def _share(services: Services, name: str) -> ShareInfo:
    queue = services.waiting.line.guest_queue
    active = name in queue.names
    for source, weights in (("STORED", queue.stored_weights), ("OPTION", queue.option_weights)):
        if name in weights:
            return ShareInfo(guest=name, weight=weights[name], source=source, active=active)
    return ShareInfo(guest=name, active=active)
