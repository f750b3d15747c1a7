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

import h11
import msgspec

from podwright.controller import Caller
from podwright.server._calls import Calls
from podwright.server._identity import peer_uid
from podwright.wire import METHODS, InvalidRequest, Method, PodwrightError, Value

_log = logging.getLogger("podwright.server")

MAX_HEAD = 16 * 1024
MAX_BODY = 1024 * 1024
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
_CLOSE = ("Connection", "close")
_encode = msgspec.json.Encoder().encode


class _Bad(Exception):
    """A request that HTTP itself answers, and after which the connection ends."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


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
        uid = peer_uid(writer.get_extra_info("socket"))
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection(self, reader, writer, task)
        self._connections.add(connection)
        self._of_uid[uid] += 1
        try:
            if self._of_uid[uid] > MAX_CONNECTIONS:
                await connection.refuse(_Bad(503, f"more than {MAX_CONNECTIONS} connections"))
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
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self.busy = False
        self.since = time.monotonic()

    def abort(self) -> None:
        """Drop it now, even when the other side does not read what we sent."""
        self._writer.transport.abort()
        self.task.cancel()

    async def serve(self, caller: Caller, calls: Calls) -> None:
        """Answer until the other side ends, misbehaves, or the server ends."""
        http = self._http
        while True:
            try:
                request = await self._event()
                if not isinstance(request, h11.Request):
                    return None
                body = await self._body(request)
            except _Bad as bad:
                return await self.refuse(bad)
            except h11.RemoteProtocolError as error:
                return await self.refuse(_Bad(error.error_status_hint, str(error)))
            self.busy = True
            try:
                status, answer, extra = await self._answer(request, body, caller, calls)
            finally:
                self.busy = False
                self.since = time.monotonic()
            await self._send(status, answer, extra)
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return None
            http.start_next_cycle()

    async def _event(self) -> object:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(self._http.send(go_on) or b"")
            data = await self._reader.read(65536)
            self._http.receive_data(data)

    async def _body(self, request: h11.Request) -> bytes:
        for name, value in request.headers:
            if name == b"content-length" and int(value) > MAX_BODY:
                raise _Bad(413, f"a body may have {MAX_BODY} bytes")
        parts, size = [], 0
        while isinstance(event := await self._event(), h11.Data):
            parts.append(bytes(event.data))
            size += len(event.data)
            if size > MAX_BODY:
                raise _Bad(413, f"a body may have {MAX_BODY} bytes")
        if not isinstance(event, h11.EndOfMessage):
            raise EOFError
        return b"".join(parts)

    async def _answer(
        self, request: h11.Request, body: bytes, caller: Caller, calls: Calls
    ) -> tuple[int, bytes, list[tuple[str, str]]]:
        """Status, body, further headers."""
        path = request.target.partition(b"?")[0]
        route = self._front.routes.get(path)
        if route is None:
            if path != b"/healthz":
                return 404, _plain_error("NOT_FOUND", f"there is no {path.decode('latin-1')}"), []
            if request.method != b"GET":
                return 405, _plain_error("INVALID_ARGUMENT", "GET it"), [("Allow", "GET")]
            return 200, msgspec.json.encode(calls.health()), []
        if request.method != b"POST":
            return 405, _plain_error("INVALID_ARGUMENT", "POST to it"), [("Allow", "POST")]
        method, decoder = route
        try:
            reply = await calls(caller, method, _decoded(decoder, method, body))
            return 200, _encode(reply), []
        except PodwrightError as refusal:
            status = STATUS.get(refusal.code, 500)
            return status, msgspec.json.encode(refusal.to_json(), enc_hook=str), []

    async def refuse(self, bad: _Bad) -> None:
        """Answer what HTTP itself forbids, and end."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            code = "RESOURCE_EXHAUSTED" if bad.status in (413, 431, 503) else "INVALID_ARGUMENT"
            await self._send(bad.status, _plain_error(code, str(bad)), [_CLOSE])
            await self._linger()

    async def _linger(self) -> None:
        """Read on for a moment: closing with unread data would take back what we just said."""
        with contextlib.suppress(OSError, ValueError):
            self._writer.write_eof()
            left = 4 * MAX_BODY
            async with asyncio.timeout(1.0):
                while left > 0 and (data := await self._reader.read(65536)):
                    left -= len(data)

    async def _send(self, status: int, body: bytes, extra: list[tuple[str, str]]) -> None:
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            *extra,
        ]
        if self._front.ending and _CLOSE not in extra:
            headers.append(_CLOSE)
        http = self._http
        parts = (
            http.send(h11.Response(status_code=status, headers=headers)),
            http.send(h11.Data(data=body)),
            http.send(h11.EndOfMessage()),
        )
        self._writer.write(b"".join(part for part in parts if part))
        await self._writer.drain()


def _decoded(decoder: msgspec.json.Decoder[Value], method: Method, body: bytes) -> Value:
    try:
        return decoder.decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{error}", asked=method.name) from None


def _plain_error(code: str, problem: str) -> bytes:
    return msgspec.json.encode({"code": code, "message": f"{problem}.", "problem": problem})
