"""What the page asks for over HTTP, and who may: files, one stream, a session, acts.

Everything that changes something comes as JSON from the page's own origin, with a session's cookie
that other sites cannot send: no form elsewhere, and no name that points here, gets through.
"""

from __future__ import annotations

import contextlib
import http.cookies
import time
import urllib.parse
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, Final

import msgspec

from podwright.errors import Denied, InvalidRequest, NotFound, PodwrightError, Unauthenticated
from podwright.http import HttpRequest, Reply
from podwright.page._behind import Minutes, PageBackend, Who
from podwright.page._live import Live
from podwright.page._proxy import SiteProxy
from podwright.page._sessions import Sessions
from podwright.page._snapshot import FRAGMENT_TOPICS, take
from podwright.page._span import minute_of, name_of, span_of
from podwright.page._static_files import Files

COOKIE: Final = "podwright_session"
#: What the page shows beside its stream, as JSON.
TOLD: Final = ("/v1/history", "/v1/history/at", "/v1/fragments", "/v1/explain")
BODY: Final = 16 * 1024  #: bytes of a request
VIEWS: Final = 256  #: different views at once
#: What can be done on the page; the caller's role decides as everywhere.
ACTS: Final = ("DrainMachine", "ResumeMachine", "ResetPartition", "RemovePartition", "Leave")


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    token: str = ""
    user: str = ""
    key: str = ""


class _Act(msgspec.Struct, forbid_unknown_fields=True):
    method: str
    request: msgspec.Raw = msgspec.Raw(b"{}")


