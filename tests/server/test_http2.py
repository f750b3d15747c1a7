"""HTTP/2 by hand: heads in pieces, windows, deadlines, and every way to break the protocol."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from podwright import wire
from podwright.server import Server
from podwright.server import _http2 as http2
from podwright.server._grpc_heads import _field
from podwright.server._hpack import Decoder, HpackError, TooLong
from podwright.wire import messages
from tests.server.fakes import FakeController

INFO = messages.method_path("GetServerInfo")
RENEW = messages.method_path("Renew")
LEASE = messages.encode(wire.LeaseRequest(id="l", epoch=1))
DEVICES = messages.method_path("ListDevices")
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBL", kind, flags, number) + payload


def head(path: str, *more: tuple[bytes, bytes], method: bytes = b"POST") -> bytes:
    kind = () if any(name == b"content-type" for name, _ in more) else (GRPC,)
    fields = ((b":method", method), (b":scheme", b"http"), (b":path", path.encode()), *kind, *more)
    return b"".join(_field(name, value) for name, value in fields)


GRPC = (b"content-type", b"application/grpc")


def message(data: bytes = b"", packed: int = 0) -> bytes:
    return bytes((packed,)) + struct.pack(">L", len(data)) + data


class Peer:
    """One connection; frames as they come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.decoder = Decoder(1 << 20)

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    def call(self, path: str, body: bytes, number: int = 1, *more: tuple[bytes, bytes]) -> None:
        self.send(frame(HEADERS, 4, number, head(path, *more)), frame(DATA, 1, number, body))

    async def read(self) -> tuple[int, int, int, bytes]:
        """(kind, flags, stream, payload) of the next frame that is not about the connection."""
        while True:
            start = await asyncio.wait_for(self.reader.readexactly(9), 30)
            payload = await self.reader.readexactly(int.from_bytes(start[:3], "big"))
            kind, flags, number = struct.unpack(">BBL", start[3:])
            if kind == GOAWAY or number:
                return kind, flags, number, payload

    async def answer(self, number: int = 1) -> tuple[dict[bytes, bytes], bytes]:
        """Heads and trailers, and the bytes of the message."""
        found = {b"grpc-status": b""}
        body = b""
        while True:
            kind, flags, stream, payload = await self.read()
            assert stream == number, (kind, payload)
            if kind == HEADERS:
                found.update(self.decoder.decode(payload))
            else:
                assert kind == DATA
                body += payload
            if flags & 1:
                return found, body

    async def ended(self) -> int:
        """The code with which the server went away."""
        while True:
            kind, _, _, payload = await self.read()
            if kind == GOAWAY:
                assert await asyncio.wait_for(self.reader.read(), 30) == b""
                return int.from_bytes(payload[4:8], "big")


@pytest.fixture
async def peer(server: Server) -> AsyncIterator[Peer]:
    made = Peer(*await asyncio.open_connection("127.0.0.1", server.port))
    made.send(http2.PREFACE, frame(SETTINGS, 0, 0))
    yield made
    made.writer.close()


async def test_a_call_in_the_smallest_pieces(peer: Peer) -> None:
    block = head(INFO)
    sent = b"".join(
        [
            frame(HEADERS, 0x20 | 0x8, 1, b"\x03" + b"\0\0\0\0\x10" + block[:9] + b"\0" * 3),
            *(frame(CONTINUATION, 0, 1, block[at : at + 9]) for at in range(9, len(block), 9)),
            frame(CONTINUATION, 4, 1),
            frame(2, 0, 1, b"\0\0\0\0\x10"),
            frame(99, 0, 1, b"of a later version"),
            frame(DATA, 0, 1, message()[:2]),
            frame(DATA, 0x8 | 0x1, 1, b"\x02" + message()[2:] + b"\0\0"),
        ]
    )
    for byte in sent:
        peer.send(bytes((byte,)))
        await peer.writer.drain()
    found, body = await peer.answer()
    assert found[b":status"] == b"200"
    assert found[b"grpc-status"] == b"0"
    assert messages.decode(wire.ServerInfo, body[5:]).apis


