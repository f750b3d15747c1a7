"""A server that stands by, takes over, and ends when another one has; without a database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from podwright import wire
from podwright.controller import Caller, Controller, Role
from podwright.errors import AlreadyExists, Fenced, Internal, PodwrightError, Unavailable
from podwright.fabric import preset
from podwright.server import ServedHardware, Server
from podwright.server import _shared_store as shared
from podwright.server._listen_options import ListenOptions
from podwright.server._server_process import ServingOptions, _machine_connections, _server_for
from podwright.server._standby_answers import Standby
from podwright.server.machines._served_hardware import ClustersSource
from podwright.store import Change, MemoryStore, Opened, Turn
from tests.server.fakes import Http


class SharedMemory(MemoryStore):
    """A store that somebody else has, until told otherwise."""

    owner, left, lease_lives = "the other one", 5.0, True
    failure: Exception | None = None
    snatched = False
    #: Whether the store can be opened though its disk is full.
    room_to_open = False

    def __init__(self) -> None:
        super().__init__()
        #: Tells all handles whether the disk is full.
        self.full = asyncio.Event()

    def anew(self) -> SharedMemory:
        """Another handle of ours."""
        other = SharedMemory()
        other._disk, other.full = self._disk, self.full
        return other

    def taken(self) -> SharedMemory:
        """Another handle, of a store that somebody else has opened."""
        other = type(self).anew(self)
        other.snatched = True
        return other

    async def turn(self) -> Turn:
        if self.failure is not None:
            raise self.failure
        return Turn(self.owner, self.left)

    async def open(self) -> Opened:
        if self.snatched:  # somebody was quicker between our look and our step
            self.snatched, self.left = False, 5.0
            raise AlreadyExists("another server is active", holder="a third one")
        if not self.room_to_open:
            self._check_room()
        return await super().open()

    async def commit(self, changes: Sequence[Change]) -> None:
        self._check_room()
        await super().commit(changes)

    def _check_room(self) -> None:
        if self.full.is_set():
            raise Unavailable("the disk of the store is full", full=True)

    async def renew(self) -> None:
        if self.failure is not None:
            raise self.failure
        self._check_room()


class Life:
    """`serve_shared` as a task, and a client of its socket."""

    def __init__(self, folder: Path) -> None:
        self.store = SharedMemory()
        self.standby = Standby()
        self.stop = asyncio.Event()
        self.ready: list[Server] = []
        options = ServingOptions(storage="x", listen=ListenOptions(folder / "s", apart=True))
        self.server = _server_for(options, cast(Controller, self.standby), self.store)
        self.task: asyncio.Task[None]

    def begin(self) -> None:
        hardware = ServedHardware((preset("pod4"),), ClustersSource(preset="pod4"))
        self.task = asyncio.create_task(
            shared.serve_shared(
                self.store,
                self.server,
                self.standby,
                choose_hardware=lambda opened: hardware,
                on_ready=lambda server, hardware: self.ready.append(server),
                stop_event=self.stop,
                wait_for_end=self._until_end,
                machines=_machine_connections(
                    ServingOptions(storage="x", listen=ListenOptions(None)), lambda: False
                ),
                open_handle=lambda: self.store.anew(),
            )
        )

    async def _until_end(self, failed: Callable[[], PodwrightError | None]) -> None:
        while not self.stop.is_set() and failed() is None:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.005)

    async def http(self) -> Http:
        assert self.server.socket_path is not None
        await self.until(self.server.socket_path.exists)
        return await Http.connect(self.server.socket_path)

    async def until(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not what():
                assert not self.task.done(), self.task
                await asyncio.sleep(0.005)


@pytest.fixture
async def life(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    monkeypatch.setattr(shared, "_RENEW", 0.01)
    monkeypatch.setattr(shared, "_POLL", 0.01)
    monkeypatch.setattr(shared, "_LOOK_AGAIN", 0.01)
    return Life(folder)


async def ask(http: Http) -> wire.ServerInfo:
    info: wire.ServerInfo = await http.call("GetServerInfo", wire.ServerInfoRequest())
    return info


async def test_a_standby_refuses_and_names_the_active_server_until_it_takes_over(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    life.begin()
    http = await life.http()
    await life.until(lambda: life.standby.active)
    info = await ask(http)
    assert (info.standby, info.active, info.clusters) == (True, "the other one", [])
    assert "moves" not in info.counters
    for method in set(wire.METHODS) - {"GetServerInfo", "IssueToken"}:
        refusal = life.server.calls._table[method]
        with pytest.raises(Unavailable, match="stands by for another one; active is the other"):
            await refusal(None, None)  # type: ignore[arg-type]
    status, body = await http.post("ListPartitions")
    assert status == 503
    assert body["data"]["standby"] is True
    assert life.server.calls.health() == {"status": "standby", "active": "the other one"}
    life.store.left = 0.0
    await life.until(lambda: life.ready)
    assert (await http.post("ListPartitions"))[0] == 200
    info = await ask(http)
    assert (info.standby, info.active, info.clusters) == (False, "", ["pod4"])
    assert (info.counters["moves"], info.counters["failed_moves"]) == (0, 0)
    assert life.server.calls.health() == {"status": "ok"}
    said = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
    assert ("podwright.server", "WARNING", "standing by; active is the other one") in said
    assert ("podwright.events", "INFO", "active from now on, epoch 1") in said
    http.close()
    life.stop.set()
    await life.task


async def test_a_standby_that_is_told_to_end_never_opens_the_store(life: Life) -> None:
    life.begin()
    http = await life.http()
    http.close()
    life.stop.set()
    await life.task
    assert (await life.store.reopened().open()).epoch == 1


async def test_a_standby_waits_for_another_that_was_quicker(life: Life) -> None:
    life.store.left, life.store.snatched = 0.0, True
    life.begin()
    await life.until(lambda: life.standby.active == "a third one" or life.store.left)
    assert not life.ready
    life.store.left = 0.0
    await life.until(lambda: life.ready)
    life.stop.set()
    await life.task


async def test_a_server_whose_lease_ran_out_answers_as_a_standby(life: Life) -> None:
    life.store.left = 0.0
    life.begin()
    await life.until(lambda: life.ready)
    http = await life.http()
    life.store.lease_lives = False
    status, body = await http.post("ListPartitions")
    assert (status, body["data"]["standby"]) == (503, True)
    assert not (await ask(http)).standby
    assert life.server.calls.health()["status"] == "standby"
    life.store.lease_lives = True
    assert (await http.post("ListPartitions"))[0] == 200
    http.close()
    life.stop.set()
    await life.task


async def test_a_server_whose_disk_is_full_reads_on_and_writes_once_there_is_room(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    life.store.left = 0.0
    life.begin()
    await life.until(lambda: life.ready)
    http = await life.http()

    async def create(name: str) -> tuple[int, str]:
        spec = wire.PartitionSpec(name=name, size=1)
        status, body = await http.post("CreatePartition", wire.CreateRequest(spec=spec))
        return status, str(body.get("message", ""))

    for turn in (1, 2):  # as often as the disk is full
        assert (await create(f"p{turn}"))[0] == 200
        life.store.full.set()
        status, said = await create("x")
        assert (status, "disk of the store is full" in said) == (503, True)
        for _ in range(3):
            await asyncio.sleep(0.02)
            status, body = await http.post("ListPartitions")
            assert status == 200
            assert len(body["partitions"]) == turn
            assert (await create("x"))[0] == 503
        life.store.full.clear()
        async with asyncio.timeout(60):
            while (await create("after"))[0] != 200:  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.01)
        removed, _ = await http.post("RemovePartition", wire.RemoveRequest(name="after"))
        assert removed == 200
    said_in_log = [r.getMessage() for r in caplog.records if r.name == "podwright.events"]
    assert said_in_log.count("the store can be written again: serving as before") == 2
    assert len([line for line in said_in_log if line.startswith("read only: ")]) == 2
    http.close()
    life.stop.set()
    await life.task


@pytest.mark.parametrize("opens", [False, True])
async def test_a_server_starts_on_a_full_disk(life: Life, opens: bool) -> None:
    """It reads what is there and recovers. opens: there is room to open the store, and no more."""
    before = MemoryStore()
    before._disk = life.store._disk
    hardware = ServedHardware((preset("pod4"),), ClustersSource(preset="pod4"))
    controller = Controller(before, hardware.clusters, hardware.drivers(), version="test")
    await controller.start()
    spec = wire.PartitionSpec(name="p0", size=1)
    root = Caller("root", 0, Role.ADMINISTRATOR)
    await controller.create_partition(root, wire.CreateRequest(spec=spec))
    await controller.close()
    life.store.left = 0.0
    life.store.room_to_open = opens
    life.store.full.set()
    life.begin()
    await life.until(lambda: life.ready)
    http = await life.http()
    asked = wire.CreateRequest(spec=msgspec.structs.replace(spec, name="p1"))
    status, body = await http.post("ListPartitions")
    assert (status, [found["name"] for found in body["partitions"]]) == (200, ["p0"])
    status, body = await http.post("CreatePartition", asked)
    assert (status, "disk of the store is full" in body["message"]) == (503, True)
    await life.until(lambda: life.server.controller.read_only is not None)
    life.store.full.clear()
    async with asyncio.timeout(60):
        while (await http.post("CreatePartition", asked))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert life.server.controller.read_only is None
    http.close()
    life.stop.set()
    await life.task


async def test_of_two_servers_that_started_on_a_full_disk_one_ends(life: Life) -> None:
    """The other one was quicker to find room."""
    life.store.left = 0.0
    before = MemoryStore()
    before._disk = life.store._disk
    await before.open()
    life.store.full.set()
    life.begin()
    await life.until(lambda: life.ready)
    life.store.anew = life.store.taken  # type: ignore[method-assign]
    life.store.full.clear()
    with pytest.raises(AlreadyExists, match="another server is active"):
        async with asyncio.timeout(60):
            await life.task


async def test_a_fenced_server_ends(life: Life) -> None:
    life.store.left = 0.0
    life.begin()
    await life.until(lambda: life.ready)
    life.store.failure = Fenced("a newer server has opened the store")
    with pytest.raises(Fenced):
        async with asyncio.timeout(60):
            await life.task


async def test_a_server_ends_however_the_renewal_of_its_lease_fails(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    life.store.left = 0.0
    life.begin()
    await life.until(lambda: life.ready)
    life.store.failure = RuntimeError("a fault of ours")
    with pytest.raises(Internal, match="is not renewed: a fault of ours"):
        async with asyncio.timeout(60):
            await life.task


async def test_a_database_that_is_never_there_is_an_error_and_one_that_goes_is_not(
    life: Life, folder: Path
) -> None:
    life.store.failure = Unavailable("the store cannot be opened")
    life.begin()
    with pytest.raises(Unavailable, match="cannot be opened"):
        async with asyncio.timeout(60):
            await life.task
    other = Life(folder)
    other.begin()
    await other.until(lambda: other.standby.active)
    other.store.failure = Unavailable("the connection was lost")
    await other.until(lambda: not other.standby.active)
    other.store.failure, other.store.left = None, 0.0
    await other.until(lambda: other.ready)
    other.stop.set()
    await other.task
