"""A machine behind its agent: the seam over the wire, authentication, and the state after a
kill.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from podwright.agents import (
    WINDOW,
    Agent,
    Driver,
    Fault,
    Heard,
    RemoteMachine,
    SavedMachine,
    Secret,
    SimulatedMachine,
    _agent_server,
    _protocol_versions,
    machine_key,
    read_key,
)
from podwright.agents._protocol_versions import PROTOCOL_VERSION
from podwright.errors import (
    AlreadyExists,
    Fenced,
    Internal,
    InvalidRequest,
    Unauthenticated,
    Unavailable,
    WrongState,
)
from podwright.fabric import IPU, Machine
from tests.ports import free_port

KEY = b"0123456789abcdef"
SAME = Secret(KEY)


def simulated(name: str = "ag1") -> SimulatedMachine:
    return SimulatedMachine(Machine(name, "10.1.2.3"), IPU, links={"up": "ag2"}, max_kept_calls=9)


class Pair:
    """An agent, and what reaches it."""

    def __init__(self, folder: Path) -> None:
        self.machine = simulated()
        self.driver: Driver = self.machine
        self.state = folder / "state.json"
        self._open: list[RemoteMachine | Agent] = []

    async def connect(
        self,
        ours: Secret | None = SAME,
        its: Secret | None = None,
        timeout: float = 20.0,
        name: str = "ag1",
    ) -> RemoteMachine:
        agent = Agent(self.driver, "ag1", secret=its or Secret(KEY))
        port = await agent.start("127.0.0.1", 0)
        remote = RemoteMachine(name, "127.0.0.1", port, secret=ours, timeout=timeout)
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
        there = door.sockets[0].getsockname()[1]
        remote = RemoteMachine("ag1", "127.0.0.1", there, secret=SAME)
        try:
            assert (await remote.describe()).name == "ag1"
        finally:
            await remote.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError), contextlib.closing(writer):
        while data := await reader.read(65536):
            writer.write(data)


async def test_one_that_comes_back_is_found_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is found at once, however long gRPC would pause before its next attempt."""
    patience = "podwright.agents._agent_client._COMES_BACK"
    monkeypatch.setattr(patience, 1.0)
    at = free_port()
    remote = RemoteMachine("ag1", "127.0.0.1", at, secret=SAME)
    for _ in range(4):
        with pytest.raises(Unavailable, match="machine ag1 does not answer at 127"):
            await remote.describe()
    monkeypatch.setattr(patience, 60.0)
    agent = Agent(pair.driver, "ag1", secret=Secret(KEY))
    assert await agent.start("127.0.0.1", at) == at
    assert (await remote.describe()).name == "ag1"
    await remote.close()
    await agent.stop(0)


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
    class Stranger(Secret):
        """Answers whatever is asked, without the key."""

        def check(self, call: str, body: bytes, credential: str, machine: str, **_: object) -> str:
            return "0"

    remote = await pair.connect(Secret(KEY), Stranger(b"another key, as long"))
    with pytest.raises(Unavailable, match="does not have the server's agent key"):
        await remote.describe()


def test_calls_cannot_be_changed_or_played_again() -> None:
    now = [1000.0]
    server, agent = (Secret(KEY, clock=lambda: now[0]) for _ in range(2))
    said, nonce = server.sign("Reset", b"body", "ag1")
    for call, body in (("Release", b"body"), ("Reset", b"other")):
        with pytest.raises(Unauthenticated, match="another key"):
            agent.check(call, body, said, "ag1")
    words = said.split(" ")
    for place, other in enumerate(("999.000", "0" * 32, "ag2", "other", "7")):
        changed = " ".join((*words[:place], other, *words[place + 1 :]))
        with pytest.raises(Unauthenticated, match="another key"):
            agent.check("Reset", b"body", changed, "ag1")
    for wrong in ("", "a b c", "\xe9 " * 5 + "\xe9"):
        with pytest.raises(Unauthenticated):
            agent.check("Reset", b"body", wrong, "ag1")
    assert agent.check("Reset", b"body", said, "ag1") == nonce
    with pytest.raises(Unauthenticated, match="played again"):
        agent.check("Reset", b"body", said, "ag1")
    late, _ = server.sign("Reset", b"body", "ag1")
    now[0] += 1000
    with pytest.raises(Unauthenticated, match="clock"):
        agent.check("Reset", b"body", late, "ag1")
    server.check_answer(nonce, b"answer", agent.sign_answer(nonce, b"answer"))
    with pytest.raises(Unauthenticated):
        server.check_answer(nonce, b"other", agent.sign_answer(nonce, b"answer"))


