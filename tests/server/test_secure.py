"""Users with access keys over TCP: who is believed, what they may, and who is refused."""

from __future__ import annotations

import asyncio
import pwd
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from podwright.agents import SimulatedMachine
from podwright.cli import vipu_server
from podwright.client import Client, Credentials, GrpcTransport
from podwright.controller import Caller, Controller, Role
from podwright.errors import AlreadyExists, Denied, InvalidRequest, Unauthenticated
from podwright.fabric import preset
from podwright.server import Identity, ListenOptions, Server, make_store
from podwright.store import MemoryStore, SQLiteStore
from podwright.wire import AllocationRequest, NewUser, PartitionSpec, UserRequest

ROOT = Caller("root", 0, Role.ADMINISTRATOR)
T = TypeVar("T")


class Secure:
    """A secure server of a POD16 with two allocations."""

    def __init__(self) -> None:
        cluster = preset("pod16")
        machines = [m for d in cluster.domains for m in d.machines]
        drivers = {m.name: SimulatedMachine(m, cluster.family) for m in machines}
        self.controller = Controller(MemoryStore(), [cluster], drivers, version="test")
        self.server = Server(self.controller, ListenOptions(None), identity=Identity(secure=True))

    async def user(self, name: str, role: str = "user", *allocations: str) -> Credentials:
        request = UserRequest(name=name, role=role, allocations=list(allocations))
        made: NewUser = await self.controller.create_user(ROOT, request)
        return Credentials(name, made.access_key)

    async def ask(self, credentials: Credentials, what: Callable[[Client], T]) -> T:
        """A question as that user, in a thread, as commands ask."""

        def go() -> T:
            transport = GrpcTransport("127.0.0.1", self.server.port, credentials=credentials)
            with Client(transport, timeout=120) as client:
                return what(client)

        return await asyncio.to_thread(go)


@pytest.fixture
async def secure() -> AsyncIterator[Secure]:
    made = Secure()
    await made.server.start()
    for name in ("a1", "a2"):
        await made.controller.create_allocation(ROOT, AllocationRequest(name=name, size=8))
    yield made
    await made.server.stop(0)


def _create(name: str, allocation: str = "") -> Callable[[Client], object]:
    return lambda client: client.create_partition(
        PartitionSpec(name=name, size=4, allocation=allocation)
    )


async def test_only_those_with_a_key_are_served(secure: Secure) -> None:
    alice = await secure.user("alice")
    info = await secure.ask(alice, lambda client: client.get_server_info())
    assert (info.caller, info.role) == ("alice", "user")
    wrong = [Credentials("alice", "guess"), Credentials("bob", alice.key)]
    for stranger in wrong:
        with pytest.raises(Unauthenticated, match="has this name and this access key"):
            await secure.ask(stranger, lambda client: client.list_partitions())
    with pytest.raises(Unauthenticated, match="wants to know who calls"):
        await secure.ask(Credentials(), lambda client: client.list_partitions())
    assert alice.key not in repr(alice)


async def test_a_user_changes_what_is_his(secure: Secure) -> None:
    alice, bob = await secure.user("alice"), await secure.user("bob")
    reader = await secure.user("ruth", "reader")
    chief = await secure.user("chief", "administrator")
    made = await secure.ask(alice, _create("p1", "a1"))
    assert getattr(made, "owner", "") == "alice"
    for other, why in ((bob, "it belongs to alice"), (reader, "reader's role")):
        with pytest.raises(Denied, match=why):
            await secure.ask(other, lambda client: client.remove_partition("p1"))
    with pytest.raises(Denied, match="reader's role"):
        await secure.ask(reader, _create("p2", "a1"))
    assert len(await secure.ask(reader, lambda client: client.list_partitions())) == 1
    await secure.ask(chief, lambda client: client.remove_partition("p1"))


async def test_a_user_stays_in_the_allocations_granted(secure: Secure) -> None:
    alice = await secure.user("alice", "user", "a2")
    with pytest.raises(Denied, match="allocation a1 is not granted to alice"):
        await secure.ask(alice, _create("p1", "a1"))
    made = await secure.ask(alice, _create("p1"))
    assert getattr(made, "allocation", "") == "a2"
    both = await secure.user("bob", "user", "a1", "a2")
    with pytest.raises(InvalidRequest, match="Say which one with --allocation: a1, a2"):
        await secure.ask(both, _create("p2"))


def test_keys_do_not_travel_in_the_clear() -> None:
    with pytest.raises(InvalidRequest, match=r"would travel to .* for all to read"):
        GrpcTransport("10.9.8.7", 8090, credentials=Credentials("alice", "key"))
    with pytest.raises(InvalidRequest, match="without TLS access keys would travel"):
        Server(
            Secure().controller,
            ListenOptions(None, host="10.9.8.7"),
            identity=Identity(secure=True),
        )


async def test_a_new_store_has_an_administrator(tmp_path: Path) -> None:
    path = tmp_path / "db"
    key = await make_store(path, "chief")
    with pytest.raises(AlreadyExists, match="there is a store already"):
        await make_store(path, "chief")
    controller = Controller(SQLiteStore(path), (), {}, version="test")
    await controller.start()
    assert (await controller.authenticate("chief", key)).role is Role.ADMINISTRATOR
    await controller.close()
    assert key.encode() not in path.read_bytes()


def test_init_prints_what_it_made_once(tmp_path: Path) -> None:
    def init(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "podwright.cli.vipu_server", "--init", *words]
        command += ["--storage", str(tmp_path / "db"), "--socket", str(tmp_path / "s")]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    done = init("--secure", "--default-user-id", "chief")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"store: {tmp_path / 'db'}"
    assert done.stdout.splitlines()[1].startswith("create user (chief): success. Access key is '")
    again = init()
    assert (again.returncode, again.stdout) == (1, "")
    assert "there is a store already" in again.stderr


def test_init_asks_for_a_name_where_the_user_has_no_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)

    def no_account(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", no_account)
    monkeypatch.chdir(tmp_path)
    made = vipu_server.main(["--init", "--secure", "--tls-init", "--storage", str(tmp_path / "db")])
    assert made == 2
    assert "Name the administrator with --default-user-id" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
