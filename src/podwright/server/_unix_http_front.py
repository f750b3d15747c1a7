"""The HTTP front on a Unix socket, which local commands and scheduler hooks call.

Every account of the machine may connect to it. Heads, bodies, connections and silence are therefore
bounded for each uid separately (podwright.http).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from podwright.errors import InvalidRequest, PodwrightError
from podwright.http import HttpRequest, HttpServer, Limits, Reply, complain, refusal, refused
from podwright.server._dispatch_calls import Calls
from podwright.wire import METHODS, Method, Value

#: The most connections of one uid. root's scheduler may open many; a runaway loop may not open all.
MAX_CONNECTIONS = 512
IDLE_SECONDS = 60.0

_CALL_PATH_PREFIX = "/podwright.v1/"
_encode_json = msgspec.json.Encoder().encode


class HttpFront(HttpServer):
    """Serves podwright.v1 as JSON. idle_seconds: after these a silent connection is closed."""

    def __init__(
        self,
        calls: Calls,
        *,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = Limits(each=MAX_CONNECTIONS, idle=idle_seconds)
        super().__init__(self._answer, limits, complain=complain, clock=clock)
        self._calls = calls
        self._routes: dict[str, tuple[Method, msgspec.json.Decoder[Value]]] = {
            _CALL_PATH_PREFIX + name: (method, msgspec.json.Decoder(method.request))
            for name, method in METHODS.items()
        }

    async def _answer(self, request: HttpRequest) -> Reply:
        route = self._routes.get(request.path)
        if route is None:
            if request.path != "/healthz":
                return refusal(404, f"there is no {request.path}")
            if request.method != "GET":
                return refusal(405, "GET it", (b"allow", b"GET"))
            return Reply(200, msgspec.json.encode(self._calls.health()))
        if request.method != "POST":
            return refusal(405, "POST to it", (b"allow", b"POST"))
        method, decoder = route
        assert request.uid is not None
        try:
            caller = await self._calls.identity.caller_of_uid(request.uid, "unix")
            call_request = _decode_request(decoder, method, request.body)
            return Reply(200, _encode_json(await self._calls(caller, method, call_request)))
        except PodwrightError as error:
            return refused(error)


def _decode_request(
    decoder: msgspec.json.Decoder[Value], method: Method, json_body: bytes
) -> Value:
    try:
        return decoder.decode(json_body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{error}", operation=method.name) from None
