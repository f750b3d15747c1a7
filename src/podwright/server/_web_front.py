"""HTTP on TCP: the page, and, read-only, the server's health, its metrics and its lists as JSON.

It is for people, probes, Prometheus and dashboards. Only the page asks who the caller is. The front
therefore stays on loopback unless an option says otherwise, and gives lists only where anonymous
callers may read.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec

from podwright.controller import Caller, PodObserver, Role
from podwright.errors import InvalidRequest, PodwrightError
from podwright.hosts import is_loopback
from podwright.http import (
    METRICS_CONTENT_TYPE,
    Figure,
    HttpRequest,
    HttpServer,
    Limits,
    Reply,
    complain,
    names_this_server,
    refusal,
    refused,
)
from podwright.page import BODY, Page
from podwright.server._caller_identity import ANONYMOUS_CALLER
from podwright.server._dispatch_calls import Calls
from podwright.server._history_recorder import Recorder
from podwright.server._listen_options import PageOptions
from podwright.server._metrics import Metrics
from podwright.server._page_backend import make_page
from podwright.wire import METHODS, ListRequest, Value, plain

_SERVER_CALLER = Caller(name="metrics", uid=None, role=Role.ADMINISTRATOR, origin="http")
_METHOD_BY_LIST_NAME = {
    "clusters": "ListClusters",
    "allocations": "ListAllocations",
    "devices": "ListDevices",
    "partitions": "ListPartitions",
    "leases": "ListLeases",
    "agents": "ListAgents",
}
#: A probe asks, gets its answer and goes, and an open page sends something every few seconds. A
#: connection that is silent may therefore be closed at once to make room.
LIMITS = Limits(
    connections=1024, each=512, idle=15.0, body=BODY, all_bodies=64 * BODY, patience=0.0
)

#: Items of a list that are formatted before other requests are answered.
_ITEMS_AT_ONCE = 100


def _parse_list_query(query: str) -> ListRequest:
    """Parse a query into a list request: its fields by name, each at most once.

    Raises InvalidRequest.
    """
    query_fields = parse_qs(query, keep_blank_values=True)
    field_names = ListRequest.__struct_fields__
    for field_name, field_values in query_fields.items():
        if field_name not in field_names or len(field_values) > 1:
            raise InvalidRequest(
                f"a list has no field {field_name[:40]!r}"
                if field_name not in field_names
                else f"{field_name} is given twice",
                would_work=f"use fields of a list: {', '.join(field_names)}",
            )
    try:
        return msgspec.convert(
            {key: query_values[0] for key, query_values in query_fields.items()},
            ListRequest,
            strict=False,
        )
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error}", would_work="page_size is a whole number") from None


class WebFront(HttpServer):
    """Answers GET.

    read_counters: returns totals since the start, for /metrics. read_gauges: returns the gauges,
    for /metrics. page_options: the options of the page. ended_connections: see Metrics.
    """

    other_port = "another --http-port"

    def __init__(
        self,
        calls: Calls,
        read_counters: Callable[[], dict[str, int]],
        read_gauges: Callable[[], list[Figure]],
        page_options: PageOptions,
        ended_connections: Callable[[], dict[tuple[str, str], int]],
    ) -> None:
        super().__init__(self._answer, LIMITS, complain=complain)
        self._calls = calls
        self._page_options = page_options
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics = Metrics(
            calls.figures,
            read_counters,
            read_gauges,
            ended_connections,
            self._observer,
            self._may_name_owners,
            pod_label=page_options.pod,
        )
        self._names: set[str] = set()
        self.page: Page | None = None
        self.address = ""

    async def open(self, host: str, port: int) -> int:
        """Make the page, and answer. See HttpServer."""
        self.page = make_page(
            self._calls,
            safe_login=is_loopback(host),
            history=self._page_options.history,
            proxy=self._page_options.proxy,
            standbys=self._page_options.standbys,
        )
        page_hosts = {host, "localhost", socket.gethostname(), *self._page_options.names}
        self._names = {page_host.lower() for page_host in page_hosts}
        port = await super().open(host, port)
        self.address = f"http://{_url_host(host)}:{port}/"
        if (history := self._page_options.history) is not None:
            recorder = Recorder(
                history,
                self._whole_list,
                lambda: self._calls.controller.observer,
                self._counted,
                self._active_epoch,
            )
            self._tasks.append(asyncio.create_task(recorder.run()))
        return port

    async def stop(self, grace: float = 1.0) -> None:
        """End what is live, and answer no more. See HttpServer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.page is not None:
            await self.page.close()
        await super().stop(grace)

    async def _answer(self, request: HttpRequest) -> Reply:
        if self.page is not None and self._names_this_server(request):
            page_reply = await self.page.answer(request)
            if page_reply is not None:
                return page_reply
        reply = await self._reply_to_get(request)
        headers = ((b"cache-control", b"no-store"), (b"connection", b"close"))
        return reply._replace(headers=(*reply.headers, *headers))

    async def _reply_to_get(self, request: HttpRequest) -> Reply:
        if request.method not in ("GET", "HEAD"):
            return refusal(405, "it is to be read only", (b"allow", b"GET, HEAD"))
        if not self._names_this_server(request):
            return refusal(421, f"this is not {request.header('host')[:80]}")
        try:
            return await self._route_request(request)
        except PodwrightError as error:
            return refused(error)

    def _names_this_server(self, request: HttpRequest) -> bool:
        """Return whether the request names this server.

        A web page whose name was made to point here must not read what is here.
        """
        return names_this_server(request, self._names)

    async def _route_request(self, request: HttpRequest) -> Reply:
        path = request.path
        if path == "/healthz":
            return await self._health_reply()
        if path == "/metrics":
            return Reply(200, await self.metrics.text(), METRICS_CONTENT_TYPE)
        if path.startswith("/v1/") and (
            method := _METHOD_BY_LIST_NAME.get(path.removeprefix("/v1/"))
        ):
            if self._calls.identity.secure:
                return refusal(401, "a secure server gives lists to those it knows alone")
            list_reply = await self._call_list_method(method, _parse_list_query(request.query))
            return Reply(200, await _list_as_json(list_reply))
        known_paths = ", ".join(
            ["/healthz", "/metrics", *(f"/v1/{name}" for name in _METHOD_BY_LIST_NAME)]
        )
        return refusal(404, f"there is no {path[:80]}; there are {known_paths}")

    def _call_list_method(self, list_method: str, list_request: ListRequest) -> Awaitable[Value]:
        return self._calls.whole(ANONYMOUS_CALLER, METHODS[list_method], list_request)

    async def _health_reply(self) -> Reply:
        failure = self._calls.controller.failure
        if failure is not None:
            return refusal(503, failure.message)
        await self._call_list_method("ListClusters", ListRequest())
        return Reply(200, b'{"status":"ok"}')

    def _counted(self) -> int:
        return self._calls.controller.changes

    def _active_epoch(self) -> int:
        """Return the store's epoch while this server is active, else 0."""
        is_active = self._calls.health()["status"] == "ok"
        return int(getattr(self._calls.controller, "epoch", 0)) if is_active else 0

    def _observer(self) -> PodObserver | None:
        """Return what looks at the pod while this server is active."""
        return self._calls.controller.observer if self._active_epoch() else None

    def _may_name_owners(self) -> bool:
        """Return whether anonymous callers may know who has how much."""
        private = self._calls.controller.private
        return not self._calls.identity.secure and private.isdisjoint(("partitions", "devices"))

    async def _whole_list(self, list_method: str) -> Any:
        """Return a list as the server itself sees it.

        Of private things only their numbers are published.
        """
        return await self._calls.whole(_SERVER_CALLER, METHODS[list_method], ListRequest())


async def _list_as_json(list_reply: Value) -> bytes:
    """Return a list as JSON with every field. Other requests are answered between parts of it."""
    fields: dict[str, Any] = {}
    for field_name in list_reply.__struct_fields__:
        field_value = getattr(list_reply, field_name)
        if not isinstance(field_value, list):
            fields[field_name] = plain(field_value)
            continue
        encoded_items: list[bytes] = []
        for chunk_start in range(0, len(field_value), _ITEMS_AT_ONCE):
            chunk = plain(field_value[chunk_start : chunk_start + _ITEMS_AT_ONCE])
            encoded_items += [msgspec.json.encode(item, enc_hook=str) for item in chunk]
            await asyncio.sleep(0)
        fields[field_name] = msgspec.Raw(b"[%b]" % b",".join(encoded_items))
    return msgspec.json.encode(fields, enc_hook=str)


def _url_host(host: str) -> str:
    """Return a host as it is written in an address.

    An address that means all becomes this machine's name.
    """
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
