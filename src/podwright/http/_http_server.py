"""Passes whole requests to a handler and its replies back, within limits of number and time.

uvicorn reads and writes HTTP (by llhttp, in C). It takes 70 us of processor time for a call, where
aiohttp took 140 and h11 240; its import takes 0.1 s of a start, aiohttp's 0.5. Peer credentials
come from the connection's socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import resource
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from podwright.errors import Unavailable
from podwright.http._listener_state import Handler, HttpRequest, Limits, Listener, Reply

if TYPE_CHECKING:
    from podwright.http._connection import Connection

_log = logging.getLogger("podwright.http")


def more_descriptors(wanted_limit: int = 16384) -> None:
    """Raise this process's limit of descriptors to `wanted_limit`, if its hard limit allows."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = (
        wanted_limit if hard_limit == resource.RLIM_INFINITY else min(wanted_limit, hard_limit)
    )
    if soft_limit < new_limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard_limit))


#: Connections that the kernel queues until the loop accepts them: as many as may come at once.
_LISTEN_BACKLOG = 4096


async def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket on TCP. Raises OSError."""
    loop = asyncio.get_running_loop()
    family, _, _, _, address = (
        await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    )[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_LISTEN_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class HttpServer:
    """Serves a handler at one listener.

    complain: returns the body of a refusal of HTTP itself, from status and problem. clock: seconds,
    never backwards. other_port: what an error suggests where the port is taken.
    """

    other_port = "another port"

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        *,
        complain: Callable[[int, str], bytes] = lambda status, problem: f"{problem}\n".encode(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.door = Listener(handler, limits, complain, clock)
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._state: Any = None

    async def open(self, host: str, port: int) -> int:
        """Answer at an address of TCP; port 0 takes a free one. Return the port.

        Raises Unavailable when the address cannot be bound.
        """
        try:
            listener = await listen(host, port)
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}",
                would_work=f"choose {self.other_port}, or 0 for a free one",
            ) from None
        await self.start(listener)
        return int(listener.getsockname()[1])

    async def start(self, listener: socket.socket) -> None:
        """Answer at a listening socket."""
        from uvicorn.config import Config
        from uvicorn.server import ServerState

        from podwright.http._connection import Connection

        config = Config(
            _handle_asgi_request,
            interface="asgi3",
            lifespan="off",
            ws="none",
            loop="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=math.ceil(self.door.limits.idle),
        )
        config.load()
        self._state = ServerState()
        loop = asyncio.get_running_loop()

        def connect() -> Connection:
            return Connection(config, self._state, self.door)

        if listener.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(connect, sock=listener, backlog=1024)
        else:
            self._server = await loop.create_server(connect, sock=listener, backlog=512)
        self._sweeper = asyncio.create_task(self._sweep_silent_visitors())

    async def stop(self, grace: float = 1.0) -> None:
        """Accept no more, give calls under way `grace` seconds to end, and close the rest."""
        self.door.ending = True
        if self._server is None:
            return
        self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for visitor in self.door.visitors:
            visitor.shutdown()  # type: ignore[attr-defined]
        tasks = set(self._state.tasks)
        if tasks:
            _, unfinished_tasks = await asyncio.wait(tasks, timeout=grace)
            for task in unfinished_tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the last writes are sent in this turn
        for visitor in self.door.visitors:
            visitor.leave()

    async def _sweep_silent_visitors(self) -> None:
        seconds = self.door.limits.idle
        while True:
            await asyncio.sleep(seconds / 4)
            self.door.visitors.sweep(seconds)


async def _handle_asgi_request(scope: Any, receive: Any, send: Any) -> None:
    connection: Connection = scope["state"]["connection"]
    listener = connection.door
    request_body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return
        request_body += event["body"]
        if not event["more_body"]:
            break
    connection.silent_since = math.inf
    request = HttpRequest(
        scope["method"],
        scope["raw_path"].decode("latin-1"),
        scope["query_string"].decode("latin-1"),
        scope["headers"],
        bytes(request_body),
        connection.uid,
        connection.address,
    )
    try:
        reply = await listener.handler(request)
    except asyncio.CancelledError:  # the server ends and waits no longer
        connection.leave()
        _report_disconnect(receive)
        return
    except Exception:
        _log.exception("%s %s failed", request.method, request.path[:80])
        reply = Reply(500, listener.complain(500, "the server failed; its log says more"))
    finally:
        connection.rest(len(request_body))
    reply_body = reply.body
    plain = not (reply.headers or listener.ending or request.method == "HEAD")
    headers = [(b"content-type", reply.kind.encode()), *reply.headers]
    if isinstance(reply_body, bytes):
        headers.append((b"content-length", b"%d" % len(reply_body)))
    if listener.ending:
        headers.append((b"connection", b"close"))
    start_event = {"type": "http.response.start", "status": reply.status, "headers": headers}
    try:
        if plain and isinstance(reply_body, bytes):
            await connection.answer_at_once(send.__self__, reply.status, reply.kind, reply_body)
            return
        await send(start_event)
        if isinstance(reply_body, bytes):
            await send({"type": "http.response.body", "body": reply_body})
            return
        async with contextlib.aclosing(reply_body):
            async for chunk in reply_body:
                if connection.transport.is_closing():
                    break
                connection.silent_since = listener.clock()
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except RuntimeError:  # uvloop's error for a closed connection
        if not connection.transport.is_closing():
            raise
        _report_disconnect(receive)


def _report_disconnect(receive: Any) -> None:
    """Tell uvicorn that the peer has gone.

    uvicorn learns it a moment later, and would otherwise log that no answer was given.
    """
    receive.__self__.disconnected = True
