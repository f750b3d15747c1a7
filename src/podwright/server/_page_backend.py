"""What stands behind the page: this server's calls, made in the name of who is logged in."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import msgspec

from podwright._version import __version__
from podwright.controller import Caller, Role
from podwright.errors import InvalidRequest
from podwright.history import Past
from podwright.page import Page, SiteProxy, Who
from podwright.server._calls import Calls
from podwright.server._http import STATUS
from podwright.server._identity import ANONYMOUS
from podwright.store import History
from podwright.wire import METHODS, EventsRequest, ListRequest

_LATER = 2**53  #: no event has such a number


class PageVisitor(NamedTuple):
    """Who looks at the page. made: when its user was created, where it is one of the server's."""

    caller: Caller
    made: float = 0.0

    @property
    def name(self) -> str:
        """The user's name."""
        return self.caller.name

    @property
    def role(self) -> Role:
        """What it may do."""
        return self.caller.role


class PageServer:
    """The page's server. Its callers are `PageVisitor`s."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def anonymous(self) -> Who | None:
        """Who shows nothing; nobody, where the server is secure."""
        return None if self._calls.identity.secure else PageVisitor(ANONYMOUS)

    async def by_token(self, token: str) -> Who:
        """The caller of a one-time link."""
        return self._visitor(await self._calls.identity.of_token(token))

    async def by_key(self, name: str, key: str) -> Who:
        """The caller of an access key."""
        return self._visitor(await self._calls.controller.authenticate(name[:100], key[:200]))

    def by_proxy(self, name: str) -> Who:
        """The caller whom the site's proxy names: a user of this server's."""
        return self._visitor(self._calls.controller.named_by_proxy(name))

    def known(self, who: Who) -> bool:
        """Is it still the same user in the same role?"""
        return self._visitor(_caller(who)) == who

    async def listed(self, who: Who, method: str) -> Any:
        """A list, whole."""
        caller = _caller(who)
        if method == "ListEvents":
            last = (await self._calls(caller, METHODS[method], EventsRequest(since=_LATER))).last
            since = max(0, last - 1000)
            return await self._calls(caller, METHODS[method], EventsRequest(since=since))
        known = METHODS[method]
        return await self._calls.whole(caller, known, known.request())

    async def act(self, who: Who, method: str, body: bytes) -> bytes:
        """A call, and its reply."""
        known = METHODS[method]
        try:
            request = msgspec.json.decode(body, type=known.request)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"{error}", asked=method) from None
        return msgspec.json.encode(await self._calls(_caller(who), known, request))

    def audience(self, who: Who) -> str:
        """All administrators see the same; everybody else what is theirs."""
        caller = _caller(who)
        if caller.role is Role.ADMINISTRATOR:
            return "administrators"
        return f"{caller.origin} {caller.role.value} {caller.name}"

    async def own(self, who: Who) -> str | None:
        """Its name, where a part of what others have is private."""
        caller = _caller(who)
        await self._calls(caller, METHODS["ListClusters"], ListRequest(page_size=1))
        private = self._calls.controller.private & {"partitions", "devices", "waiters"}
        return caller.name if private and caller.role is not Role.ADMINISTRATOR else None

    def counted(self) -> int:
        """What has changed, as far as the store and the events know."""
        return self._calls.controller.changes

    def describe(self) -> dict[str, object]:
        """The server, for the page's head."""
        return {"version": __version__, "simulated": self._calls.controller.simulated}

    def _visitor(self, caller: Caller) -> PageVisitor:
        found, made = self._calls.controller.user_of(caller)
        return PageVisitor(found, made)


def _caller(who: Who) -> Caller:
    return cast("PageVisitor", who).caller


def make_page(
    calls: Calls,
    *,
    safe_login: bool,
    history: History | None = None,
    proxy: SiteProxy | None = None,
) -> Page:
    """The page of a server. safe_login: whether access keys may travel to it. history: what was.
    proxy: which says who comes."""
    return Page(
        PageServer(calls),
        lambda code: STATUS.get(code, 500),
        safe_login=safe_login,
        past=None if history is None else Past(history),
        proxy=proxy,
    )