async def test_an_answer_waits_for_its_window(peer: Peer) -> None:
    peer.send(frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 10)))
    peer.call(DEVICES, message())
    assert (await peer.read())[0] == HEADERS
    kind, flags, _, first = await peer.read()
    assert (kind, flags, len(first)) == (DATA, 0, 10)
    peer.send(frame(WINDOW, 0, 1, struct.pack(">L", 7)))
    second = (await peer.read())[3]
    assert len(second) == 7
    peer.send(frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 100_000)))
    found, rest = await peer.answer()
    assert found[b"grpc-status"] == b"0"
    assert len(messages.decode(wire.DeviceList, (first + second + rest)[5:]).devices) == 8


async def test_compressed_messages(channel: grpc.aio.Channel, peer: Peer) -> None:
    ask = channel.unary_unary(RENEW)
    assert messages.decode(wire.LeaseInfo, await ask(LEASE, compression=grpc.Compression.Gzip))
    for number, (encoding, data, status) in enumerate(
        (
            (b"gzip", gzip.compress(b"\0" * (1 << 24)), b"8"),
            (b"gzip", b"this is none", b"3"),
            (b"snappy", b"xx", b"12"),
        )
    ):
        more = (b"grpc-encoding", encoding)
        peer.call(RENEW, message(data, 1), 2 * number + 1, more)
        assert (await peer.answer(2 * number + 1))[0][b"grpc-status"] == status


async def test_a_deadline(peer: Peer, controller: FakeController) -> None:
    controller.hold["renew"] = asyncio.Event()
    peer.call(RENEW, message(LEASE), 1, (b"grpc-timeout", b"20m"))
    found, _ = await peer.answer()
    assert found[b"grpc-status"] == b"4"


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (head(INFO, method=b"GET"), b"405"),
        (head(INFO, (b"content-type", b"text/html")), b"415"),
        (_field(b":method", b"POST"), b"400"),
    ],
)
async def test_what_is_no_grpc(peer: Peer, block: bytes, status: bytes) -> None:
    peer.send(frame(HEADERS, 5, 1, block))
    found, body = await peer.answer()
    assert (found[b":status"], body) == (status, b"")


@pytest.mark.parametrize("body", [b"", b"\0\0", message(b"abc")[:-1], message() + message()])
async def test_not_one_whole_message(peer: Peer, body: bytes) -> None:
    peer.call(INFO, body)
    assert (await peer.answer())[0][b"grpc-status"] == b"3"


async def test_a_call_given_up_is_cancelled_and_its_connection_lives(
    peer: Peer, controller: FakeController
) -> None:
    controller.hold["renew"] = asyncio.Event()
    for number in range(1, 2 * http2.MAX_RESETS, 2):
        peer.call(RENEW, message(LEASE), number)
        peer.send(frame(RST, 0, number, b"\0\0\0\x08"))
    last = 2 * http2.MAX_RESETS + 1
    peer.call(INFO, message(), last)
    assert (await peer.answer(last))[0][b"grpc-status"] == b"0"


async def test_calls_begun_only_to_be_given_up(peer: Peer, controller: FakeController) -> None:
    controller.hold["renew"] = asyncio.Event()
    for number in range(1, 2 * http2.MAX_RESETS + 3, 2):
        peer.call(RENEW, message(LEASE), number)
        peer.send(frame(RST, 0, number, b"\0\0\0\x08"))
    assert await peer.ended() == http2.ENHANCE_YOUR_CALM


async def test_too_many_calls_at_once(
    peer: Peer, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "MAX_STREAMS", 2)
    controller.hold["renew"] = asyncio.Event()
    for number in (1, 3, 5):
        peer.call(RENEW, message(LEASE), number)
    assert await peer.read() == (RST, 0, 5, struct.pack(">L", http2.REFUSED_STREAM))
    controller.hold["renew"].set()
    assert (await peer.answer(1))[0][b"grpc-status"] == b"0"


async def test_more_than_a_connection_may_hold(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "MAX_HELD", 1000)
    for number in (1, 3):
        peer.send(
            frame(HEADERS, 4, number, head(INFO)),
            frame(DATA, 0, number, message(b"x" * 800)[:-1]),
        )
    assert await peer.ended() == http2.ENHANCE_YOUR_CALM