def test_a_call_for_one_agent_is_no_other_ones() -> None:
    said, _ = Secret(KEY).sign("Reset", b"body", "ag1")
    with pytest.raises(Unauthenticated, match="is for machine ag1, and this is ag2"):
        Secret(KEY).check("Reset", b"body", said, "ag2")


async def test_a_server_that_takes_one_machine_for_another_is_told(pair: Pair) -> None:
    remote = await pair.connect(name="ag2")
    with pytest.raises(Internal, match="is for machine ag2, and this is ag1"):
        await remote.configure("p1", 1, [0])
    assert pair.machine.calls == []


def test_what_a_killed_agent_heard_is_not_obeyed_again(tmp_path: Path) -> None:
    """It obeys neither a repeated call, nor a server that another start of it has replaced."""
    now = [1000.0]
    path = tmp_path / "heard"
    old, new = (Secret(KEY, clock=lambda: now[0]) for _ in range(2))
    old.introduce("s1", 4)
    new.introduce("s1", 5)

    def agent() -> Secret:
        heard = Heard(2 * WINDOW, path, now=now[0])
        return Secret(KEY, clock=lambda: now[0], received_calls=heard)

    first, (said, _), (asked, _) = agent(), old.sign("Reset", b"", "a"), old.sign("D", b"", "a")
    first.check("Reset", b"", said, "a")
    first.check("D", b"", asked, "a", lasting=False)
    path.write_bytes(path.read_bytes() + b'{"nonce": "half')  # killed while it wrote
    again = agent()
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(Unauthenticated, match="played again"):
        again.check("Reset", b"", said, "a")
    again.check("Reset", b"", new.sign("Reset", b"", "a")[0], "a")
    for each in (again, agent()):
        with pytest.raises(Fenced, match=r"newer start of this server \(epoch 5, not 4\)"):
            each.check("Reset", b"", old.sign("Reset", b"", "a")[0], "a")
    other = Secret(KEY, clock=lambda: now[0])
    other.introduce("s2", 1)  # another store's: its own epochs, and the devices' fences decide
    last = agent()
    last.check("Reset", b"", other.sign("Reset", b"", "a")[0], "a")
    now[0] += 10 * WINDOW
    for _ in range(2500):
        last.check("Reset", b"", new.sign("Reset", b"", "a")[0], "a")
    assert len(path.read_bytes().splitlines()) < 2600
    now[0] += 10 * WINDOW
    agent()
    assert len(path.read_bytes().splitlines()) == 2
    path.write_bytes(b"something else\n{}\n")
    with pytest.raises(InvalidRequest, match="holds no calls"):
        agent()


async def test_no_agent_without_a_key(pair: Pair) -> None:
    with pytest.raises(InvalidRequest, match="would take orders from anybody"):
        Agent(pair.driver, "ag1")


@pytest.mark.parametrize("epoch", [1 << 62, 1 << 53, 5 + (1 << 44), -1])
async def test_an_absurd_epoch_is_refused(pair: Pair, epoch: int) -> None:
    """If it were obeyed once, it would shut out every server for good."""
    pair.driver = kept = SavedMachine(pair.machine, pair.state)
    remote = await pair.connect()
    await remote.configure("p1", 5, [0])
    for call in (
        remote.configure("p2", epoch, [1]),
        remote.reset(epoch, [0]),
        remote.fence(epoch, [0], ""),
        remote.release(epoch, [0]),
    ):
        with pytest.raises(Internal, match="none that a server can have come to"):
            await call
    assert (await remote.describe()).fence == 5
    await remote.release(1 << 43, [0])
    kept.let_go()


