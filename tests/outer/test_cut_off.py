"""A host without power or cable says nothing: no reset, no goodbye. Who notices, and how soon.

The other host is a network namespace behind a cable (a veth pair) of which we pull the far end;
what runs there is killed after that, so nobody hears of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from podwright.client import Client, ServerOptions, UnixTransport, find_server
from podwright.errors import PodwrightError
from podwright.wire import CreateRequest, PartitionSpec, WaitReply, WaitRequest
from tests.outer.postgres import Postgres

pytestmark = pytest.mark.outer

BIN = Path(sys.executable).parent
#: Of this run alone: others may have their own cables on this machine.
_NET = f"10.{80 + os.getpid() // 250 % 100}.{os.getpid() % 250}"
HERE, THERE = f"{_NET}.1", f"{_NET}.2"
#: A living agent of a busy machine is not silent for so long.
SILENCE = 15.0
#: Less than the timeout of a call, far more than what a busy machine needs.
PATIENCE = 100.0


class Host:
    """Another host, and the cable to it."""

    def __init__(self, cable: str) -> None:
        self.cable = cable
        self._space = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        self.processes: list[subprocess.Popen[str]] = []

    def connect(self) -> None:
        far = f"{self.cable}b"
        _until("the other host", lambda: not _same_network(self._space.pid))
        _ip("link", "add", self.cable, "type", "veth", "peer", "name", far)
        _ip("link", "set", far, "netns", str(self._space.pid))
        _ip("addr", "add", f"{HERE}/30", "dev", self.cable)
        _ip("link", "set", self.cable, "up")
        for words in (
            ("addr", "add", f"{THERE}/30", "dev", far),
            ("link", "set", far, "up"),
            ("link", "set", "lo", "up"),
        ):
            subprocess.run([*self._inside, "ip", *words], check=True)

    @property
    def _inside(self) -> Sequence[str]:
        return ("nsenter", "-t", str(self._space.pid), "-n")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command on that host."""
        process = subprocess.Popen(
            [*self._inside, *words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        return process

    def lose_power(self) -> None:
        # Their end, since without ours the way there would lead to a gateway that may answer.
        subprocess.run([*self._inside, "ip", "link", "set", f"{self.cable}b", "down"], check=True)
        for process in self.processes:
            process.kill()

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(300)
            if process.stderr is not None:
                process.stderr.close()
        subprocess.run(["ip", "link", "delete", self.cable], check=False, capture_output=True)
        self._space.kill()
        self._space.wait(300)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _same_network(pid: int) -> bool:
    return Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()


def _until(what: str, true: Callable[[], bool], seconds: float = 300) -> float:
    begun = time.monotonic()
    while not true():
        assert time.monotonic() < begun + seconds, f"{what}: it did not come to pass"
        time.sleep(0.02)
    return time.monotonic() - begun


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(f"pw{os.getpid()}x{tmp_path.name[-1]}")
    try:
        made.connect()
        yield made
    finally:
        made.stop()


class Server:
    """A server, here or there, over a store that both reach."""

    def __init__(self, folder: Path, name: str, start: Callable[..., subprocess.Popen[str]]):
        self.socket = folder / f"{name}.sock"
        self._start = start

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = self._start(*(str(BIN / "vipu-server"), "--socket", str(self.socket), *words))
        _until("a server", lambda: self._answers(process))
        return process

    def client(self) -> Client:
        return Client(UnixTransport(str(self.socket)), timeout=300)

    def _answers(self, process: subprocess.Popen[str]) -> bool:
        assert process.poll() is None, process.stderr and process.stderr.read()
        try:
            with self.client() as client:
                return bool(client.get_server_info(timeout=60).version)
        except PodwrightError:
            return False


@pytest.fixture
def here() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts commands on this host."""
    processes: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            list(words), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait(300)
        if process.stderr is not None:
            process.stderr.close()


def test_a_machine_whose_host_is_cut_off_is_noticed_and_its_partitions_settled(
    host: Host, here: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    key = tmp_path / "agent.key"
    key.write_text("a key that only we two know\n")
    key.chmod(0o600)
    agent = host.start(
        *(str(BIN / "vipu-agent"), "--machine", "ag1", "--host", THERE, "--port", "8081"),
        *("--agent-key", str(key), "--state", str(tmp_path / "ag1.json")),
    )
    assert agent.stderr is not None
    assert f" on {THERE}:8081" in agent.stderr.readline()
    server = Server(tmp_path, "a", here)
    server.start(
        *("--api-port", "0", "--storage", str(tmp_path / "db"), "--agent-key", str(key)),
        *("--agent-silence", str(SILENCE)),
    )
    environ = {"PATH": "/usr/bin:/bin", "PODWRIGHT_SOCKET": str(server.socket)}
    for words in (
        ("create", "agent", "ag1", "--host", THERE, "--port", "8081"),
        ("create", "cluster", "c1", "--agents", "ag1"),
    ):
        subprocess.run([BIN / "vipu-admin", *words], env=environ, check=True, capture_output=True)
    with server.client() as client:
        for at in range(4):
            client.create_partition(PartitionSpec(name=f"p{at}", size=1))
        host.lose_power()

        def settled() -> bool:
            return all(p.ready_state.value == "ERROR" for p in client.list_partitions())

        took = _until("settled", settled, PATIENCE)
        (why,) = {error for p in client.list_partitions() for error in p.errors}
        assert why == f"machine ag1 has been silent for {SILENCE:g} s"
        assert {device.state for device in client.list_devices()} == {"DOWN"}
    print(
        f"\nnoticed and settled after {took:.2f} s; the silence that is waited for is {SILENCE} s"
    )


def test_clients_go_on_to_the_other_server_when_the_active_ones_host_loses_its_power(
    host: Host,
    here: Callable[..., subprocess.Popen[str]],
    postgres: Postgres,
    tmp_path: Path,
) -> None:
    url = postgres.url()
    place = ("--preset", "pod16", "--storage", url, "--listen-anywhere")
    Server(tmp_path, "a", host.start).start(*place, "--api-host", THERE, "--api-port", "8090")
    other = Server(tmp_path, "b", here)
    other.start(*place, "--api-host", HERE, "--api-port", "8090")
    options = ServerOptions(host=f"{THERE}:8090,{HERE}:8090")
    found = find_server(options, {}, timeout=120)
    asking = find_server(options, {}, timeout=120)
    with found.client as client, asking.client as waiter:
        assert found.address == f"{THERE}:8090"
        client.create_partition(PartitionSpec(name="all", size=16))
        wanted = CreateRequest(spec=PartitionSpec(name="next", size=4))
        joined = waiter.wait(WaitRequest(create=wanted))
        answers: list[WaitReply | PodwrightError] = []

        def ask() -> None:  # a call that is under way when the power goes
            try:
                answers.append(waiter.wait(WaitRequest(id=joined.waiter.id, timeout=30)))
            except PodwrightError as error:
                answers.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        client.explain(spec=PartitionSpec(name="x", size=4))
        host.lose_power()
        begun = time.monotonic()
        client.remove_partition("all")
        took = time.monotonic() - begun
        assert found.client.where.endswith(f"{HERE}:8090")
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert isinstance(answers[0], WaitReply), answers
        assert answers[0].waiter.id == joined.waiter.id
        assert client.get_server_info().port == 8090
    assert took < PATIENCE, "it waited for a host that is gone"
    print(f"\nserved again after {took:.2f} s")
