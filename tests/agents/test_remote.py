"""A machine behind its agent: the seam over the wire, who may call, and what a kill leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from podwright.agents import (
    Agent,
    Driver,
    Fault,
    KeptMachine,
    RemoteMachine,
    Secret,
    SimulatedMachine,
    read_key,
)
from podwright.fabric import IPU, Machine
from podwright.wire import (
    AlreadyExists,
    Fenced,
    Internal,
    InvalidRequest,
    Unauthenticated,
    Unavailable,
)

KEY = b"0123456789abcdef"


def simulated(name: str = "ag1") -> SimulatedMachine:
    return SimulatedMachine(Machine(name, "10.1.2.3"), IPU, links={"up": "ag2"}, keep_calls=9)


class Pair:
    """An agent, and what reaches it."""

    def __init__(self, folder: Path) -> None:
        self.machine = simulated()
        self.driver: Driver = self.machine
        self.state = folder / "state.json"
        self._open: list[RemoteMachine | Agent] = []

    async def connect(
        self, ours: Secret | None = None, its: Secret | None = None, timeout: float = 20.0
    ) -> RemoteMachine:
        agent = Agent(self.driver, secret=its)
        port = await agent.start("127.0.0.1", 0)
        remote = RemoteMachine("ag1", "127.0.0.1", port, secret=ours, timeout=timeout)
        self._open += [remote, agent]
        return remote

    async def close(self) -> None:
        for each in self._open:
            await (each.close() if isinstance(each, RemoteMachine) else each.stop(0))


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    yield made
    await made.close()


async def test_it_is_the_same_driver_over_the_wire(pair: Pair) -> None:
    remote: Driver = await pair.connect()
    await remote.configure("p1", 5, [0, 1])
    await remote.reset(6, [1])
    report = await remote.describe()
    assert report == await pair.machine.describe()
    assert report.configured == {0: ("p1", 5), 1: ("p1", 6)}
    assert report.links == {"up": "ag2"}
    await remote.release(7, [0, 1])
    assert (await remote.describe()).configured == {}


async def test_refusals_keep_their_kind(pair: Pair) -> None:
    remote = await pair.connect()
    await remote.configure("p1", 5, [0])
    with pytest.raises(Fenced, match="has seen epoch 5, newer than 4"):
        await remote.reset(4, [0])
    pair.machine.fail_next("reset")
    with pytest.raises(Internal, match="machine ag1"):
        await remote.reset(6, [0])


async def test_silence_is_unavailable(pair: Pair) -> None:
    remote = await pair.connect(timeout=0.2)
    pair.machine.fail_next("describe", fault=Fault.HANG)
    with pytest.raises(Unavailable, match=r"does not answer within 0\.2 s"):
        await remote.describe()
    nobody = RemoteMachine("ag9", "127.0.0.1", 1)
    with pytest.raises(Unavailable, match="machine ag9 does not answer at 127"):
        await nobody.describe()
    await nobody.close()


async def test_one_that_is_slow_to_answer_is_no_silent_one(pair: Pair) -> None:
    port = int((await pair.connect()).where.rpartition(":")[2])

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.5)
        await asyncio.gather(_pass(reader, outer), _pass(inner, writer))

    async with await asyncio.start_server(late, "127.0.0.1", 0) as door:
        remote = RemoteMachine("ag1", "127.0.0.1", door.sockets[0].getsockname()[1])
        try:
            assert (await remote.describe()).name == "ag1"
        finally:
            await remote.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


async def test_one_key_on_both_sides(pair: Pair) -> None:
    remote = await pair.connect(Secret(KEY), Secret(KEY))
    await remote.configure("p1", 1, [0])
    assert (await remote.describe()).configured == {0: ("p1", 1)}


@pytest.mark.parametrize("ours", [None, Secret(b"another key, as long")])
async def test_an_agent_takes_no_orders_from_strangers(pair: Pair, ours: Secret | None) -> None:
    remote = await pair.connect(ours, Secret(KEY))
    with pytest.raises(Internal, match="does not know this caller"):
        await remote.configure("p1", 1, [0])
    assert pair.machine.calls == []


async def test_a_server_believes_no_stranger(pair: Pair) -> None:
    remote = await pair.connect(Secret(KEY), None)
    with pytest.raises(Unavailable, match="does not have the server's agent key"):
        await remote.describe()


def test_calls_cannot_be_changed_or_played_again() -> None:
    now = [1000.0]
    server, agent = (Secret(KEY, clock=lambda: now[0]) for _ in range(2))
    said, nonce = server.sign("Reset", b"body")
    for call, body in (("Release", b"body"), ("Reset", b"other")):
        with pytest.raises(Unauthenticated, match="another key"):
            agent.check(call, body, said)
    assert agent.check("Reset", b"body", said) == nonce
    with pytest.raises(Unauthenticated, match="played again"):
        agent.check("Reset", b"body", said)
    late, _ = server.sign("Reset", b"body")
    now[0] += 1000
    with pytest.raises(Unauthenticated, match="clock"):
        agent.check("Reset", b"body", late)
    server.believe(nonce, b"answer", agent.prove(nonce, b"answer"))
    with pytest.raises(Unauthenticated):
        server.believe(nonce, b"other", agent.prove(nonce, b"answer"))


async def test_a_killed_agent_still_fences(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    first = KeptMachine(simulated(), state)
    await first.configure("p1", 5, [0, 1])
    with pytest.raises(AlreadyExists, match="another agent"):
        KeptMachine(simulated(), state)
    first.let_go()  # as the kernel does for a killed process
    second = KeptMachine(simulated(), state)
    assert (await second.describe()).configured == {0: ("p1", 5), 1: ("p1", 5)}
    with pytest.raises(Fenced):
        await second.release(4, [0])
    assert state.stat().st_mode & 0o077 == 0
    second.let_go()
    with pytest.raises(InvalidRequest, match="is the state of machine ag1, not ag2"):
        KeptMachine(simulated("ag2"), state)


async def test_the_fence_holds_although_the_work_did_not(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    machine = simulated()
    kept = KeptMachine(machine, state)
    machine.fail_next("configure")
    with pytest.raises(Internal):
        await kept.configure("p1", 5, [0])
    kept.let_go()
    again = KeptMachine(simulated(), state)
    assert (await again.describe()).configured == {}
    with pytest.raises(Fenced):
        await again.configure("p0", 4, [0])
    with pytest.raises(InvalidRequest, match="has no device 4"):
        await again.reset(9, [4])


def test_keys_are_private_and_long(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(KEY + b"\n")
    path.chmod(0o644)
    with pytest.raises(InvalidRequest, match="can be read by others"):
        read_key(path)
    path.chmod(0o600)
    assert read_key(path) == KEY
    path.write_bytes(b"short")
    with pytest.raises(InvalidRequest, match="fewer than"):
        read_key(path)
    with pytest.raises(InvalidRequest, match="cannot read"):
        read_key(tmp_path / "none")