async def test_the_fence_travels(pair: Pair) -> None:
    remote = await pair.connect()
    await remote.configure("p1", 5, [0, 1])
    pair.machine.use(5, [0])
    await remote.fence(6, [0], "run-1")
    with pytest.raises(Fenced):
        pair.machine.use(5, [0])
    report = await remote.describe()
    assert (report.cuts_off, report.configured) == ("devices", {0: ("p1", 6), 1: ("p1", 5)})


def test_server_and_agents_of_a_machine_share_a_key_without_being_told(tmp_path: Path) -> None:
    path = tmp_path / "new" / "agent.key"
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(machine_key, [path] * 32))
    assert len(keys) == 1
    assert path.stat().st_mode & 0o077 == 0
    assert [entry.name for entry in path.parent.iterdir()] == ["agent.key"]
    path.chmod(0o644)
    with pytest.raises(InvalidRequest, match="can be read by others"):
        machine_key(path)


async def test_a_killed_agent_still_fences(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    first = SavedMachine(simulated(), state)
    await first.configure("p1", 5, [0, 1])
    with pytest.raises(AlreadyExists, match="another agent"):
        SavedMachine(simulated(), state)
    first.let_go()  # as the kernel does for a killed process
    second = SavedMachine(simulated(), state)
    assert (await second.describe()).configured == {0: ("p1", 5), 1: ("p1", 5)}
    with pytest.raises(Fenced):
        await second.release(4, [0])
    assert state.stat().st_mode & 0o077 == 0
    second.let_go()
    with pytest.raises(InvalidRequest, match="is the state of machine ag1, not ag2"):
        SavedMachine(simulated("ag2"), state)


async def test_what_programs_left_on_a_simulated_device_outlives_its_agent(tmp_path: Path) -> None:
    machine, state = simulated(), tmp_path / "state.json"
    first = SavedMachine(machine, state)
    await first.configure("p1", 5, [0])
    machine.use(5, [0])
    await first.configure("p1", 6, [0])
    first.let_go()
    again = simulated()
    SavedMachine(again, state).let_go()
    assert (again.devices[0].used_by, again.devices[0].partition) == ("p1", "p1")


async def test_the_fence_holds_although_the_work_did_not(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    machine = simulated()
    kept = SavedMachine(machine, state)
    machine.fail_next("configure")
    with pytest.raises(Internal):
        await kept.configure("p1", 5, [0])
    kept.let_go()
    again = SavedMachine(simulated(), state)
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


async def test_an_agent_that_is_too_new_is_left_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reports that, and sends no change there until one of the two was upgraded."""
    remote = await pair.connect()
    monkeypatch.setattr(_agent_server, "OLDEST_PEER", PROTOCOL_VERSION + 1)
    with pytest.raises(WrongState, match=r"its agent is too new .* Upgrade vipu-server") as caught:
        await remote.describe()
    assert caught.value.data["incompatible"]
    changes: list[Callable[[], Awaitable[None]]] = [
        lambda: remote.configure("p1", 5, [0]),
        lambda: remote.reset(5, [0]),
        lambda: remote.release(5, [0]),
        lambda: remote.fence(5, [0], "run"),
    ]
    for change in changes:
        with pytest.raises(WrongState, match="nothing there is changed"):
            await change()
    assert {call.kind for call in pair.machine.calls} <= {"describe"}
    monkeypatch.undo()
    await remote.describe()
    await remote.configure("p1", 5, [0])


async def test_an_agent_that_is_too_old_is_left_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_protocol_versions, "OLDEST_PEER", PROTOCOL_VERSION + 1)
    with pytest.raises(WrongState, match="Upgrade vipu-agent on ag1"):
        await (await pair.connect()).describe()