class Page:
    """Answers what belongs to the page. safe_login: whether access keys may travel here: on
    loopback, or with TLS. status: a refusal's code -> the HTTP status. past: what was. proxy: which
    says who comes."""

    def __init__(
        self,
        server: PageBackend,
        status: Callable[[str], int],
        *,
        safe_login: bool = True,
        past: Minutes | None = None,
        proxy: SiteProxy | None = None,
    ) -> None:
        self._server, self._status = server, status
        self._safe_login = safe_login
        self._files = Files()
        self._past, self._proxy = past, proxy
        self._sessions: Sessions[Who] = Sessions()
        self._views: dict[str, Live] = {}

    async def answer(self, request: HttpRequest) -> Reply | None:
        """The answer, or None for what is not the page's."""
        try:
            return await self._answer(request)
        except PodwrightError as error:
            body = msgspec.json.encode(error.to_json(), enc_hook=str)
            return Reply(self._status(error.code), body, headers=self._files.headers)

    async def close(self) -> None:
        """End all streams."""
        for view in self._views.values():
            await view.close()

    # -- inside --------------------------------------------------------------------------------

    async def _answer(self, request: HttpRequest) -> Reply | None:
        if request.method in ("GET", "HEAD"):
            if request.path == "/live":
                return self._live(request)
            if request.path == "/me":
                return self._json(self._me(request))
            if request.path in TOLD:
                return await self._told(request)
            return self._files.answer(request)
        match request.method, request.path:
            case "POST", "/session":
                return await self._log_in(request)
            case "DELETE", "/session":
                _own_origin(request)
                self._sessions.close(_cookie(request))
                return self._json({}, (b"set-cookie", self._cookie("", 0, request)))
            case "POST", "/act":
                return await self._act(request)
        return None

    def _who(self, request: HttpRequest) -> Who | None:
        return self._logged_in(request) or self._server.anonymous()

    def _logged_in(self, request: HttpRequest) -> Who | None:
        """Whose session it is, or whom the site's proxy says. Raises Unauthenticated for somebody
        whom only the proxy knows."""
        if self._proxy is not None and (name := self._proxy.user(request)):
            return self._server.by_proxy(name)
        cookie = _cookie(request)
        who = self._sessions.caller(cookie) if cookie else None
        if who is not None and not self._server.known(who):
            self._sessions.close(cookie)
            who = None
        return who

    def _seer(self, request: HttpRequest) -> Who:
        who = self._who(request)
        if who is None:
            raise Unauthenticated(
                "this server shows its page to those it knows",
                would_work="log in; or open it by podwright web on the server's machine",
            )
        return who

    def _still(self, request: HttpRequest) -> Who | None:
        try:
            return self._logged_in(request)
        except PodwrightError:
            return None

    def _me(self, request: HttpRequest) -> dict[str, object]:
        who = self._who(request)
        return {
            "name": who.name if who else "",
            "role": who.role.value if who else "",
            "key_login": self._keys_hidden(request),
            **self._server.describe(),
        }

    def _live(self, request: HttpRequest) -> Reply:
        who = self._seer(request)
        name = self._server.audience(who)
        view = self._views.get(name)
        if view is None:
            if len(self._views) >= VIEWS:
                self._views = {key: one for key, one in self._views.items() if len(one)}
            view = Live(
                lambda: take(partial(self._server.listed, who), time.time), self._server.counted
            )
            self._views[name] = view
        events = self._while_seen(view.events(), who, request)
        return Reply(200, events, "text/event-stream", self._files.headers)

    async def _told(self, request: HttpRequest) -> Reply:
        """What was, and which sizes fit: what the page shows, as JSON."""
        who = self._seer(request)
        own = await self._server.own(who)
        if request.path == "/v1/fragments":
            found = await take(partial(self._server.listed, who), time.time, topics=FRAGMENT_TOPICS)
            return self._json(found.get("fragments", {}))
        if request.path == "/v1/explain":
            asked = msgspec.json.encode({"name": name_of(request.query)})
            return Reply(200, await self._server.act(who, "Explain", asked), headers=self._private)
        if self._past is None:
            raise NotFound("this server writes no history", would_work="its page has what is now")
        if request.path == "/v1/history":
            return self._json(await self._past.series(*span_of(request.query, time.time())))
        return self._json(await self._past.at(minute_of(request.query), own=own))

    async def _while_seen(
        self, events: AsyncGenerator[bytes], who: Who, request: HttpRequest
    ) -> AsyncGenerator[bytes]:
        """Events until the session is over that they are told to, or its user is gone."""
        anybody = who == self._server.anonymous()
        async with contextlib.aclosing(events):
            async for event in events:
                if not (anybody or self._still(request) == who):
                    return
                if not self._server.known(who):
                    return
                yield event

    def _keys_hidden(self, request: HttpRequest) -> bool:
        """Can nobody read along on the way?"""
        return self._safe_login or (self._proxy is not None and self._proxy.hides(request))

    async def _log_in(self, request: HttpRequest) -> Reply:
        _own_origin(request)
        asked = _decoded(request, _Login)
        if asked.token:
            who = await self._server.by_token(asked.token)
            if not self._sessions.first_use(asked.token):
                raise Unauthenticated(
                    "this link has been used", would_work="podwright web makes another"
                )
        elif not self._keys_hidden(request):
            raise Denied(
                "access keys would travel here for all to read",
                asked="log in",
                would_work="reach the page over TLS, or by podwright web on the server's machine",
            )
        else:
            who = await self._server.by_key(asked.user, asked.key)
        cookie = self._sessions.open(who, who.name)
        said = {"name": who.name, "role": who.role.value}
        return self._json(said, (b"set-cookie", self._cookie(cookie, 12 * 3600, request)))

    async def _act(self, request: HttpRequest) -> Reply:
        _own_origin(request)
        who = self._logged_in(request)
        if who is None:
            raise Unauthenticated("nobody is logged in", asked="act", would_work="log in first")
        asked = _decoded(request, _Act)
        if asked.method not in ACTS:
            raise InvalidRequest(
                f"{asked.method[:40]} is not done here", asked="act", would_work=", ".join(ACTS)
            )
        reply = await self._server.act(who, asked.method, bytes(asked.request))
        return Reply(200, reply, headers=self._files.headers)

    def _json(self, value: object, *headers: tuple[bytes, bytes]) -> Reply:
        return Reply(200, msgspec.json.encode(value), headers=(*self._private, *headers))

    @property
    def _private(self) -> tuple[tuple[bytes, bytes], ...]:
        """Headers of what nobody keeps."""
        return (*self._files.headers, (b"cache-control", b"no-store"))

    def _cookie(self, text: str, seconds: int, request: HttpRequest) -> bytes:
        hidden = self._proxy is not None and self._proxy.hides(request)
        secure = "; Secure" if hidden else ""
        said = f"{COOKIE}={text}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        return said.encode()


def _cookie(request: HttpRequest) -> str:
    try:
        jar = http.cookies.SimpleCookie(request.header("cookie")[:4096])
    except http.cookies.CookieError:
        return ""
    return jar[COOKIE].value if COOKIE in jar else ""


def _own_origin(request: HttpRequest) -> None:
    """Raises wire.Denied for what another site's page, or none, has sent."""
    origin = urllib.parse.urlsplit(request.header("origin"))
    site = request.header("sec-fetch-site")
    kind = request.header("content-type").partition(";")[0].strip().lower()
    if (
        origin.netloc != request.header("host")
        or site not in ("", "same-origin")
        or (request.method == "POST" and kind != "application/json")
    ):
        raise Denied(
            "this came from elsewhere than the page",
            asked=f"{request.method} {request.path[:40]}",
            would_work="use the page, or the command that does the same",
        )


def _decoded(request: HttpRequest, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{error}", asked=request.path[:40]) from None
