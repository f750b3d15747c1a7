"""HTTP on TCP: the page, and to read only: is the server well, its figures, its lists as JSON.

For people, probes, Prometheus and dashboards. Only the page asks who somebody is, so it stays on
loopback unless told otherwise, and gives lists only where anonymous callers may read.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec

from podwright.controller import Caller, Role
from podwright.errors import InvalidRequest, PodwrightError
from podwright.hosts import is_loopback
from podwright.http import HttpRequest, HttpServer, Limits, Reply
from podwright.page import BODY, Page
from podwright.server._calls import Calls
from podwright.server._http import STATUS, complain, refusal
from podwright.server._identity import ANONYMOUS
from podwright.server._listen_options import PageOptions
from podwright.server._metrics import KIND, Gauge, Metrics
from podwright.server._page_backend import make_page
from podwright.server._recorder import Recorder
from podwright.wire import METHODS, ListRequest, Value, plain

_OURSELVES = Caller(name="metrics", uid=None, role=Role.ADMINISTRATOR, origin="http")
_LISTS = {
    "clusters": "ListClusters",
    "allocations": "ListAllocations",
    "devices": "ListDevices",
    "partitions": "ListPartitions",
    "leases": "ListLeases",
    "agents": "ListAgents",
}
#: A probe asks, hears and goes, and a page that is open says something every few seconds: who is
#: silent makes room at once.
LIMITS = Limits(connections=1024, each=512, idle=15.0, body=BODY, held=64 * BODY, patience=0.0)

#: Items of a list that are written before somebody else is answered.
_AT_ONCE = 100


def _asked(query: str) -> ListRequest:
    """What a query wants of a list: its fields by name, once each. Raises InvalidRequest."""
    said = parse_qs(query, keep_blank_values=True)
    known = ListRequest.__struct_fields__
    for name, values in said.items():
        if name not in known or len(values) > 1:
            raise InvalidRequest(
                f"a list is not asked for by {name[:40]!r}"
                if name not in known
                else f"{name} is said twice",
                would_work=f"fields of a list: {', '.join(known)}",
            )
    try:
        return msgspec.convert({n: v[0] for n, v in said.items()}, ListRequest, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error}", would_work="page_size is a whole number") from None


class WebFront:
    """Answers GET. counters: totals since the start, gauges: what is so now, for /metrics.
    page: what the page has. ended: see Metrics."""

    def __init__(
        self,
        calls: Calls,
        counters: Callable[[], dict[str, int]],
        gauges: Callable[[], list[Gauge]],
        page: PageOptions,
        ended: Callable[[], dict[tuple[str, str], int]],
    ) -> None:
        self._calls = calls
        self._page_options = page
        self._recording: asyncio.Task[None] | None = None
        self.metrics = Metrics(calls.figures, counters, gauges, ended, self._listed)
        self.server = HttpServer(self._answer, LIMITS, complain=complain)
        self._names: set[str] = set()
        self.page: Page | None = None
        self.address = ""

    async def start(self, host: str, port: int) -> int:
        """Answer at this address; port 0 takes a free one. Returns the port.

        Raises wire.Unavailable when the address cannot be had.
        """
        self.page = make_page(
            self._calls,
            safe_login=is_loopback(host),
            history=self._page_options.history,
            proxy=self._page_options.proxy,
        )
        self._names = {host, "localhost", "127.0.0.1", "[::1]", socket.gethostname()}
        self._names.update(self._page_options.names)
        port = await self.server.open(host, port, "another --http-port")
        self.address = f"http://{_as_host(host)}:{port}/"
        if (history := self._page_options.history) is not None:
            recorder = Recorder(history, self._listed, self._counted, self._epoch)
            self._recording = asyncio.create_task(recorder.run())
        return port

    async def stop(self) -> None:
        """Accept no more; what is under way has a second."""
        if self._recording is not None:
            self._recording.cancel()
            await asyncio.gather(self._recording, return_exceptions=True)
        if self.page is not None:
            await self.page.close()
        await self.server.stop(1.0)

    async def _answer(self, request: HttpRequest) -> Reply:
        if self.page is not None and self._is_here(request):
            answer = await self.page.answer(request)
            if answer is not None:
                return answer
        reply = await self._reply(request)
        more = ((b"cache-control", b"no-store"), (b"connection", b"close"))
        return reply._replace(headers=(*reply.headers, *more))

    async def _reply(self, request: HttpRequest) -> Reply:
        if request.method not in ("GET", "HEAD"):
            return refusal(405, "it is to be read only", (b"allow", b"GET, HEAD"))
        if not self._is_here(request):
            return refusal(421, f"this is not {_name(request)[:80]}")
        try:
            return await self._found(request)
        except PodwrightError as error:
            body = msgspec.json.encode(error.to_json(), enc_hook=str)
            return Reply(STATUS.get(error.code, 500), body)

    def _is_here(self, request: HttpRequest) -> bool:
        """A web page whose name was made to point here must not read what is here."""
        name = _name(request)
        return name in self._names or name.replace(".", "").isdigit()

    async def _found(self, request: HttpRequest) -> Reply:
        path = request.path
        if path == "/healthz":
            return await self._health()
        if path == "/metrics":
            return Reply(200, await self.metrics.text(), KIND)
        if path.startswith("/v1/") and (method := _LISTS.get(path.removeprefix("/v1/"))):
            if self._calls.identity.secure:
                return refusal(401, "a secure server gives lists to those it knows alone")
            found = await self._ask(method, _asked(request.query))
            return Reply(200, await _as_json(found))
        known = ", ".join(["/healthz", "/metrics", *(f"/v1/{name}" for name in _LISTS)])
        return refusal(404, f"there is no {path[:80]}; there are {known}")

    def _ask(self, method: str, request: ListRequest) -> Awaitable[Value]:
        return self._calls.whole(ANONYMOUS, METHODS[method], request)

    async def _health(self) -> Reply:
        failure = self._calls.controller.failure
        if failure is not None:
            return refusal(503, failure.message)
        await self._ask("ListClusters", ListRequest())
        return Reply(200, b'{"status":"ok"}')

    def _counted(self) -> int:
        return self._calls.controller.changes

    def _epoch(self) -> int:
        """Of the store, while this server is active; else 0."""
        active = self._calls.health()["status"] == "ok"
        return int(getattr(self._calls.controller, "epoch", 0)) if active else 0

    async def _listed(self, method: str) -> Any:
        """A list as the server itself sees it: of what is private it tells numbers alone."""
        return await self._calls.whole(_OURSELVES, METHODS[method], ListRequest())


async def _as_json(found: Value) -> bytes:
    """A list with every field. Others are answered between some of its items and the next."""
    tree: dict[str, Any] = {}
    for name in found.__struct_fields__:
        value = getattr(found, name)
        if not isinstance(value, list):
            tree[name] = plain(value)
            continue
        items: list[bytes] = []
        for at in range(0, len(value), _AT_ONCE):
            some = plain(value[at : at + _AT_ONCE])
            items += [msgspec.json.encode(item, enc_hook=str) for item in some]
            await asyncio.sleep(0)
        tree[name] = msgspec.Raw(b"[%b]" % b",".join(items))
    return msgspec.json.encode(tree, enc_hook=str)


def _as_host(host: str) -> str:
    """As it stands in an address; one that means all is this machine's name."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _name(request: HttpRequest) -> str:
    host = request.header("host")
    return host if host.endswith("]") else host.rpartition(":")[0] or host
