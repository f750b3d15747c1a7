"""The HTTP front on a Unix socket: what local commands and scheduler hooks talk to.

It is lean because a command's user waits for it, and strict because every account of the machine
may reach it: bounded heads, bodies and connections, nothing kept for those who say nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import Counter

import msgspec

from podwright.controller import Caller
from podwright.hosts import peer_of
from podwright.server._calls import Calls
from podwright.server._requests import MAX_BODY, Bad, HttpRequest, Requests
from podwright.server._streams import end, say
from podwright.wire import METHODS, InvalidRequest, Method, PodwrightError, Value

_log = logging.getLogger("podwright.server")

#: Connections of one uid; root's scheduler may open many, a runaway loop may not open all.
MAX_CONNECTIONS = 512
IDLE_SECONDS = 60.0

#: A refusal's code -> HTTP status.
STATUS = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "FAILED_PRECONDITION": 412,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_PREFIX = b"/podwright.v1/"
_CLOSE = b"Connection: close\r\n"
_encode = msgspec.json.Encoder().encode


class HttpFront:
    """Serves podwright.v1 as JSON. idle: seconds until a silent connection is closed."""

    def __init__(self, calls: Calls, *, idle: float = IDLE_SECONDS) -> None:
        self._calls = calls
        self._idle = idle
        self._server: asyncio.AbstractServer | None = None
        self._connections: set[_Connection] = set()
        self._of_uid: Counter[int] = Counter()
        self._sweeper: asyncio.Task[None] | None = None
        self.ending = False
        self.routes: dict[bytes, tuple[Method, msgspec.json.Decoder[Value]]] = {
            _PREFIX + name.encode(): (method, msgspec.json.Decoder(method.request))
            for name, method in METHODS.items()
        }

    async def start(self, listener: socket.socket) -> None:
        """Answer on a listening Unix socket."""
        self._server = await asyncio.start_unix_server(self._accept, sock=listener)
        self._sweeper = asyncio.create_task(self._sweep())

    async def stop(self, grace: float) -> None:
        """Accept no more, let calls under way end within `grace` seconds, close the rest."""
        self.ending = True
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            if not connection.busy:
                connection.task.cancel()
        tasks = [connection.task for connection in self._connections]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_of(writer.get_extra_info("socket")).uid
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection(self, reader, writer, task)
        self._connections.add(connection)
        self._of_uid[uid] += 1
        try:
            if self._of_uid[uid] > MAX_CONNECTIONS:
                await connection.refuse(Bad(503, f"more than {MAX_CONNECTIONS} connections"))
            else:
                await connection.serve(await self._calls.identity.of_uid(uid, "unix"), self._calls)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the other side has gone, or we end it: nobody is left to be told
        except Exception:
            _log.exception("a connection failed")
        finally:
            writer.close()
            self._connections.discard(connection)
            self._of_uid[uid] -= 1
            if not self._of_uid[uid]:
                del self._of_uid[uid]

    async def _sweep(self) -> None:
        """Close who has been silent too long; one look at all costs less than a timer for each."""
        while True:
            await asyncio.sleep(self._idle / 4)
            before = time.monotonic() - self._idle
            for connection in list(self._connections):
                if not connection.busy and connection.since < before:
                    connection.abort()


class _Connection:
    """One connection, one request after the other. busy: a call of its is being carried out."""

    def __init__(
        self,
        front: HttpFront,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
    ) -> None:
        self._front = front
        self._reader = reader
        self._writer = writer
        self.task = task
        self._requests = Requests()
        self.busy = False
        self.since = time.monotonic()

    def abort(self) -> None:
        """Drop it now, even when the other side does not read what we sent."""
        self._writer.transport.abort()
        self.task.cancel()

    async def serve(self, caller: Caller, calls: Calls) -> None:
        """Answer until the other side ends, misbehaves, or the server ends."""
        requests = self._requests
        while True:
            while requests.ready:
                request = requests.ready.popleft()
                self.busy = True
                try:
                    status, answer, extra = await self._answer(request, caller, calls)
                finally:
                    self.busy = False
                    self.since = time.monotonic()
                last = request.last or self._front.ending
                await self._send(
                    status,
                    answer if request.method != b"HEAD" else b"",
                    extra + _CLOSE if last else extra,
                )
                if last:
                    return None
            if requests.bad is not None:
                return await self.refuse(requests.bad)
            if requests.wants_word:
                requests.wants_word = False
                say(self._writer, b"HTTP/1.1 100 Continue\r\n\r\n")
            data = await self._reader.read(65536)
            requests.feed(data)
            if not data and requests.bad is None:
                return None

    async def _answer(
        self, request: HttpRequest, caller: Caller, calls: Calls
    ) -> tuple[int, bytes, bytes]:
        """Status, body, further headers."""
        path = request.path
        route = self._front.routes.get(path)
        if route is None:
            if path != b"/healthz":
                return 404, _plain_error("NOT_FOUND", f"there is no {path.decode('latin-1')}"), b""
            if request.method != b"GET":
                return 405, _plain_error("INVALID_ARGUMENT", "GET it"), b"Allow: GET\r\n"
            return 200, msgspec.json.encode(calls.health()), b""
        if request.method != b"POST":
            return 405, _plain_error("INVALID_ARGUMENT", "POST to it"), b"Allow: POST\r\n"
        method, decoder = route
        try:
            reply = await calls(caller, method, _decoded(decoder, method, request.body))
            return 200, _encode(reply), b""
        except PodwrightError as refusal:
            status = STATUS.get(refusal.code, 500)
            return status, msgspec.json.encode(refusal.to_json(), enc_hook=str), b""

    async def refuse(self, bad: Bad) -> None:
        """Answer what HTTP itself forbids, and end."""
        code = "RESOURCE_EXHAUSTED" if bad.status in (413, 431, 503) else "INVALID_ARGUMENT"
        await self._send(bad.status, _plain_error(code, str(bad)), _CLOSE)
        await self._linger()

    async def _linger(self) -> None:
        """Read on for a moment: closing with unread data would take back what we just said."""
        with contextlib.suppress(OSError, ValueError):
            end(self._writer)
            left = 4 * MAX_BODY
            async with asyncio.timeout(1.0):
                while left > 0 and (data := await self._reader.read(65536)):
                    left -= len(data)

    async def _send(self, status: int, body: bytes, extra: bytes) -> None:
        say(
            self._writer,
            b"HTTP/1.1 %d \r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s"
            % (status, len(body), extra, body),
        )
        await self._writer.drain()


def _decoded(decoder: msgspec.json.Decoder[Value], method: Method, body: bytes) -> Value:
    try:
        return decoder.decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{error}", asked=method.name) from None


def _plain_error(code: str, problem: str) -> bytes:
    return msgspec.json.encode({"code": code, "message": f"{problem}.", "problem": problem})
