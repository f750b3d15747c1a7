"""HTTP/2 as far as gRPC's unary calls need it: one connection, its streams, and their bounds.

An empty call took 0.5 ms of a slow processor through grpc.aio, which hands it between its threads
and ours, and takes 0.07 ms here: it is read on the loop's thread and answered in one write.

Everybody who reaches the port may talk to this, so whatever a peer can make grow is bounded:
frames, heads, bodies, streams, what is held and what is not yet read, calls begun and given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from struct import Struct, iter_unpack
from typing import cast

from podwright.server._grpc_heads import Head, Status, read_head, reply_head, trailers
from podwright.server._hpack import Decoder, HpackError, TooLong

_log = logging.getLogger("podwright.server")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME = 16384  #: what every peer takes and sends unless told otherwise (RFC 9113, 4.2)
MAX_HEAD = 16 * 1024
MAX_STREAMS = 256
#: Bytes that one connection may have us hold of its calls, and of answers that it does not take.
MAX_HELD = 16 * 1024 * 1024
#: Bytes of answers that a peer may leave unread.
MAX_UNREAD = 1024 * 1024
#: Calls that a peer may give up beyond those that it let us answer (CVE-2023-44487).
MAX_RESETS = 200
MAX_CONTINUATIONS = 64
MAX_KEPT_HEADS = 64
#: Seconds in which a connection must say that it speaks HTTP/2, or take what we said last.
PATIENCE = 20.0

_DATA, _HEADERS, _PRIORITY, _RST, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW, _CONTINUATION = range(
    10
)
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITISED = 0x1, 0x1, 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED = 0, 1, 3, 5
FRAME_SIZE_ERROR, REFUSED_STREAM, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 7, 9, 11
_INITIAL_WINDOW = 65535
_MAX_WINDOW = 2**31 - 1
_frame = Struct(">BHBBL")
_long = Struct(">L")
#: Bytes of a header block each of which is one entry of the tables, and changes neither.
_INDEXED = bytes(range(0x81, 0xFF))

#: Path, metadata and message of a call -> its answer. Raises Status.
Answer = Callable[["Connection", Head, bytes], Awaitable[bytes]]


class _Broken(Exception):
    """The peer broke the protocol: the connection ends."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class _Stream:
    """One call. window: bytes of its answer that the peer takes. task: once it is whole."""

    __slots__ = ("body", "head", "number", "task", "window")

    def __init__(self, number: int, head: Head, window: int) -> None:
        self.number = number
        self.head = head
        self.window = window
        self.body = bytearray()
        self.task: asyncio.Task[None] | None = None


class Peers(set["Connection"]):
    """All that are connected. ended: nobody more may come."""

    ended = False


