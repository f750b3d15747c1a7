"""Whatever an account of a machine sends to the agent's cgroup socket, it ends nothing.

It also keeps no other account out.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.agents.gpu import CgroupSocket, GpuMachine
from podwright.agents.gpu import _cgroup_socket as module
from podwright.errors import NotFound, error_from_json

GOOD = "p1"


class Recorded:
    """The part of a machine that the socket uses."""

    def __init__(self) -> None:
        self.moved: list[tuple[str, int, int]] = []
        self.fail: Exception | None = None

    async def enter(self, partition: str, pid: int, uid: int) -> None:
        """Accept only one partition."""
        if self.fail is not None:
            raise self.fail
        if partition != GOOD:
            raise NotFound(f"there is no partition {partition}", operation=partition)
        self.moved.append((partition, pid, uid))


class Door:
    """The socket of an agent, and its callers."""

    def __init__(self, path: Path) -> None:
        self.path, self.machine = path, Recorded()
        machine: GpuMachine = self.machine  # type: ignore[assignment]
        self.served = CgroupSocket(machine)

    async def begin(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.path))
        listener.listen(128)
        listener.setblocking(False)
        await self.served.start(listener)

    async def say(self, *parts: bytes) -> bytes:
        """Send bytes. Returns everything that comes back until the other end closes."""
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            writer.write_eof()
            async with asyncio.timeout(60):
                return await reader.read()
        except OSError:  # it had heard enough
            return b""
        finally:
            writer.close()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    made = Door(tmp_path / "agent.sock")
    await made.begin()
    yield made
    await made.served.stop()


names = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from([b"p1", b"../../p1", b"p1\0", b"\n", b"x" * 4095, b"x" * 5000, b'{"p1":1}']),
)
ends = st.sampled_from([b"\n", b"", b"\n\n", b"\np1\n"])
messages = st.lists(st.tuples(names, ends), max_size=3)


def answered(some: list[tuple[bytes, bytes]], folder: str) -> None:
    """Check that each gets a refusal that a launch can read, or is moved, and that a good line
    works.
    """

    async def ask() -> None:
        door = Door(Path(folder, "agent.sock"))
        await door.begin()
        for name, end in some:
            said = await door.say(name, end)
            line = (name + end).partition(b"\n")[0]
            if line == GOOD.encode() and end:
                assert said == b"\n"
                assert door.machine.moved.pop() == (GOOD, os.getpid(), os.getuid())
            elif said:  # else it had said more than anybody reads, and went
                assert error_from_json(json.loads(said)).message
            assert not door.machine.moved
            assert not len(door.served.visitors)
        assert await door.say(b"p1\n") == b"\n"
        await door.served.stop()

    asyncio.run(ask())


@settings(max_examples=20)
@given(messages)
def test_whatever_is_said_has_an_answer(some: list[tuple[bytes, bytes]]) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        answered(some, folder)


@pytest.mark.soak
@given(st.lists(st.tuples(names, ends), max_size=100))
def test_a_hundred_thousand_messages(some: list[tuple[bytes, bytes]]) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        answered(some, folder)


async def test_the_silent_make_room(door: Door) -> None:
    """One account's connections do not use up the agent's descriptors, and keep no launch out."""
    door.served.visitors.each = 8
    silent = [await asyncio.open_unix_connection(str(door.path)) for _ in range(20)]
    async with asyncio.timeout(60):
        while len(door.served.visitors) < 8 or door.served.visitors.refused < 12:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    refused = [json.loads(await reader.readline()) for reader, _ in silent[8:]]
    assert {told["code"] for told in refused} == {"INTERNAL"}
    door.served.visitors._patience = 0.0
    assert await door.say(b"p1\n") == b"\n"
    assert door.served.visitors.evicted == 1
    for _, writer in silent:
        writer.close()


async def test_a_line_without_an_end_moves_nobody(door: Door) -> None:
    """An incomplete line may be another partition's name."""
    assert b"did not end" in await door.say(b"p1")
    assert door.machine.moved == []


async def test_who_is_slow_is_told(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    reader, writer = await asyncio.open_unix_connection(str(door.path))
    writer.write(b"p")
    async with asyncio.timeout(60):
        assert b"INTERNAL" in await reader.readline()
    writer.close()


async def test_a_fault_of_ours_is_in_the_log_alone(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    door.machine.fail = RuntimeError("inside")
    said = await door.say(b"p1\n")
    assert b"INTERNAL" in said
    assert b"inside" not in said
    assert "inside" in caplog.text
