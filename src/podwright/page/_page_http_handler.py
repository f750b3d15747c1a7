"""What the page asks for over HTTP, and who may ask it: files, one stream, a session, actions.

A request that changes something must be JSON from the page's own origin, with a session's cookie
and its secret in a header. So a form of another site, a name that was pointed at this machine, and
a server on another port of the same host cannot send one. No address contains a secret.
"""

from __future__ import annotations

import contextlib
import time
import urllib.parse
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Final

import msgspec

from podwright.errors import Denied, InvalidRequest, NotFound, PodwrightError, Unauthenticated
from podwright.http import HttpRequest, Reply, refused
from podwright.page._backend_protocol import Minutes, PageBackend, Who
from podwright.page._live_view import Live
from podwright.page._query_parameters import (
    minute_of,
    minutes_span_of,
    name_of,
    table_query_of,
)
from podwright.page._sessions import SessionProof, Sessions
from podwright.page._snapshot import FRAGMENT_TOPICS, take
from podwright.page._static_files import Files
from podwright.page._trusted_proxy import SiteProxy

COOKIE_NAME: Final = "podwright_session"  #: the cookie's name, to which a port is appended
SECRET_HEADER: Final = "x-podwright-session"
#: The paths of what the page shows beside its stream, as JSON.
TOLD: Final = (
    *("/v1/history", "/v1/history/at", "/v1/fragments", "/v1/explain"),
    *("/v1/domain", "/v1/table"),
)
BODY: Final = 16 * 1024  #: the most bytes of a request
MAX_LIVE_VIEWS: Final = 256  #: the most different views at once
#: The calls that the page may make. The caller's role decides about each, as everywhere.
ACTS: Final = ("DrainMachine", "ResumeMachine", "ResetPartition", "RemovePartition", "Leave")


class _LoginRequest(msgspec.Struct, forbid_unknown_fields=True):
    token: str = ""
    user: str = ""
    key: str = ""


class _CallRequest(msgspec.Struct, forbid_unknown_fields=True):
    method: str
    request: msgspec.Raw = msgspec.Raw(b"{}")


