"""An administrator's calls about users and their rights."""

from __future__ import annotations

import asyncio
from functools import partial

from podwright.controller.administration import _users as users
from podwright.controller.calls._call_services import Services
from podwright.controller.calls._done_once import done_once, gone_before, gone_since
from podwright.controller.calls._list_pages import ListPage
from podwright.controller.state._caller import Caller
from podwright.controller.state._request_ids import Remembered
from podwright.controller.state._shielded import to_its_end
from podwright.errors import WrongState
from podwright.wire import (
    Empty,
    ListRequest,
    Named,
    NewUser,
    RevokeRequest,
    UserInfo,
    UserList,
    UserRequest,
)


async def _created_before(services: Services, known: Remembered) -> NewUser:
    """The user, with a new access key: the first one is nowhere, since its answer got lost.

    Raises NotFound where that user has been removed since.
    """
    async with services.changing:
        record = services.users.named(known.name)
        if record is None or record.created_at != known.created_at:
            raise gone_since(known, "user")
        renewed, key = await asyncio.to_thread(users.with_new_key, record)
        await services.state.journal.commit([users.put_user(renewed)])
        return NewUser(user=services.users.add(renewed), access_key=key)


@done_once(_created_before)
async def create_user(services: Services, caller: Caller, request: UserRequest) -> NewUser:
    """Create a user; only this reply has the access key. Raises AlreadyExists, NotFound."""
    action = f"create user {request.name[:80]}"
    for allocation in request.allocations:
        services.state.inventory.candidates("", allocation, action)
    async with services.changing:
        make = partial(
            services.users.draft,
            request.name,
            request.role,
            tuple(request.allocations),
            services.state.wall(),
            request.uid,
        )
        record, key = await asyncio.to_thread(make)
        await services.state.journal.commit([users.put_user(record)])
        return NewUser(user=services.users.add(record), access_key=key)


async def list_users(services: Services, caller: Caller, request: ListRequest) -> UserList:
    """All users."""
    page = ListPage[UserInfo](request)
    for info in services.users.list():
        if info.name > request.page_token:
            if page.full:
                break
            page.add(info.name, info)
    return UserList(users=page.items, next_page_token=page.token)


@done_once(gone_before)
async def remove_user(services: Services, caller: Caller, request: Named) -> Empty:
    """Remove a user; its key is invalid, its partitions stay. Raises NotFound."""
    action = f"remove user {request.name[:80]}"
    async with services.changing:
        services.users.check_known(request.name, action)
        clusters = services.state.inventory.clusters.values()
        own = [
            a for cluster in clusters for a, who in cluster.closed.items() if who == request.name
        ]
        if own:
            raise WrongState(
                f"allocation {own[0]} is {request.name}'s",
                operation=action,
                would_work=f"vipu-admin remove allocation {own[0]} first",
            )
        await services.state.journal.commit([users.drop_user(request.name)])
        services.users.drop(request.name)
    return Empty()


@to_its_end
async def revoke_certificate(
    services: Services, caller: Caller, request: RevokeRequest
) -> UserInfo:
    """Revoke a certificate of a user. Raises NotFound."""
    async with services.changing:
        record = services.users.revoking(request.name, request.number)
        await services.state.journal.commit([users.put_user(record)])
        return services.users.add(record)