class Connection(asyncio.Protocol):
    """One peer. answer: carries a call out. max_message: bytes. peers: where it stands while it is
    there. gone: done when it has gone."""

    def __init__(self, answer: Answer, max_message: int, peers: Peers) -> None:
        self._answer = answer
        self._max_message = max_message
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.transport: asyncio.Transport
        self._buffer = bytearray()
        self._begun = False
        self._decoder = Decoder(MAX_HEAD)
        self._heads: dict[bytes, Head] = {}
        self._streams: dict[int, _Stream] = {}
        self._last = 0
        self._block: tuple[int, bool, bytearray] | None = None
        self._continued = 0
        self._window = _INITIAL_WINDOW  # what the peer takes, over all streams
        self._peer_window = _INITIAL_WINDOW  # what it takes on a new stream
        self._owed = 0  # what we took and did not yet say so
        self._held = self._unsent = 0
        self._resets = self._answered = 0
        self._moved = asyncio.Event()
        self._paused = False
        self._ending = False
        self._patience: asyncio.TimerHandle | None = None

    # -- what the loop calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has come."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are none by their type
        self._peers.add(self)
        if self._peers.ended:
            self.transport.abort()
            return
        self._patience = self._loop.call_later(PATIENCE, self.transport.abort)
        settings = (3, MAX_STREAMS), (4, self._max_message + MAX_FRAME), (6, MAX_HEAD)
        self._write(_SETTINGS, 0, 0, b"".join(Struct(">HL").pack(*pair) for pair in settings))
        self._write(_WINDOW, 0, 0, _long.pack(MAX_HELD))

    def connection_lost(self, _: Exception | None) -> None:
        """It has gone, and nobody waits for its calls."""
        self._wait_no_more()
        for stream in self._streams.values():
            if stream.task is not None:
                stream.task.cancel()
        self._moved.set()
        self._peers.discard(self)
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        """The peer does not read as fast as we write."""
        self._paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._paused = False
        self._moved.set()

    def data_received(self, data: bytes) -> None:
        """More has arrived."""
        buffer = self._buffer
        buffer += data
        try:
            if not self._begun:
                if not PREFACE.startswith(buffer[: len(PREFACE)]):
                    raise _Broken(PROTOCOL_ERROR, "this is no HTTP/2")
                if len(buffer) < len(PREFACE):
                    return
                del buffer[: len(PREFACE)]
                self._begun = True
                self._wait_no_more()
            at, end = 0, len(buffer)
            while end - at >= 9:
                high, low, kind, flags, number = _frame.unpack_from(buffer, at)
                size = high << 16 | low
                if size > MAX_FRAME:
                    raise _Broken(FRAME_SIZE_ERROR, "a frame is too long")
                if end - at < 9 + size:
                    break
                self._take(kind, flags, number & _MAX_WINDOW, bytes(buffer[at + 9 : at + 9 + size]))
                at += 9 + size
            del buffer[:at]
        except _Broken as broken:
            buffer.clear()
            self._go_away(broken.code, str(broken))
            self._hang_up()
        except Exception:
            _log.exception("an HTTP/2 connection failed")
            self.transport.abort()

    # -- frames ------------------------------------------------------------------------------

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self.transport.is_closing():
            return
        if (self._block is None) == (kind == _CONTINUATION):
            raise _Broken(PROTOCOL_ERROR, "a head is in pieces")
        if kind == _DATA:
            self._take_data(number, flags, payload)
        elif kind == _HEADERS:
            payload = _unpadded(flags, payload)
            if flags & _PRIORITISED:
                payload = payload[5:]
            self._begin_head(number, flags, payload)
        elif kind == _CONTINUATION:
            assert self._block is not None
            first, ends, block = self._block
            self._continued += 1
            block += payload
            if number != first or self._continued > MAX_CONTINUATIONS or len(block) > 2 * MAX_HEAD:
                raise _Broken(ENHANCE_YOUR_CALM, "a head is too long")
            if flags & _END_HEADERS:
                self._block = None
                self._take_head(first, ends, bytes(block))
        elif kind == _WINDOW:
            self._widen(number, payload)
        elif kind == _RST:
            self._take_reset(number, payload)
        elif kind == _SETTINGS:
            self._take_settings(number, flags, payload)
        elif kind == _PING:
            if number or len(payload) != 8:
                raise _Broken(PROTOCOL_ERROR, "a ping is wrong")
            if not flags & _ACK:
                self._control(_PING, _ACK, payload)
        elif kind == _PUSH:
            raise _Broken(PROTOCOL_ERROR, "clients do not push")

    def _begin_head(self, number: int, flags: int, payload: bytes) -> None:
        if flags & _END_HEADERS:
            self._take_head(number, bool(flags & _END_STREAM), payload)
        else:
            self._continued = 0
            self._block = number, bool(flags & _END_STREAM), bytearray(payload)

    def _take_head(self, number: int, ends: bool, block: bytes) -> None:
        head = self._heads.get(block)
        if head is None:
            head = self._decoded(block)
        if (stream := self._streams.get(number)) is not None and stream.task is None:
            if not ends:
                raise _Broken(PROTOCOL_ERROR, "a second head does not end its stream")
            self._begin_call(stream)
            return
        if not number % 2:
            raise _Broken(PROTOCOL_ERROR, "a stream has the number of a server's")
        if number <= self._last:
            return  # of a call that we refused or that is answered
        self._last = number
        if self._ending or len(self._streams) >= MAX_STREAMS or self._unsent > MAX_HELD:
            self._control(_RST, 0, _long.pack(REFUSED_STREAM), number)
            return
        if head.http_status:
            self._close_stream(number, reply_head(head.http_status))
            return
        self._streams[number] = stream = _Stream(number, head, self._peer_window)
        if ends:
            self._begin_call(stream)

    def _decoded(self, block: bytes) -> Head:
        try:
            head = read_head(self._decoder.decode(block))
        except TooLong:
            raise _Broken(ENHANCE_YOUR_CALM, "a head is too long") from None
        except HpackError:
            raise _Broken(COMPRESSION_ERROR, "a head cannot be read") from None
        if block.translate(None, _INDEXED) or len(self._heads) > MAX_KEPT_HEADS:
            self._heads.clear()  # the tables may have changed, and with them what a block means
        else:
            self._heads[block] = head
        return head

    def _take_data(self, number: int, flags: int, payload: bytes) -> None:
        if not number or number > self._last:
            raise _Broken(PROTOCOL_ERROR, "data comes before its head")
        self._owed += len(payload)
        if self._owed >= MAX_FRAME:
            self._control(_WINDOW, 0, _long.pack(self._owed))
            self._owed = 0
        stream = self._streams.get(number)
        if stream is None:
            return  # of a call that we refused or that is answered
        if stream.task is not None:
            raise _Broken(STREAM_CLOSED, "data comes after its end")
        payload = _unpadded(flags, payload)
        stream.body += payload
        self._held += len(payload)
        if self._held > MAX_HELD:
            raise _Broken(ENHANCE_YOUR_CALM, "too many messages at once")
        body = stream.body
        if len(body) >= 5 and max(_long.unpack_from(body, 1)[0], len(body) - 5) > self._max_message:
            self._drop(stream)
            refusal = Status(8, f"a message may have {self._max_message} bytes")
            self._close_stream(number, reply_head(200) + trailers(refusal))
            if not flags & _END_STREAM:
                self._control(_RST, 0, _long.pack(NO_ERROR), number)
        elif flags & _END_STREAM:
            self._begin_call(stream)

    def _take_reset(self, number: int, payload: bytes) -> None:
        if not number or number > self._last or len(payload) != 4:
            raise _Broken(PROTOCOL_ERROR, "a reset is wrong")
        stream = self._streams.get(number)
        if stream is None:
            return
        self._resets += 1
        if self._resets > self._answered + MAX_RESETS:
            raise _Broken(ENHANCE_YOUR_CALM, "too many calls are begun and given up")
        self._drop(stream)
        if stream.task is not None:
            stream.task.cancel()

    def _take_settings(self, number: int, flags: int, payload: bytes) -> None:
        if number or len(payload) % 6:
            raise _Broken(PROTOCOL_ERROR, "settings are wrong")
        if flags & _ACK:
            return
        for key, value in iter_unpack(">HL", payload):
            if key == 4:
                if value > _MAX_WINDOW:
                    raise _Broken(FLOW_CONTROL_ERROR, "a window is too large")
                for stream in self._streams.values():
                    stream.window += value - self._peer_window
                self._peer_window = value
        self._moved.set()
        self._control(_SETTINGS, _ACK, b"")

    def _widen(self, number: int, payload: bytes) -> None:
        more = _long.unpack(payload)[0] & _MAX_WINDOW if len(payload) == 4 else 0
        if not more or number > self._last:
            raise _Broken(PROTOCOL_ERROR, "a window does not grow so")
        if not number:
            self._window += more
        elif (stream := self._streams.get(number)) is not None:
            stream.window += more
            if stream.window > _MAX_WINDOW:
                raise _Broken(FLOW_CONTROL_ERROR, "a window is too large")
        if self._window > _MAX_WINDOW:
            raise _Broken(FLOW_CONTROL_ERROR, "a window is too large")
        self._moved.set()

    # -- calls -------------------------------------------------------------------------------

    def _begin_call(self, stream: _Stream) -> None:
        stream.task = self._loop.create_task(self._call(stream))

    async def _call(self, stream: _Stream) -> None:
        head, refusal, reply = stream.head, None, b""
        try:
            message = head.message(stream.body, self._max_message)
            if head.timeout is None:
                reply = await self._answer(self, head, message)
            else:
                async with asyncio.timeout(head.timeout):
                    reply = await self._answer(self, head, message)
            self._answered += 1
            if not self.transport.is_closing():
                await self._send(stream, reply)
            return
        except Status as status:
            refusal = status
        except TimeoutError:
            refusal = Status(4, "the time that the caller gave is over")
        finally:
            self._drop(stream)
        self._answered += 1
        if not self.transport.is_closing():
            self._close_stream(stream.number, reply_head(200) + trailers(refusal))

    async def _send(self, stream: _Stream, reply: bytes) -> None:
        number, data = stream.number, b"\0" + _long.pack(len(reply)) + reply
        start = _framed(_HEADERS, _END_HEADERS, number, reply_head(200))
        end = _framed(_HEADERS, _END_HEADERS | _END_STREAM, number, trailers(None))
        size = len(data)
        if size <= min(MAX_FRAME, self._window, stream.window) and not self._paused:
            self._window -= size
            self.transport.write(start + _framed(_DATA, 0, number, data) + end)
            return
        self.transport.write(start)
        self._unsent += size
        try:
            if await self._send_parts(stream, data):
                self.transport.write(end)
        finally:
            self._unsent -= size

    async def _send_parts(self, stream: _Stream, data: bytes) -> bool:
        """As the windows allow. Returns whether the peer is still there."""
        at, size = 0, len(data)
        while at < size:
            room = min(MAX_FRAME, self._window, stream.window, size - at)
            if room <= 0 or self._paused:
                self._moved.clear()
                await self._moved.wait()
                if self.transport.is_closing():
                    return False
                continue
            self._window -= room
            stream.window -= room
            self.transport.write(_framed(_DATA, 0, stream.number, data[at : at + room]))
            at += room
        return True

    def _close_stream(self, number: int, block: bytes) -> None:
        self._control(_HEADERS, _END_HEADERS | _END_STREAM, block, number)

    def _drop(self, stream: _Stream) -> None:
        if self._streams.pop(stream.number, None) is not None:
            self._held -= len(stream.body)

    # -- the end -----------------------------------------------------------------------------

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The calls under way."""
        return [stream.task for stream in self._streams.values() if stream.task is not None]

    def end(self) -> None:
        """Take no new calls."""
        if not self._ending and not self.transport.is_closing():
            self._ending = True
            self._go_away(NO_ERROR, "the server is ending")

    def close(self) -> None:
        """End the connection, once what was said is on its way."""
        self._hang_up()

    def _go_away(self, code: int, why: str) -> None:
        self._write(_GOAWAY, 0, 0, _long.pack(self._last) + _long.pack(code) + why.encode())

    def _hang_up(self) -> None:
        self.transport.close()
        if self._patience is None:
            self._patience = self._loop.call_later(PATIENCE, self.transport.abort)

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # -- writing -----------------------------------------------------------------------------

    def _write(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(_framed(kind, flags, number, payload))

    def _control(self, kind: int, flags: int, payload: bytes, number: int = 0) -> None:
        """Answer what costs the peer little to send: not to one that does not read."""
        if self._paused and self.transport.get_write_buffer_size() > MAX_UNREAD:
            self.transport.abort()
            return
        self._write(kind, flags, number, payload)


def _framed(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    size = len(payload)
    return _frame.pack(size >> 16, size & 0xFFFF, kind, flags, number) + payload


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise _Broken(PROTOCOL_ERROR, "the padding is too long")
    return payload[1 : len(payload) - payload[0]]