class Page:
    """Answers the requests of the page.

    safe_login: whether access keys may be sent here: on loopback, or with TLS. past: the pod's
    history. proxy: the site's proxy, which names the caller.
    """

    def __init__(
        self,
        backend: PageBackend,
        *,
        safe_login: bool = True,
        past: Minutes | None = None,
        proxy: SiteProxy | None = None,
    ) -> None:
        self._server = backend
        self._safe_login = safe_login
        self._files = Files()
        self._past, self._proxy = past, proxy
        self._sessions: Sessions[Who] = Sessions()
        self._views: dict[str, Live] = {}

    async def answer(self, request: HttpRequest) -> Reply | None:
        """Return the answer, or None for a request that is not the page's."""
        try:
            return await self._answer(request)
        except PodwrightError as error:
            return refused(error, *self._files.headers)

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
                return self._json(self._caller_values(request))
            if request.path in TOLD:
                return await self._page_data(request)
            return self._files.answer(request)
        match request.method, request.path:
            case "POST", "/session":
                return await self._log_in(request)
            case "DELETE", "/session":
                _check_own_origin(request)
                self._sessions.close(_session_proof(request))
                return self._json({}, (b"set-cookie", self._session_cookie_header("", 0, request)))
            case "POST", "/act":
                return await self._act(request)
        return None

    def _caller_or_anonymous(self, request: HttpRequest) -> Who | None:
        return self._logged_in_caller(request) or self._server.anonymous()

    def _logged_in_caller(self, request: HttpRequest) -> Who | None:
        """Return the caller of the session, or the user whom the site's proxy names.

        Raises Unauthenticated for a user whom only the proxy knows.
        """
        if self._proxy is not None and (user_name := self._proxy.user(request)):
            return self._server.by_proxy(user_name)
        session_proof = _session_proof(request)
        caller = (
            self._sessions.caller(session_proof)
            if session_proof.cookie and session_proof.secret
            else None
        )
        if caller is not None and not self._server.known(caller):
            self._sessions.close(session_proof)
            caller = None
        return caller

    def _require_caller(self, request: HttpRequest) -> Who:
        caller = self._caller_or_anonymous(request)
        if caller is None:
            raise Unauthenticated(
                "this server shows its page to those it knows",
                would_work="log in; or open it by podwright web on the server's machine",
            )
        return caller

    def _session_caller(self, request: HttpRequest) -> Who | None:
        try:
            return self._logged_in_caller(request)
        except PodwrightError:
            return None

    def _caller_values(self, request: HttpRequest) -> dict[str, object]:
        caller = self._caller_or_anonymous(request)
        return {
            "name": caller.name if caller else "",
            "role": caller.role.value if caller else "",
            "key_login": self._is_key_login_safe(request),
            **self._server.describe(),
        }

    def _live(self, request: HttpRequest) -> Reply:
        caller = self._require_caller(request)
        audience = self._server.audience(caller)
        live_view = self._views.get(audience)
        if live_view is None:
            if len(self._views) >= MAX_LIVE_VIEWS:
                self._views = {key: view for key, view in self._views.items() if len(view)}
            live_view = Live(
                partial(self._snapshot, caller),
                self._server.counted,
            )
            self._views[audience] = live_view
        event_stream = self._events_while_logged_in(live_view.events(), caller, request)
        return Reply(200, event_stream, "text/event-stream", self._files.headers)

    async def _snapshot(self, caller: Who) -> dict[str, dict[str, object]]:
        """Return all that a page of this caller has: of a large pod, an overview."""
        if await self._server.folded():
            return await self._server.overview(caller)
        return await take(
            partial(self._server.listed, caller),
            time.time,
            conditions=self._server.conditions(caller),
        )

    async def _page_data(self, request: HttpRequest) -> Reply:
        """Return further data of the page as JSON: the past, which sizes fit, explanations."""
        caller = self._require_caller(request)
        own_name = await self._server.own(caller)
        if request.path == "/v1/domain":
            return self._json({"topics": await self._server.opened(caller, name_of(request.query))})
        if request.path == "/v1/table":
            return self._json(await self._server.table(caller, table_query_of(request.query)))
        if request.path == "/v1/fragments" and await self._server.folded():
            overview = await self._server.overview(caller)
            return self._json(overview["fragments"])
        if request.path == "/v1/fragments":
            snapshot = await take(
                partial(self._server.listed, caller), time.time, topics=FRAGMENT_TOPICS
            )
            return self._json(snapshot.get("fragments", {}))
        if request.path == "/v1/explain":
            request_body = msgspec.json.encode({"name": name_of(request.query)})
            return Reply(
                200,
                await self._server.act(caller, "Explain", request_body),
                headers=self._no_store_headers,
            )
        if self._past is None:
            raise NotFound("this server writes no history", would_work="its page has what is now")
        if request.path == "/v1/history":
            query_span = minutes_span_of(request.query, time.time())
            return self._json(await self._past.series(*query_span, own=own_name))
        minute, domain = minute_of(request.query)
        return self._json(await self._past.at(minute, own=own_name, domain=domain))

    async def _events_while_logged_in(
        self, events: AsyncGenerator[bytes], caller: Who, request: HttpRequest
    ) -> AsyncGenerator[bytes]:
        """Yield events until the caller's session is over, or its user is gone."""
        is_anonymous = caller == self._server.anonymous()
        async with contextlib.aclosing(events):
            async for event in events:
                if not (is_anonymous or self._session_caller(request) == caller):
                    return
                if not self._server.known(caller):
                    return
                yield event

    def _is_key_login_safe(self, request: HttpRequest) -> bool:
        """Return whether nobody can read an access key on its way here."""
        return self._safe_login or (self._proxy is not None and self._proxy.hides(request))

    async def _log_in(self, request: HttpRequest) -> Reply:
        _check_own_origin(request)
        login_request = _decode_json_body(request, _LoginRequest)
        if login_request.token:
            caller = await self._server.by_token(login_request.token)
        elif not self._is_key_login_safe(request):
            raise Denied(
                "access keys would travel here for all to read",
                operation="log in",
                would_work="reach the page over TLS, or by podwright web on the server's machine",
            )
        else:
            caller = await self._server.by_key(login_request.user, login_request.key)
        session_proof = self._sessions.open(caller, caller.name)
        session_json = {
            "name": caller.name,
            "role": caller.role.value,
            "secret": session_proof.secret,
        }
        cookie_header = self._session_cookie_header(session_proof.cookie, 12 * 3600, request)
        return self._json(session_json, (b"set-cookie", cookie_header))

    async def _act(self, request: HttpRequest) -> Reply:
        _check_own_origin(request)
        caller = self._logged_in_caller(request)
        if caller is None:
            raise Unauthenticated("nobody is logged in", operation="act", would_work="log in first")
        action = _decode_json_body(request, _CallRequest)
        if action.method not in ACTS:
            raise InvalidRequest(
                f"{action.method[:40]} is not done here",
                operation="act",
                would_work=", ".join(ACTS),
            )
        reply = await self._server.act(caller, action.method, bytes(action.request))
        return Reply(200, reply, headers=self._files.headers)

    def _json(self, reply_value: object, *headers: tuple[bytes, bytes]) -> Reply:
        return Reply(
            200, msgspec.json.encode(reply_value), headers=(*self._no_store_headers, *headers)
        )

    @property
    def _no_store_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers of answers that must not be stored."""
        return (*self._files.headers, (b"cache-control", b"no-store"))

    def _session_cookie_header(
        self, cookie_value: str, max_age_seconds: int, request: HttpRequest
    ) -> bytes:
        encrypted = self._proxy is not None and self._proxy.hides(request)
        attribute = "; Secure" if encrypted else ""
        cookie_name = _cookie_name(request)
        return (
            f"{cookie_name}={cookie_value}; Path=/; Max-Age={max_age_seconds}; "
            f"HttpOnly; SameSite=Strict{attribute}"
        ).encode()


def _cookie_name(request: HttpRequest) -> str:
    """Return the cookie's name for this port.

    Without the port in the name, pages of several servers on one host would replace each other's
    cookie.
    """
    port = urllib.parse.urlsplit(f"//{request.header('host')}").port
    return f"{COOKIE_NAME}_{port}" if port else COOKIE_NAME


def _session_proof(request: HttpRequest) -> SessionProof:
    """Return what the browser presents of its session; empty where it presents nothing.

    A browser may hold more cookies of this host than fit into a proof, so only the cookie of this
    page is read.
    """
    own_cookie_name = _cookie_name(request)
    cookie_values = [
        cookie_value.strip()
        for header_name, text in request.headers
        if header_name == b"cookie"
        for cookie_pair in text.decode("latin-1").split(";")
        for cookie_name, _, cookie_value in [cookie_pair.partition("=")]
        if cookie_name.strip() == own_cookie_name
    ]
    cookie = cookie_values[0] if len(cookie_values) == 1 else ""
    return SessionProof(cookie[:200], request.header(SECRET_HEADER)[:200])


def _check_own_origin(request: HttpRequest) -> None:
    """Raise wire.Denied for a request that another site's page sent, or no page at all."""
    origin = urllib.parse.urlsplit(request.header("origin"))
    site = request.header("sec-fetch-site")
    content_type = request.header("content-type").partition(";")[0].strip().lower()
    if (
        origin.netloc != request.header("host")
        or site not in ("", "same-origin")
        or (request.method == "POST" and content_type != "application/json")
    ):
        raise Denied(
            "this came from elsewhere than the page",
            operation=f"{request.method} {request.path[:40]}",
            would_work="use the page, or the command that does the same",
        )


def _decode_json_body(request: HttpRequest, body_type: type[Any]) -> Any:
    try:
        return msgspec.json.decode(request.body, type=body_type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{error}", operation=request.path[:40]) from None