async def test_no_new_calls_while_answers_are_not_taken(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "MAX_HELD", 100)
    peer.send(frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 0)))
    peer.call(DEVICES, message())
    assert (await peer.read())[:3] == (HEADERS, 4, 1)
    peer.call(INFO, message(), 3)
    assert await peer.read() == (RST, 0, 3, struct.pack(">L", http2.REFUSED_STREAM))
    peer.send(frame(WINDOW, 0, 1, struct.pack(">L", 100_000)))
    assert (await peer.answer())[0][b"grpc-status"] == b"0"
    peer.send(frame(WINDOW, 0, 0, struct.pack(">L", 100_000)))
    peer.send(frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 100_000)))
    peer.call(INFO, message(), 5)
    assert (await peer.answer(5))[0][b"grpc-status"] == b"0"


async def test_who_asks_and_never_reads_is_left(server: Server) -> None:
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    silent.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(silent, ("127.0.0.1", server.port))
    await loop.sock_sendall(silent, http2.PREFACE)

    async def ask() -> None:
        pings = frame(PING, 0, 0, b"are you?") * 4000
        for _ in range(1000):
            await loop.sock_sendall(silent, pings)

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(ask(), 60)
    silent.close()


BEGUN = frame(HEADERS, 4, 1, head(INFO))
BROKEN = {
    "a frame too long": (b"\xff\xff\xff\0\0\0\0\0\1", http2.FRAME_SIZE_ERROR),
    "data without a head": (frame(DATA, 0, 1, b"x"), http2.PROTOCOL_ERROR),
    "data after its end": (
        BEGUN + frame(DATA, 1, 1, message()) + frame(DATA, 0, 1, b"x"),
        http2.STREAM_CLOSED,
    ),
    "padding without end": (BEGUN + frame(DATA, 8, 1, b"\x05abc"), http2.PROTOCOL_ERROR),
    "a server's stream": (frame(HEADERS, 4, 2, head(INFO)), http2.PROTOCOL_ERROR),
    "a second head": (BEGUN + BEGUN, http2.PROTOCOL_ERROR),
    "half a head": (frame(HEADERS, 0, 1, b"") + frame(PING, 0, 0, b"x" * 8), http2.PROTOCOL_ERROR),
    "half a head of another": (
        frame(HEADERS, 0, 1) + frame(CONTINUATION, 4, 3),
        http2.ENHANCE_YOUR_CALM,
    ),
    "a continuation of nothing": (frame(CONTINUATION, 4, 1), http2.PROTOCOL_ERROR),
    "a head without end": (
        frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1) * 100,
        http2.ENHANCE_YOUR_CALM,
    ),
    "a head too long": (
        frame(HEADERS, 4, 1, head(INFO, (b"x", b"y" * 16_200), (b"z", b""))),
        http2.ENHANCE_YOUR_CALM,
    ),
    "a head that unfolds": (
        frame(HEADERS, 4, 1, b"\x40\x01x\x7f\x81\x1e" + b"y" * 4000 + b"\xbe" * 1000),
        http2.ENHANCE_YOUR_CALM,
    ),
    "a head that is none": (frame(HEADERS, 4, 1, b"\xff\xff\xff"), http2.COMPRESSION_ERROR),
    "a push": (frame(5, 4, 1, b"\0\0\0\2"), http2.PROTOCOL_ERROR),
    "a ping too short": (frame(PING, 0, 0, b"x"), http2.PROTOCOL_ERROR),
    "settings too short": (frame(SETTINGS, 0, 0, b"x"), http2.PROTOCOL_ERROR),
    "a window too large": (
        frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 2**31)),
        http2.FLOW_CONTROL_ERROR,
    ),
    "a window that does not grow": (frame(WINDOW, 0, 0, b"\0\0\0\0"), http2.PROTOCOL_ERROR),
    "a window that overflows": (frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"), http2.FLOW_CONTROL_ERROR),
    "a stream's window that overflows": (
        BEGUN + frame(WINDOW, 0, 1, b"\x7f\xff\xff\xff"),
        http2.FLOW_CONTROL_ERROR,
    ),
    "a reset of nothing": (frame(RST, 0, 1, b"\0\0\0\0"), http2.PROTOCOL_ERROR),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_who_breaks_the_protocol_is_told_and_left(
    peer: Peer, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, code = BROKEN[what]
    peer.send(data)
    assert await peer.ended() == code
    assert caplog.text == ""


async def test_frames_by_chance(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is sent, the server goes on, and logs no fault of its own."""
    rng = random.Random(2)
    good = [
        BEGUN,
        frame(DATA, 1, 1, message()),
        frame(SETTINGS, 0, 0),
        frame(WINDOW, 0, 0, b"\1" * 4),
    ]
    for _ in range(150):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(http2.PREFACE)
        for _ in range(rng.randint(1, 12)):
            data = bytearray(rng.choice(good))
            if rng.random() < 0.6:
                kind, flags = rng.randrange(11), rng.randrange(256)
                data = bytearray(
                    frame(kind, flags, rng.randrange(4), rng.randbytes(rng.randrange(30)))
                )
            elif rng.random() < 0.5:
                data[rng.randrange(len(data))] = rng.randrange(256)
            writer.write(bytes(data))
        writer.close()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        assert await channel.unary_unary(INFO)(b"")
    assert caplog.text == ""


async def test_a_server_that_ends_says_so_and_finishes(
    server: Server, peer: Peer, controller: FakeController
) -> None:
    held = controller.hold["renew"] = asyncio.Event()
    peer.call(RENEW, message(LEASE))
    while not controller.callers:  # noqa: ASYNC110 - the fake has no event to offer
        await asyncio.sleep(0.005)
    front: Any = server._grpc
    ending = asyncio.create_task(front.stop(30))
    kind, _, _, payload = await peer.read()
    assert (kind, payload[:8]) == (GOAWAY, struct.pack(">LL", 1, http2.NO_ERROR))
    peer.call(RENEW, message(LEASE), 3)
    assert await peer.read() == (RST, 0, 3, struct.pack(">L", http2.REFUSED_STREAM))
    held.set()
    assert (await peer.answer())[0][b"grpc-status"] == b"0"
    await ending
    assert await asyncio.wait_for(peer.reader.read(), 30) == b""


def test_heads_of_the_rfc() -> None:
    """RFC 7541, C.4 and C.3: three requests on one connection, with and without Huffman's code."""
    for blocks in (
        (
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ),
        (
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ),
    ):
        decoder = Decoder(4096)
        first, second, third = (decoder.decode(bytes.fromhex(block)) for block in blocks)
        host = (b":authority", b"www.example.com")
        start = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]
        assert first == [*start, host]
        assert second == [*start, host, (b"cache-control", b"no-cache")]
        assert third == [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":path", b"/index.html"),
            host,
            (b"custom-key", b"custom-value"),
        ]


def test_the_table_forgets_the_oldest() -> None:
    """RFC 7541, 4.2 to 4.4."""
    decoder = Decoder(1 << 20)
    large = b"\x40\x01a\x7f\xc1\x0f" + b"x" * 2112  # 2,145 with its name and what the RFC adds
    assert len(decoder.decode(large)[0][1]) == 2112
    assert decoder.decode(large + b"\xbe")[1][0] == b"a"
    with pytest.raises(HpackError):
        decoder.decode(b"\xbf")  # only one of the two fits
    assert decoder.decode(b"\x20\x3f\xe1\x1f") == []
    with pytest.raises(HpackError):
        decoder.decode(b"\xbe")
    with pytest.raises(HpackError):
        decoder.decode(b"\x3f\xe2\x1f")  # more than we allow


@pytest.mark.parametrize(
    "block", ["80", "be", "40", "0081", "0001", "00810000", "008400000000", "7fffffffffff00"]
)
def test_heads_that_are_none(block: str) -> None:
    with pytest.raises(HpackError):
        Decoder(4096).decode(bytes.fromhex(block))
    with pytest.raises(TooLong):
        Decoder(100).decode(b"\x82" * 3)
