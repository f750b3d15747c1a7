"""The backend of the page: this server's calls, made in the name of the user who is logged in."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgspec

from podwright._version import __version__
from podwright.controller import Caller, Role
from podwright.errors import InvalidRequest
from podwright.history import Past
from podwright.page import EVENTS, Page, SiteProxy, TableQuery, Who
from podwright.server._caller_identity import ANONYMOUS_CALLER
from podwright.server._dispatch_calls import Calls
from podwright.server._folded_pod import FoldedPod
from podwright.store import History
from podwright.wire import METHODS, EventList, EventsRequest, ListRequest

_AFTER_ALL_EVENTS = 2**53  #: no event has such a number


class PageVisitor(NamedTuple):
    """A caller of the page.

    made: when the server's user was created, if it is one of the server's.
    """

    caller: Caller
    made: float = 0.0

    @property
    def name(self) -> str:
        """The user's name."""
        return self.caller.name

    @property
    def role(self) -> Role:
        """The role, which decides what the caller may do."""
        return self.caller.role


class PageServer:
    """The page's backend. Its callers are `PageVisitor`s."""

    def __init__(
        self,
        calls: Calls,
        standbys: Callable[[], int | None],
    ) -> None:
        self._calls, self._standbys = calls, standbys
        self._folded = FoldedPod(calls, _caller_of_visitor, self.listed, self.conditions)

    def anonymous(self) -> Who | None:
        """Return the caller without credentials; None where the server is secure."""
        return None if self._calls.identity.secure else PageVisitor(ANONYMOUS_CALLER)

    async def by_token(self, token: str) -> Who:
        """Return the caller of a one-time link."""
        return self._visitor_of_caller(await self._calls.identity.caller_of_link(token))

    async def by_key(self, name: str, key: str) -> Who:
        """Return the caller of an access key."""
        return self._visitor_of_caller(
            await self._calls.controller.authenticate(name[:100], key[:200])
        )

    def by_proxy(self, name: str) -> Who:
        """Return the user of this server whom the site's proxy names."""
        return self._visitor_of_caller(self._calls.controller.named_by_proxy(name))

    def known(self, who: Who) -> bool:
        """Return whether it is still the same user in the same role."""
        return self._visitor_of_caller(_caller_of_visitor(who)) == who

    async def listed(self, who: Who, method: str) -> Any:
        """Return a list, whole."""
        caller = _caller_of_visitor(who)
        if method == "ListEvents":
            return await self._newest_events(caller)
        called_method = METHODS[method]
        return await self._calls.whole(caller, called_method, called_method.request())

    async def _newest_events(self, caller: Caller) -> EventList:
        """Return the newest events that the caller may see."""
        method, request = METHODS["ListEvents"], EventsRequest(since=_AFTER_ALL_EVENTS)
        await self._calls(caller, method, request)  # whether it may be asked at all
        controller = self._calls.controller
        caller, _ = controller.admitted(caller, request)
        events = controller.observer.newest_events(caller, EVENTS)
        return cast("EventList", controller.redacted(caller, events))

    async def folded(self) -> bool:
        """Return whether the pod is so large that it is shown by its link domains."""
        return self._calls.standby is None and self._folded.applies

    async def overview(self, who: Who) -> dict[str, dict[str, object]]:
        """Return what a caller may see of a folded pod."""
        return await self._folded.overview(who)

    async def opened(self, who: Who, domain: str) -> dict[str, dict[str, object]]:
        """Return what a caller may see of a link domain."""
        return await self._folded.opened(who, domain)

    async def table(self, who: Who, query: TableQuery) -> dict[str, object]:
        """Return a part of a table of a folded pod."""
        return await self._folded.table(who, query)

    async def act(self, who: Who, method: str, body: bytes) -> bytes:
        """Make a call. Return its reply as JSON."""
        called_method = METHODS[method]
        try:
            request = msgspec.json.decode(body, type=called_method.request)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"{error}", operation=method) from None
        return msgspec.json.encode(
            await self._calls(_caller_of_visitor(who), called_method, request)
        )

    def audience(self, who: Who) -> str:
        """Return a name of the caller's view: one for all administrators, else the caller's own."""
        caller = _caller_of_visitor(who)
        if caller.role is Role.ADMINISTRATOR:
            return "administrators"
        return f"{caller.origin} {caller.role.value} {caller.name}"

    async def own(self, who: Who) -> str | None:
        """Return the caller's name from whom some objects of other users are hidden; else None."""
        caller = _caller_of_visitor(who)
        await self._calls(caller, METHODS["ListClusters"], ListRequest(page_size=1))
        kinds = self._calls.controller.private & {"partitions", "devices", "waiters"}
        return caller.name if kinds and caller.role is not Role.ADMINISTRATOR else None

    def counted(self) -> int:
        """Return a number that grows with every change that the store and the events know of."""
        return self._calls.controller.changes

    def conditions(self, who: Who) -> dict[str, object] | None:
        """Return the server's own conditions, for administrators."""
        if (
            _caller_of_visitor(who).role is not Role.ADMINISTRATOR
            or self._calls.standby is not None
        ):
            return None
        return {**self._calls.controller.conditions(time.time()), "standbys": self._standbys()}

    def describe(self) -> dict[str, object]:
        """Return the server's description for the page's head."""
        return {"version": __version__, "simulated": self._calls.controller.simulated}

    def _visitor_of_caller(self, caller: Caller) -> PageVisitor:
        user, created_at = self._calls.controller.user_of(caller)
        return PageVisitor(user, created_at)


def _caller_of_visitor(visitor: Who) -> Caller:
    return cast("PageVisitor", visitor).caller


def make_page(
    calls: Calls,
    *,
    safe_login: bool,
    history: History | None = None,
    proxy: SiteProxy | None = None,
    standbys: Callable[[], int | None] = lambda: None,
) -> Page:
    """Return the page of a server.

    safe_login: whether access keys may be sent to it. history: the pod's past. proxy: the proxy
    that names callers. standbys: returns the number of servers that wait to take over; None: the
    store is this server's alone.
    """
    return Page(
        PageServer(calls, standbys),
        safe_login=safe_login,
        past=None if history is None else Past(history),
        proxy=proxy,
    )
