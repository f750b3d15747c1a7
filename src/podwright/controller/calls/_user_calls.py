"""An administrator's calls about users and their rights."""

from __future__ import annotations

import asyncio
from functools import partial

from podwright.controller.administration import _users as users
from podwright.controller.calls._call_context import Services
from podwright.controller.calls._idempotent_calls import (
    answer_repeated_removal,
    done_once,
    removed_since_error,
)
from podwright.controller.calls._list_pages import ListPage
from podwright.controller.state._caller import Caller
from podwright.controller.state._request_ids import RememberedRequest
from podwright.controller.state._shielded_tasks import uninterruptible
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


async def _user_created_before(services: Services, earlier_request: RememberedRequest) -> NewUser:
    """The user, with a new access key: the first one is nowhere, since its answer got lost.

    Raises NotFound where that user has been removed since.
    """
    async with services.changing:
        record = services.users.named(earlier_request.name)
        if record is None or record.created_at != earlier_request.created_at:
            raise removed_since_error(earlier_request, "user")
        renewed_record, key = await asyncio.to_thread(users.with_new_key, record)
        await services.state.journal.commit([users.put_user(renewed_record)])
        return NewUser(user=services.users.add(renewed_record), access_key=key)


@done_once(_user_created_before)
async def create_user(services: Services, caller: Caller, request: UserRequest) -> NewUser:
    """Create a user; only this reply has the access key. Raises AlreadyExists, NotFound."""
    action = f"create user {request.name[:80]}"
    for allocation in request.allocations:
        services.state.inventory.candidates("", allocation, action)
    async with services.changing:
        draft_user = partial(
            services.users.draft,
            request.name,
            request.role,
            tuple(request.allocations),
            services.state.wall(),
            request.uid,
        )
        record, access_key = await asyncio.to_thread(draft_user)
        await services.state.journal.commit([users.put_user(record)])
        return NewUser(user=services.users.add(record), access_key=access_key)


async def list_users(services: Services, caller: Caller, request: ListRequest) -> UserList:
    """All users."""
    page = ListPage[UserInfo](request)
    for info in services.users.list():
        if info.name > request.page_token:
            if page.full:
                break
            page.add(info.name, info)
    return UserList(users=page.items, next_page_token=page.token)


@done_once(answer_repeated_removal)
async def remove_user(services: Services, caller: Caller, request: Named) -> Empty:
    """Remove a user; its key is invalid, its partitions stay. Raises NotFound."""
    action = f"remove user {request.name[:80]}"
    async with services.changing:
        services.users.check_known(request.name, action)
        clusters = services.state.inventory.clusters.values()
        own_allocations = [
            allocation
            for cluster in clusters
            for allocation, scheduler in cluster.closed.items()
            if scheduler == request.name
        ]
        if own_allocations:
            raise WrongState(
                f"allocation {own_allocations[0]} is {request.name}'s",
                operation=action,
                would_work=f"vipu-admin remove allocation {own_allocations[0]} first",
            )
        await services.state.journal.commit([users.drop_user(request.name)])
        services.users.drop(request.name)
    return Empty()


@uninterruptible
async def revoke_certificate(
    services: Services, caller: Caller, request: RevokeRequest
) -> UserInfo:
    """Revoke a certificate of a user. Raises NotFound."""
    async with services.changing:
        record = services.users.with_revoked(request.name, request.number)
        await services.state.journal.commit([users.put_user(record)])
        return services.users.add(record)
