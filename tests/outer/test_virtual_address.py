"""The virtual IP address of docs/admin/storage.md, with Debian's keepalived: the documented files
are typed as they stand, and a client of V-IPU's own protocol that knows one address is served by
whichever of two servers is active.

Everything is in network namespaces of its own: two hosts, and a third with the bridge between them
and the client.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.outer.lab import LabError, poll
from tests.outer.postgres import Postgres

pytestmark = pytest.mark.outer

BIN = Path(sys.executable).parent
PAGE = Path(__file__).parents[2] / "docs" / "admin" / "storage.md"
VIRTUAL = "10.0.0.100"
#: As V-IPU's client calls: one address, one channel, no options.
CLIENT = f"""
import time, grpc
from podwright.wire import virm
channel = grpc.insecure_channel("{VIRTUAL}:8090")
def call(name, **fields):
    method = virm.VIRM_METHODS[name]
    stub = channel.unary_unary(
        method.path, method.request.SerializeToString, method.reply.FromString
    )
    return stub(method.request(**fields), timeout=5)
wanted = {{"id": "kept", "size": 4}}
while True:
    try:
        found = [info.id for info in call("ListPartitions").partitions]
        if not found:
            call("CreatePartition", requirements=wanted)
        print("served", *found, flush=True)
    except grpc.RpcError as error:
        print(error.code().name, flush=True)
    time.sleep(0.1)
"""


def blocks() -> tuple[str, str]:
    """keepalived.conf and the script that it asks, as documented."""
    found = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.S)
    (conf,) = (text for text in found if "vrrp_instance" in text)
    (script,) = (text for text in found if text.startswith("#!/bin/sh"))
    return conf, script


class Host:
    """A network of its own, and what runs in it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        self.space = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        until("a network of its own", lambda: network(self.space.pid) != network("self"))
        self.run("ip", "link", "set", "lo", "up")

    def _inside(self, *words: str | Path) -> list[str]:
        return ["nsenter", "-t", str(self.space.pid), "-n", *map(str, words)]

    def run(self, *words: str | Path) -> str:
        return subprocess.run(
            self._inside(*words), check=True, capture_output=True, text=True, timeout=300
        ).stdout

    def start(self, name: str, *words: str | Path) -> None:
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._inside(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait(300)

    def end(self) -> None:
        # keepalived has children, which end with it when it may end in order.
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(300)
        self.space.kill()
        self.space.wait(300)

    def has_address(self) -> bool:
        return VIRTUAL in self.run("ip", "-4", "-o", "addr", "show", "dev", "eno1")


def network(process: int | str) -> str:
    return str(Path(f"/proc/{process}/ns/net").readlink())


def until(what: str, true: Callable[[], bool], told: Callable[[], str] = str) -> None:
    try:
        poll(what, true, seconds=50)
    except LabError as error:
        raise LabError(f"{error}\n{told()}") from None


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where nobody but root may change a script, as keepalived demands of all folders above it."""
    path = Path(tempfile.mkdtemp(prefix="podwright-test-", dir="/run"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def site(folder: Path, postgres: Postgres) -> Iterator[tuple[Host, Host, Host]]:
    """Two hosts with server and keepalived, not started, and the one with the client."""
    hosts: list[Host] = []
    try:
        for name in ("net", "head1", "head2"):
            hosts.append(Host(name, folder))
        net, *heads = hosts
        net.run("ip", "link", "add", "br0", "type", "bridge")
        net.run("ip", "addr", "add", "10.0.0.1/24", "dev", "br0")
        net.run("ip", "link", "set", "br0", "up")
        conf, script = blocks()
        for number, head in enumerate(heads, 11):
            far = ("peer", "name", "eno1", "netns", str(head.space.pid))
            net.run("ip", "link", "add", head.name, "type", "veth", *far)
            net.run("ip", "link", "set", head.name, "master", "br0", "up")
            head.run("ip", "addr", "add", f"10.0.0.{number}/24", "dev", "eno1")
            head.run("ip", "link", "set", "eno1", "up")
            asks = head.folder / "podwright-active"
            asks.write_text(script.replace("/run/podwright/server.sock", f"{head.folder}/s"))
            asks.chmod(0o755)
            ours = conf.replace("/usr/local/bin/podwright-active", str(asks))
            (head.folder / "keepalived.conf").write_text(ours)
        yield net, heads[0], heads[1]
    finally:
        for host in reversed(hosts):
            host.end()


def serve(head: Host, storage: str) -> None:
    head.start(
        "server",
        *(BIN / "vipu-server", "--preset", "pod16", "--storage", storage),
        # As the unit starts it: keepalived asks its socket as nobody.
        *("--system", "--socket", head.folder / "s"),
        *("--api-host", "0.0.0.0", "--listen-anywhere"),
    )


def follow(head: Host) -> None:
    places = ("-p", head.folder / "pid", "-r", head.folder / "vrrp", "-c", head.folder / "check")
    conf = ("-f", head.folder / "keepalived.conf")
    head.start("keepalived", "keepalived", "--dont-fork", "--log-console", *conf, *places)


@pytest.mark.timeout(1800)
def test_the_address_follows_the_active_server(
    site: tuple[Host, Host, Host], postgres: Postgres
) -> None:
    net, one, two = site
    storage = postgres.url()
    client = net.log("client")

    def told() -> str:
        logs = [head.log(name) for head in (one, two) for name in ("server", "keepalived")]
        return "\n".join(f"-- {log}\n{log.read_text()[-1500:]}" for log in [*logs, client])

    def served_at_last() -> bool:
        return client.read_text().splitlines()[-1:] == ["served kept"]

    serve(one, storage)
    follow(one)
    follow(two)
    net.start("client", sys.executable, "-c", CLIENT)
    until("the first has the address", one.has_address, told)
    serve(two, storage)
    until("the client is served", served_at_last, told)
    until("the second has not", lambda: not two.has_address(), told)

    one.kill("server")
    begun = time.monotonic()
    until("the address moves", lambda: two.has_address() and not one.has_address(), told)
    client.write_text("")
    until("the client is served by the other", served_at_last, told)
    print(f"\nserved again {time.monotonic() - begun:.1f} s after the server was killed")

    serve(one, storage)  # it stands by, and the address stays
    until("it stands by", lambda: "standing by" in one.log("server").read_text(), told)
    until("the address stays", lambda: two.has_address() and not one.has_address(), told)
