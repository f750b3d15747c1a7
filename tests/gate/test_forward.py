"""Bytes from TCP to gRPC's socket are counted, bounded, and never lost on the way."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from typing import Any

import pytest

from podwright.gate import _byte_forwarder as forward
from podwright.gate._byte_forwarder import Forwarder, HiddenSocket
from podwright.http import Visitors


class Echo:
    """The inner server. It sends a greeting at once, and returns all that it receives."""

    def __init__(self, memory: int = 1 << 40) -> None:
        self.hidden = HiddenSocket()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.names: list[str] = []
        self.serving: set[asyncio.Task[Any] | None] = set()
        self.used = 0
        self.memory = memory

    async def start(self) -> None:
        self.server = await asyncio.start_unix_server(self._serve, self.hidden.path)
        self.hidden.hide()
        visitors = Visitors(8, 4)
        self.now = 0.0
        self.forwarder = Forwarder(
            *(self.listener, self.hidden, visitors, self.memory),
            *(lambda: self.used, lambda: self.now),
            busy_limit=0,
        )
        self.forwarder.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.current_task())
        self.names.append(writer.get_extra_info("peername").lstrip(b"\0").decode())
        writer.write(b"welcome ")
        with suppress(OSError), closing(writer):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()

    async def stop(self) -> None:
        self.forwarder.refuse()
        self.forwarder.stop()
        self.server.close()
        for task in filter(None, self.serving):
            task.cancel()
        await asyncio.gather(*filter(None, self.serving), return_exceptions=True)
        await asyncio.sleep(0.01)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    made = Echo()
    await made.start()
    yield made
    await made.stop()


async def test_every_byte_is_forwarded_in_both_directions(echo: Echo) -> None:
    """This includes bytes that gRPC sends before the client's end is ready, and its last bytes."""
    for size in (0, 1, 100_000, 1_000_000):
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
        sent = os.urandom(size)
        writer.write(sent)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 120) == b"welcome " + sent
        writer.close()
    async with asyncio.timeout(120):
        while len(echo.forwarder.visitors):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_connection_is_known_by_its_name(echo: Echo) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    assert await reader.readexactly(8) == b"welcome "
    assert echo.forwarder.peer(echo.names[0]) == ("127.0.0.1", f"uid {os.getuid()}")
    writer.close()
    async with asyncio.timeout(120):
        while any(echo.forwarder.peer(echo.names[0])):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.outer
async def test_one_account_of_this_host_leaves_room_for_another(echo: Echo) -> None:
    """They share an address, but the kernel distinguishes them."""
    held = []
    for _ in range(4):  # as many as one may have
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
        assert await reader.readexactly(8) == b"welcome "
        held.append(writer)
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    assert await asyncio.wait_for(reader.read(8), 120) == b""  # one more is refused
    code = (
        "import encodings.idna, os, socket, sys; os.setuid(65534); "
        "print(socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(8))"
    )
    words = ["-I", "-c", code, str(echo.port)]
    other = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(other.communicate(), 120)
    assert out.strip() == b"b'welcome '"
    for one in (*held, writer):
        one.close()


async def sent_until_cut(port: int, most: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.create_task(reader.read())
    sent = 0
    with suppress(OSError):
        while sent < most and not reading.done():
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    writer.transport.abort()
    return sent


async def test_a_connection_that_sends_without_calls_is_cut_off(echo: Echo) -> None:
    assert await sent_until_cut(echo.port, 64 << 20) < 32 << 20
    assert not len(echo.forwarder.visitors)


async def test_a_connection_whose_calls_begin_may_go_on_sending(echo: Echo) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    await reader.readexactly(8)
    for _ in range(8):
        writer.write(bytes(1 << 20))
        await reader.readexactly(1 << 20)
        echo.forwarder.note_call_start(echo.names[0], 1 << 20)
    writer.close()


async def test_a_connection_that_sends_slowly_without_calls_is_cut_off_too(echo: Echo) -> None:
    """gRPC reads pings so slowly that a flood of them never uses up its credit."""
    flood = await asyncio.open_connection("127.0.0.1", echo.port)
    caller = await asyncio.open_connection("127.0.0.1", echo.port)
    alive = await asyncio.open_connection("127.0.0.1", echo.port)
    begun = {}
    for reader, writer in (flood, caller, alive):
        assert await reader.readexactly(8)
        begun[writer] = echo.names[-1]
    for _ in range(30):
        for (reader, writer), size in ((flood, 8 << 10), (caller, 8 << 10), (alive, 1000)):
            writer.write(bytes(size))
            with suppress(asyncio.IncompleteReadError, OSError):
                await reader.readexactly(size)
        echo.forwarder.note_call_start(begun[caller[1]], 100)
        echo.now += 1.0
        echo.forwarder._check_traffic()
    assert await asyncio.wait_for(_ended(flood[0]), 120)
    for reader, writer in (caller, alive):
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
    for _, writer in (flood, caller, alive):
        writer.close()


async def test_above_the_memory_limit_the_connection_that_sent_most_is_closed(echo: Echo) -> None:
    heavy = await asyncio.open_connection("127.0.0.1", echo.port)
    light = await asyncio.open_connection("127.0.0.1", echo.port)
    for reader, writer, size in ((*heavy, 1 << 20), (*light, 100)):
        writer.write(bytes(size))
        await reader.readexactly(8 + size)
    echo.used = 1 << 50
    echo.forwarder._check_traffic()
    assert await asyncio.wait_for(_ended(heavy[0]), 120)
    echo.used = 0
    light[1].write(b"x")
    assert await light[0].readexactly(1) == b"x"
    heavy[1].close()
    light[1].close()


async def _ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def test_without_free_descriptors_the_forwarder_waits_for_one(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not try to accept again and again meanwhile."""
    monkeypatch.setattr(forward, "_LOOK", 0.05)
    tries = 0
    whole = echo.forwarder._listener

    class Empty:
        def accept(self) -> Any:
            nonlocal tries
            tries += 1
            raise OSError(errno.EMFILE, "none left")

        def fileno(self) -> int:
            return whole.fileno()

    echo.forwarder._listener = Empty()  # type: ignore[assignment]
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    async with asyncio.timeout(120):
        while tries < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    echo.forwarder._listener = whole
    assert await asyncio.wait_for(reader.readexactly(8), 120) == b"welcome "
    assert tries < 100
    writer.close()
