"""One connection: uvicorn's protocol, with bounds on heads, trailers, bodies and silence.

uvicorn alone keeps everything that a peer sends as header, waits forever for a first request, and
drops a caller that closes its half of the connection. A refusal of HTTP itself is written here, in
the form that the server's own refusals have.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from podwright.hosts import caller_of, peer_of
from podwright.http._connection_limits import TooManyVisitors

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from podwright.http._listener_state import Listener

#: Seconds and bytes for which a refused connection is still read. Closing a socket with unread data
#: resets the connection, and the peer would lose the refusal.
_LINGER_SECONDS, _LINGER_BYTES = 1.0, 4 << 20
_PARSER_PIECE_BYTES = 16 * 1024  #: bytes that the parser gets at a time


class _StopReading(Exception):
    """Nothing more is read of this connection."""


class Connection(HttpToolsProtocol):
    """A connection. uid, address: of the other end.

    silent_since: by the listener's clock; infinity while a request is carried out.
    """

    def __init__(self, config: Config, state: ServerState, listener: Listener) -> None:
        super().__init__(config, state, {"connection": self})
        self.door = listener
        self.uid: int | None = None
        self.address = ""
        self.silent_since = listener.clock()
        self._head = self._unparsed_bytes = self._size = self._body_bytes = 0
        self._in_head = self._in_body = self._has_host = False
        self._peer_closed = self._refused = False
        self._bad: tuple[int, str] | None = None
        self._active: Any = None
        self._unread = _LINGER_BYTES

    # -- opening and closing -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enter the new connection at the listener, or refuse it."""
        super().connection_made(cast("asyncio.Transport", transport))
        try:
            self.uid, self.address = who(self.transport)
            own_socket = self.transport.get_extra_info("socket")
            self.door.visitors.enter(self, caller_of(own_socket) if self.address else self.uid)
        except OSError:
            self.transport.abort()
        except TooManyVisitors as error:
            with contextlib.suppress(_StopReading):
                self._refuse(503, f"{error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the closed connection from the listener."""
        self.door.visitors.gone(self)
        self._release_body_bytes(self._body_bytes)
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Note that the peer sends no more. It may still wait for answers."""
        self._peer_closed = True
        if self._bad is not None:
            return not self._refused
        if self._in_head or self._in_body:
            with contextlib.suppress(_StopReading):
                self._refuse(400, "the connection was closed in the middle of a request")
            return True
        return self._busy()

    def leave(self) -> None:
        """Close at once, because of long silence or to make room."""
        self.transport.abort()

    def rest(self, request_bytes: int) -> None:
        """Note that a request of this size was carried out and its answer is being sent."""
        self.silent_since = self.door.clock()
        self._release_body_bytes(request_bytes)

    def shutdown(self) -> None:
        """Finish the request under way, and close."""
        if self._busy() and not self._in_body:
            self._active.keep_alive = False
        else:
            self.transport.close()

    # -- what arrives --------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse data that has arrived."""
        if self._bad is not None:
            self._unread -= len(data)
            if self._unread < 0:
                self.transport.abort()
            return
        self._unset_keepalive_if_required()
        try:
            for piece_start in range(0, len(data), _PARSER_PIECE_BYTES):
                piece = data[piece_start : piece_start + _PARSER_PIECE_BYTES]
                self._unparsed_bytes += len(piece)
                self.parser.feed_data(piece)
                # The parser reports a header only once it is whole, so a long one is counted here.
                if self._unparsed_bytes > self.door.limits.head + _PARSER_PIECE_BYTES:
                    self._refuse(431, _too_long(self.door))
        except httptools.HttpParserUpgrade:  # no other protocol is supported
            self.cycle.keep_alive = False
        except httptools.HttpParserError as error:
            with contextlib.suppress(_StopReading):
                self._refuse(400, str(error))
        except _StopReading:
            pass

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._in_head, self._has_host = True, False
        self._head = self._size = 0

    def on_url(self, url: bytes) -> None:
        """Count a part of the target."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Check a header, or a trailer."""
        self._count(len(name) + len(value) + 4)
        match name.lower():
            case b"host":
                if self._has_host:  # a proxy and this server could use different ones
                    self._refuse(400, "there are two Host headers")
                self._has_host = True
            case b"content-length" if int(value) > self.door.limits.body:
                self._refuse(413, f"a body may have {self.door.limits.body} bytes")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the complete head."""
        if not self._has_host and self.parser.get_http_version() != "1.0":
            self._refuse(400, "there is no Host header")
        super().on_headers_complete()
        self._in_head, self._in_body = False, True

    def on_body(self, body: bytes) -> None:
        """Count a part of the body."""
        self._unparsed_bytes -= len(body)
        self._size += len(body)
        self._body_bytes += len(body)
        self.door.all_bodies += len(body)
        if self._size > self.door.limits.body:
            self._refuse(413, f"a body may have {self.door.limits.body} bytes")
        if self.door.all_bodies > self.door.limits.all_bodies:
            self._refuse(503, "too much is being sent at once")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a request is complete."""
        self._in_body = False
        self._unparsed_bytes = self._size = 0
        super().on_message_complete()

    def _count(self, byte_count: int) -> None:
        self._head += byte_count
        if self._head > self.door.limits.head:
            self._refuse(431, _too_long(self.door))

    # -- answers -------------------------------------------------------------------------------

    async def answer_at_once(self, cycle: Any, status: int, kind: str, body: bytes) -> None:
        """Answer a request as uvicorn would, but with one system call instead of two."""
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if cycle.disconnected:
            return
        close = b"" if cycle.keep_alive else b"connection: close\r\n"
        head = b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b\r\n"
        cycle.response_started = True
        self.transport.writelines(
            (head % (STATUS_LINE[status], kind.encode(), len(body), close), body)
        )
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def on_response_complete(self) -> None:
        """Continue after an answer: with the next request, with a refusal, or with the end."""
        super().on_response_complete()
        if not self._busy():
            if self._bad is not None:
                self._send_refusal()
            elif self._peer_closed:
                self.transport.close()

    def _busy(self) -> bool:
        """Return whether an answer to a valid request is still due."""
        cycle = self._active
        way = cycle is not None and not (cycle.response_complete or cycle.disconnected)
        return bool(self.pipeline) or way

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def _refuse(self, status: int, problem: str) -> None:
        """Refuse what HTTP itself forbids, once all valid requests before it are answered.

        It stops the reading of this connection by raising _StopReading.
        """
        if self._bad is None:
            self._bad = status, problem
            self._unset_keepalive_if_required()
            self._release_body_bytes(self._size)
            if self._in_body:  # its handler waits for the rest of the body
                self.cycle.disconnected = True
                self.cycle.message_event.set()
                self.pipeline = type(self.pipeline)(
                    cycle_and_app
                    for cycle_and_app in self.pipeline
                    if cycle_and_app[0] is not self.cycle
                )
            self._in_head = self._in_body = False
            if not self._busy():
                self._send_refusal()
        raise _StopReading

    def _send_refusal(self) -> None:
        if self._refused or self._bad is None:
            return
        self._refused = True
        status, problem = self._bad
        refusal_body = self.door.complain(status, problem)
        response_head = (
            b"HTTP/1.1 %d \r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        )
        content_type = b"application/json" if refusal_body.startswith(b"{") else b"text/plain"
        self.transport.write(
            response_head % (status, content_type, len(refusal_body)) + refusal_body
        )
        if self._peer_closed:
            self.transport.close()
            return
        with contextlib.suppress(OSError, RuntimeError):
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def _release_body_bytes(self, byte_count: int) -> None:
        """Release bytes of bodies from the listener's count, at most those of this connection."""
        byte_count = min(byte_count, self._body_bytes)
        self._body_bytes -= byte_count
        self.door.all_bodies -= byte_count


def _too_long(listener: Listener) -> str:
    return f"the head is too long: it may have {listener.limits.head} bytes"


def who(transport: asyncio.Transport) -> tuple[int | None, str]:
    """Return the uid at the other end of a Unix socket, or the address on TCP."""
    connection = transport.get_extra_info("socket")
    if connection.family == socket.AF_UNIX:
        return peer_of(connection).uid, ""
    name = transport.get_extra_info("peername")
    return None, str(name[0]) if name else ""
