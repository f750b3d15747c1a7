"""Two real servers on one real PostgreSQL: the active one is killed under load, and nothing that
was answered is lost, nothing is done twice, and everybody is served again within five seconds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from podwright.client import Client, FoundServer, ServerOptions, UnixTransport, find_server
from podwright.errors import AlreadyExists, PodwrightError, Unavailable
from podwright.wire import (
    AcquireRequest,
    CreateRequest,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    RemoveRequest,
    virm,
)
from tests.outer.postgres import Postgres
from tests.ports import free_port

pytestmark = pytest.mark.outer

SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))
BIN = Path(sys.executable).parent
#: Seconds in which clients are served again. On a machine that is busy with other tests: less
#: than a client that waits for the dead one's answer would need.
LIMIT = 5.0 if SOAK else 100.0


class Servers:
    """Servers on one store, by name, each with a socket and a port of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.ports = {name: free_port() for name in ("a", "b")}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def socket(self, name: str) -> Path:
        return self.folder / f"{name}.sock"

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "PODWRIGHT_SOCKET": f"{self.socket('a')},{self.socket('b')}"}

    def start(self, name: str) -> None:
        """Start it, and wait until it answers, be it to say that it stands by."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *(BIN / "vipu-server", "--preset", "pod64", "--storage", self.url),
                    *("--socket", self.socket(name), "--api-port", str(self.ports[name])),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 300
        while True:
            try:
                with self.client(name) as client:
                    client.get_server_info(timeout=300)
                return
            except PodwrightError:
                assert self.processes[name].poll() is None, self.log(name)
                assert time.monotonic() < deadline, self.log(name)
                time.sleep(0.05)

    def client(self, name: str) -> Client:
        """A client that knows this server alone."""
        return Client(UnixTransport(str(self.socket(name))), timeout=300)

    def find(self) -> FoundServer:
        """A client that knows both."""
        return find_server(ServerOptions(), self.environ, timeout=300)

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(300)

    def active(self) -> str:
        """Which of those that run serves; waits until one does.

        On a busy machine one may come too late to renew its lease. Then it ends, and is started
        again, as systemd would.
        """
        deadline = time.monotonic() + 300
        while True:
            for name, process in list(self.processes.items()):
                if process.poll() is not None:
                    assert "newer server" in self.log(name), self.log(name)
                    self.start(name)
                with self.client(name) as client, contextlib.suppress(Unavailable):
                    if not client.get_server_info(timeout=300).standby and _serves(client):
                        return name
            assert time.monotonic() < deadline, "nobody is active"
            time.sleep(0.05)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)


def _serves(client: Client) -> bool:
    try:
        client.list_leases()
    except Unavailable:
        return False
    return True


@pytest.fixture
def servers(tmp_path: Path, postgres: Postgres) -> Iterator[Servers]:
    made = Servers(tmp_path, postgres.url())
    yield made
    made.stop()


class Worker(threading.Thread):
    """A client that creates and removes, acquires and releases, and keeps the books.

    there: what was answered as created and not yet asked to be removed. longest: seconds that
    one call took.
    """

    def __init__(self, number: int, find: Callable[[], FoundServer]) -> None:
        super().__init__(name=f"w{number}", daemon=True)
        self.there: set[str] = set()
        self.unsure: set[str] = set()
        self.gone: set[str] = set()
        self.error: BaseException | None = None
        self.longest = 0.0
        self.count = 0
        self.over = threading.Event()
        self._find = find

    def run(self) -> None:
        try:
            with self._find().client as client:
                while not self.over.is_set():
                    self._round(client)
        except BaseException as error:
            self.error = error

    def _round(self, client: Client) -> None:
        self.count += 1
        name = f"{self.name}-{self.count}"
        self.unsure.add(name)
        self._timed(lambda: client.create_partition(PartitionSpec(name=name, size=1)))
        self.unsure.discard(name)
        self.there.add(name)
        if self.count % 3 == 0:
            reply = self._acquire(client, name)
            renewed = self._timed(lambda: client.renew(reply.lease.id, reply.lease.epoch))
            assert renewed.id == reply.lease.id
            self._timed(lambda: client.release(reply.lease.id, reply.lease.epoch))
        if len(self.there) > 3:
            old = min(self.there, key=lambda each: int(each.rpartition("-")[2]))
            self.there.discard(old)
            self.unsure.add(old)
            self._timed(lambda: client.remove_partition(old))
            self.unsure.discard(old)
            self.gone.add(old)

    def _acquire(self, client: Client, name: str):  # type: ignore[no-untyped-def]
        request = AcquireRequest(spec=PartitionSpec(name=name), holder=self.name)
        return self._timed(lambda: client.acquire(request))

    def _timed(self, work: Callable[[], object]):  # type: ignore[no-untyped-def]
        begun = time.monotonic()
        try:
            # A second AlreadyExists or NotFound here would be something done twice.
            return work()
        finally:
            self.longest = max(self.longest, time.monotonic() - begun)


def check(servers: Servers, workers: list[Worker]) -> None:
    """What was answered stands; no device is in two partitions."""
    with servers.find().client as client:
        found = {partition.name: partition for partition in client.list_partitions()}
        there = set().union(*(worker.there for worker in workers))
        unsure = set().union(*(worker.unsure for worker in workers))
        assert there <= set(found) <= there | unsure
        devices = [
            (device.machine, device.index)
            for partition in found.values()
            for gcd in partition.gcds
            for device in gcd
        ]
        assert len(devices) == len(set(devices))
        assert {partition.ready_state for partition in found.values()} <= {ReadyState.ACTIVE}
        states = [d for d in client.list_devices() if d.state == "IN_USE"]
        assert len(states) == len(devices)


def test_the_active_server_is_killed_again_and_again_under_load(servers: Servers) -> None:
    servers.start("a")
    assert servers.active() == "a"
    servers.start("b")
    workers = [Worker(number, servers.find) for number in range(6)]
    for worker in workers:
        worker.start()
    outages = []
    for _ in range(50 if SOAK else 3):
        active = servers.active()
        before = [worker.count for worker in workers]
        deadline = time.monotonic() + 300
        while any(w.count < b + 3 for w, b in zip(workers, before, strict=True)):
            assert not [w.error for w in workers if w.error], [w.error for w in workers]
            assert time.monotonic() < deadline, "no progress"
            time.sleep(0.02)
        killed = time.monotonic()
        servers.kill(active)
        with servers.find().client as client:
            client.list_leases()
        outages.append(time.monotonic() - killed)
        servers.start(active)
    survivor = servers.active()
    before = [worker.count for worker in workers]
    time.sleep(1.0)
    for worker in workers:
        worker.over.set()
    for worker in workers:
        worker.join(300)
        assert not worker.is_alive()
    assert [worker.error for worker in workers] == [None] * len(workers), servers.log(survivor)
    rounds = sum(worker.count for worker in workers)
    print(
        f"\n{len(outages)} takeovers, {rounds} rounds, outages of {min(outages):.2f} to "
        f"{max(outages):.2f} s, longest call {max(w.longest for w in workers):.2f} s"
    )
    assert max(outages) < LIMIT
    assert max(w.longest for w in workers) < LIMIT
    assert all(worker.gone for worker in workers)
    check(servers, workers)


def test_a_standby_says_so_and_refuses_the_rest(servers: Servers) -> None:
    servers.start("a")
    servers.active()
    servers.start("b")
    with servers.client("b") as standby, servers.client("a") as active:
        deadline = time.monotonic() + 300
        while not (info := standby.get_server_info()).active:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert info.standby
        assert f"127.0.0.1:{servers.ports['a']}" in info.active
        assert not active.get_server_info().standby
        for call in (
            standby.list_partitions,
            lambda: standby.create_partition(PartitionSpec(name="p", size=1)),
            lambda: standby.get_partition("p"),
        ):
            with pytest.raises(Unavailable, match="stands by for another one; active is"):
                call()
    for name, state in (("a", "ok"), ("b", "standby")):
        with socket.socket(socket.AF_UNIX) as http:
            http.connect(str(servers.socket(name)))
            http.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: http.recv(4096), b""))
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == state
    channel = grpc.insecure_channel(f"127.0.0.1:{servers.ports['b']}")
    for method in (virm.VIRM_METHODS["GetVersion"], virm.VIRM_METHODS["ListPartitions"]):
        call = channel.unary_unary(
            method.path, method.request.SerializeToString, method.reply.FromString
        )
        with pytest.raises(grpc.RpcError) as caught:
            call(method.request(), timeout=120)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    channel.close()
    over_tcp = subprocess.run(
        [
            *(BIN / "vipu", "list", "partitions", "--api-host"),
            f"127.0.0.1:{servers.ports['b']},127.0.0.1:{servers.ports['a']}",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert over_tcp.returncode == 0, over_tcp.stderr
    assert servers.kill("a", signal.SIGTERM) == 0
    assert servers.active() == "b", "one that ends in order hands over"


def test_a_server_that_slept_through_its_lease_answers_nothing_old(servers: Servers) -> None:
    """Stopped and woken, it must not serve what it remembers, and ends by itself."""
    servers.start("a")
    servers.active()
    servers.start("b")
    process = servers.processes["a"]
    os.kill(process.pid, signal.SIGSTOP)
    with servers.client("b") as client:
        deadline = time.monotonic() + 300
        while not _serves(client):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        client.create_partition(PartitionSpec(name="new", size=1))
        with servers.client("a") as old:
            os.kill(process.pid, signal.SIGCONT)
            with pytest.raises(Unavailable):
                old.list_partitions()
        assert process.wait(300) != 0
        assert "newer server" in servers.log("a")
        del servers.processes["a"]
        assert [partition.name for partition in client.list_partitions()] == ["new"]


def test_the_database_goes_away_and_comes_back(servers: Servers, postgres: Postgres) -> None:
    servers.start("a")
    servers.active()
    servers.start("b")
    with servers.find().client as client:
        client.create_partition(PartitionSpec(name="kept", size=1))
    name = servers.url.partition("?")[0].rpartition("/")[2]
    postgres.cut(name)  # both lose their connections; the active one stops and must be restarted
    assert servers.processes["a"].wait(300) != 0
    del servers.processes["a"]
    assert servers.active() == "b", "the standby tried again"
    with servers.find().client as client:
        assert [partition.name for partition in client.list_partitions()] == ["kept"]


def test_poprun_goes_on_through_a_takeover(servers: Servers, tmp_path: Path) -> None:
    servers.start("a")
    servers.active()
    servers.start("b")
    program = tmp_path / "train.py"
    program.write_text(
        "import pathlib, time\n"
        f"flag = pathlib.Path({str(tmp_path / 'go')!r})\n"
        f"pathlib.Path({str(tmp_path / 'up')!r}).touch()\n"
        "while not flag.exists():\n    time.sleep(0.05)\n"
        "print('trained')\n"
    )
    run = subprocess.Popen(
        [
            *(BIN / "poprun", "--num-instances", "1", "--num-replicas", "1"),
            *("--mpi-global-args=--allow-run-as-root", sys.executable, program),
        ],
        env=servers.environ,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 300
    while not (tmp_path / "up").exists():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with servers.client("a") as client:
        (before,) = client.list_leases()
    servers.kill("a")
    assert servers.active() == "b"
    with servers.client("b") as client:
        deadline = time.monotonic() + 300
        while (after := client.list_leases()[0]).expires_in < 9.0:  # renewed at the new server
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert after.id == before.id
        (tmp_path / "go").touch()
        out, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
        assert "trained" in out
        assert client.list_leases() == []


def test_what_was_done_is_not_done_again_by_the_other(servers: Servers) -> None:
    """The same request, by its id, at one server and then at the other."""
    servers.start("a")
    servers.active()
    servers.start("b")
    create = CreateRequest(spec=PartitionSpec(name="p", size=2), request_id="one")
    remove = RemoveRequest(name="p", request_id="two")
    with servers.client("a") as client:
        made = client.call("CreatePartition", create)
        assert isinstance(made, PartitionInfo)
    servers.kill("a")
    servers.active()
    with servers.client("b") as client:
        again = client.call("CreatePartition", create)
        assert isinstance(again, PartitionInfo)
        assert (again.created_at, again.gcds) == (made.created_at, made.gcds)
        with pytest.raises(AlreadyExists):
            client.create_partition(PartitionSpec(name="p", size=2))
        client.call("RemovePartition", remove)
        client.create_partition(PartitionSpec(name="p", size=1))
        client.call("RemovePartition", remove)
        assert client.get_partition("p").size == 1
