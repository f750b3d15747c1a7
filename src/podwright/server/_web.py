"""HTTP on TCP, to read only: is the server well, its figures, and its lists as JSON.

For probes, Prometheus and dashboards. It changes nothing and asks nobody who he is, so it stays
on loopback unless told otherwise, and gives lists only where anonymous callers may read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import h11
import msgspec

from podwright.server._calls import Calls
from podwright.server._http import STATUS
from podwright.server._identity import ANONYMOUS
from podwright.server._streams import end, say
from podwright.wire import (
    METHODS,
    AgentList,
    ClusterList,
    DeviceList,
    LeaseList,
    ListRequest,
    PartitionList,
    PodwrightError,
    Unavailable,
    Value,
    WaiterList,
)

_LISTS = {
    "clusters": "ListClusters",
    "allocations": "ListAllocations",
    "devices": "ListDevices",
    "partitions": "ListPartitions",
    "leases": "ListLeases",
    "agents": "ListAgents",
}
_MAX_HEAD = 16 * 1024
_MOST = 64  #: connections at once
_PATIENCE = 10.0  #: seconds for a request to arrive and its answer to leave
_JSON, _TEXT = "application/json", "text/plain; version=0.0.4; charset=utf-8"
_Answer = tuple[int, str, bytes]


class WebFront:
    """Answers GET. counters: totals since the start, for /metrics."""

    def __init__(self, calls: Calls, counters: Callable[[], dict[str, int]]) -> None:
        self._calls = calls
        self._counters = counters
        self._server: asyncio.Server | None = None
        self._open = 0
        self._names: set[str] = set()

    async def start(self, host: str, port: int) -> int:
        """Answer at this address; port 0 takes a free one. Returns the port.

        Raises wire.Unavailable when the address cannot be had.
        """
        try:
            self._server = await asyncio.start_server(
                self._accept, host, port, limit=_MAX_HEAD, reuse_address=True
            )
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}",
                would_work="another --http-port, or 0 for a free one",
            ) from None
        bound = int(self._server.sockets[0].getsockname()[1])
        self._names = {host, "localhost", "127.0.0.1", "[::1]"}
        return bound

    async def stop(self) -> None:
        """Accept no more."""
        if self._server is not None:
            self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _MOST:
                async with asyncio.timeout(_PATIENCE):
                    await self._one(reader, writer)
        except (OSError, EOFError, TimeoutError, h11.ProtocolError):
            pass  # nobody is left to be told
        finally:
            self._open -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await reader.read(4096))
        if not isinstance(event, h11.Request):
            return
        status, kind, body = await self._answer(event)
        headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ]
        parts = [http.send(h11.Response(status_code=status, headers=headers))]
        if event.method != b"HEAD":
            parts.append(http.send(h11.Data(data=body)))
        say(writer, b"".join(part for part in parts if part))
        await writer.drain()
        end(writer)

    async def _answer(self, request: h11.Request) -> _Answer:
        path = request.target.partition(b"?")[0].decode("latin-1")
        host = dict(request.headers).get(b"host", b"").decode("latin-1")
        if request.method not in (b"GET", b"HEAD"):
            return _refused(405, "it is to be read only")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if not (name in self._names or name.replace(".", "").isdigit()):
            # A web page whose name was made to point here must not read what is here.
            return _refused(421, f"this is not {name[:80]}")
        try:
            if path == "/healthz":
                return await self._health()
            if path == "/metrics":
                return 200, _TEXT, (await self._metrics()).encode()
            if path.startswith("/v1/") and (method := _LISTS.get(path.removeprefix("/v1/"))):
                if self._calls.identity.secure:
                    return _refused(401, "a secure server gives lists to those it knows alone")
                return 200, _JSON, msgspec.json.encode(await self._ask(method))
        except PodwrightError as refusal:
            body = msgspec.json.encode(refusal.to_json(), enc_hook=str)
            return STATUS.get(refusal.code, 500), _JSON, body
        known = ", ".join(["/healthz", "/metrics", *(f"/v1/{name}" for name in _LISTS)])
        return _refused(404, f"there is no {path[:80]}; there are {known}")

    def _ask(self, method: str) -> Awaitable[Value]:
        return self._calls.whole(ANONYMOUS, METHODS[method], ListRequest())

    async def _health(self) -> _Answer:
        failure = self._calls.controller.failure
        if failure is not None:
            return _refused(503, failure.message)
        await self._ask("ListClusters")
        return 200, _JSON, b'{"status":"ok"}'

    async def _metrics(self) -> str:
        """Prometheus text; the names are our choice."""
        clusters = await self._ask("ListClusters")
        devices = await self._ask("ListDevices")
        partitions = await self._ask("ListPartitions")
        leases = await self._ask("ListLeases")
        agents = await self._ask("ListAgents")
        waiters = await self._ask("ListWaiters")
        assert isinstance(clusters, ClusterList)
        assert isinstance(devices, DeviceList)
        assert isinstance(partitions, PartitionList)
        assert isinstance(leases, LeaseList)
        assert isinstance(agents, AgentList)
        assert isinstance(waiters, WaiterList)
        lines: list[str] = []
        for name, count in sorted({"calls": self._calls.count, **self._counters()}.items()):
            lines += [
                f"# TYPE podwright_{name}_total counter",
                f"podwright_{name}_total {count}",
            ]
        _gauge(lines, "clusters", Counter({(): len(clusters.clusters)}))
        states = Counter((("cluster", d.cluster), ("state", d.state)) for d in devices.devices)
        _gauge(lines, "devices", states)
        ready = Counter((("state", p.ready_state.value),) for p in partitions.partitions)
        _gauge(lines, "partitions", ready)
        _gauge(lines, "leases", Counter({(): len(leases.leases)}))
        _gauge(lines, "waiters", Counter({(): len(waiters.waiters)}))
        _gauge(lines, "agents", Counter((("state", a.state),) for a in agents.agents))
        return "\n".join(lines) + "\n"


def _gauge(lines: list[str], name: str, values: Mapping[Any, int]) -> None:
    """values: by labels, pairs of name and text."""
    lines.append(f"# TYPE podwright_{name} gauge")
    for labels, count in sorted(values.items()):
        inside = ",".join(f'{key}="{text}"' for key, text in labels)
        lines.append(
            f"podwright_{name}{{{inside}}} {count}" if inside else f"podwright_{name} {count}"
        )


def _refused(status: int, problem: str) -> _Answer:
    return status, _JSON, msgspec.json.encode({"message": f"{problem}."})
