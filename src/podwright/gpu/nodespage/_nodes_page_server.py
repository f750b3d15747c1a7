"""Serves the page over HTTP: files and one stream, read-only, only on loopback.

Everybody who can reach the page sees what squeue and sinfo show. Nobody sees what PrivateData
hides.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Final

import msgspec

from podwright import __version__
from podwright.errors import InvalidRequest, PodwrightError
from podwright.gpu.nodespage._query_slurm import Looker
from podwright.hosts import is_loopback
from podwright.http import HttpRequest, HttpServer, Limits, Reply, names_this_server
from podwright.page import Files, Live

_PAGE_VIEWS: Final = frozenset({"nodes", "running", "queue"})
_HTTP_LIMITS: Final = Limits(
    connections=1024, each=512, idle=15.0, body=0, all_bodies=1, patience=0.0
)


class NodesPage:
    """Answers GET requests."""

    def __init__(self, nodes_reader: Looker) -> None:
        self._files = Files("nodes.html", _PAGE_VIEWS)
        self._looker = nodes_reader
        self._live = Live(nodes_reader.topics, lambda: 0)
        self._server = HttpServer(self._answer, _HTTP_LIMITS)
        self._names: set[str] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen at this address; port 0 takes a free port. Returns the port.

        Raises InvalidRequest for an address other than loopback, and wire.Unavailable where the
        address cannot be used.
        """
        if not is_loopback(host):
            raise InvalidRequest(
                f"{host} is reachable from other machines, whose users nobody checks",
                operation=f"serve the page on {host}",
                would_work="127.0.0.1, and ssh -L, or a proxy that asks who comes",
            )
        self._names = {host.lower(), "localhost"}
        return await self._server.open(host, port, "another --web")

    async def stop(self) -> None:
        """Stop accepting connections."""
        await self._live.close()
        await self._server.stop(1.0)

    async def _answer(self, request: HttpRequest) -> Reply:
        if not names_this_server(request, self._names):
            return self._json_reply(421, {"message": f"this is not {request.header('host')[:80]}"})
        if request.method not in ("GET", "HEAD"):
            return self._json_reply(405, {"message": "it is to be read only"})
        if request.path == "/live":
            return Reply(200, self._live.events(), "text/event-stream", self._files.headers)
        if request.path == "/v1/nodes":
            try:
                return self._json_reply(200, await self._looker.topics())
            except PodwrightError as error:
                return self._json_reply(503, error.to_json())
        if request.path == "/healthz":
            return self._json_reply(200, {"status": "ok", "version": __version__})
        return self._files.answer(request) or self._json_reply(
            404, {"message": "there is no such page"}
        )

    def _json_reply(self, status: int, reply_body: object) -> Reply:
        headers = (*self._files.headers, (b"cache-control", b"no-store"))
        return Reply(status, msgspec.json.encode(reply_body, enc_hook=str), headers=headers)


async def serve(nodes_reader: Looker, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. ready: called with the address once the page answers."""
    nodes_page = NodesPage(nodes_reader)
    port = await nodes_page.start(host, port)
    stop_event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop_event.set)
    try:
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
        await stop_event.wait()
    finally:
        await nodes_page.stop()
