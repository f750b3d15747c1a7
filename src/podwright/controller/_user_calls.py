"""An administrator's calls about users, and what those may ask for."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from podwright.controller import _users as users
from podwright.controller._caller import Caller
from podwright.controller._core import Core
from podwright.controller._exclusive_allocations import kept_out
from podwright.controller._list_pages import ListPage
from podwright.controller._privacy import Privacy
from podwright.controller._shielded import to_its_end
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
    Value,
)


class UserCalls:
    """The part of the controller that knows users."""

    _core: Core
    _users: users.Users
    _changing: asyncio.Lock
    _privacy: Privacy

    @to_its_end
    async def create_user(self, caller: Caller, request: UserRequest) -> NewUser:
        """Make a user; the access key is told this once. Raises AlreadyExists, NotFound."""
        action = f"create user {request.name[:80]}"
        for allocation in request.allocations:
            self._core.inventory.candidates("", allocation, action)
        async with self._changing:
            make = partial(
                self._users.draft,
                request.name,
                request.role,
                tuple(request.allocations),
                self._core.now(),
                request.uid,
            )
            record, key = await asyncio.to_thread(make)
            await self._core.journal.commit([users.put_user(record)])
            return NewUser(user=self._users.add(record), access_key=key)

    async def list_users(self, caller: Caller, request: ListRequest) -> UserList:
        """All users."""
        page = ListPage[UserInfo](request)
        for info in self._users.list():
            if info.name > request.page_token:
                if page.full:
                    break
                page.add(info.name, info)
        return UserList(users=page.items, next_page_token=page.token)

    @to_its_end
    async def remove_user(self, caller: Caller, request: Named) -> Empty:
        """Forget a user, whose key is worth nothing from here on. Partitions stay. NotFound."""
        action = f"remove user {request.name[:80]}"
        async with self._changing:
            self._users.check_known(request.name, action)
            sites = self._core.inventory.sites.values()
            own = [a for site in sites for a, who in site.closed.items() if who == request.name]
            if own:
                raise WrongState(
                    f"allocation {own[0]} is {request.name}'s",
                    asked=action,
                    would_work=f"vipu-admin remove allocation {own[0]} first",
                )
            await self._core.journal.commit([users.drop_user(request.name)])
            self._users.drop(request.name)
        return Empty()

    @to_its_end
    async def revoke_certificate(self, caller: Caller, request: RevokeRequest) -> UserInfo:
        """One certificate of a user's is worth nothing from here on. Raises NotFound."""
        async with self._changing:
            record = self._users.revoking(request.name, request.number)
            await self._core.journal.commit([users.put_user(record)])
            return self._users.add(record)

    async def authenticate(self, name: str, key: str) -> Caller:
        """The caller behind a name and an access key. Raises Unauthenticated."""
        return await self._users.authenticate(name, key)

    async def authenticate_certificate(self, name: str, uri: str) -> Caller:
        """The caller whom a certificate of the site's names. Raises Unauthenticated."""
        return self._users.certified(name, uri)

    def named_by_proxy(self, name: str) -> Caller:
        """The caller whom the site's proxy says. Raises Unauthenticated."""
        return self._users.named_by_proxy(name)

    def admitted(self, caller: Caller, request: Value) -> tuple[Caller, Value]:
        """Who a caller is here, and the request, kept to the allocations where it may create.

        Raises Denied for another, InvalidRequest where it must be said which, NotFound for what
        is not to be seen.
        """
        caller = self._users.known(caller)
        self._privacy.check_request(caller, request)
        request = self._users.kept_to_grants(caller, request)
        return caller, kept_out(self._core, caller, request)

    def user_of(self, caller: Caller) -> tuple[Caller, float]:
        """Who a caller is here now, and when that user of the server's was created; 0: none is."""
        caller = self._users.known(caller)
        record = self._users.of(caller)
        return caller, record.created_at if record is not None else 0.0

    def shown(self, caller: Caller, reply: Any) -> Any:
        """A reply as this caller, who was admitted, may have it."""
        return self._privacy.shown(caller, reply)
