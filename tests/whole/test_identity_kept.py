"""Every process of a launch calls as the program does, however its server was named.

Each way of naming a server runs at once, in a program of its own, until the leases have been
renewed for two of their lifetimes. A renewal in another name is refused and ends the lease.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from podwright.client import Client, Context, Contexts, UnixTransport, write_contexts
from podwright.wire import UserRequest
from tests.certificates import SERVER, folder_of
from tests.whole.conftest import BIN, Pod

#: The program: it holds a partition, and starts instances in it, by poprun and by `launch`.
PROGRAM = """
import json, os, subprocess, sys, time
import podwright
import podwright.api._pod as pod_module

request = pod_module.AcquireRequest
pod_module.AcquireRequest = lambda **fields: request(ttl={ttl}, **fields)
INSTANCE = "import os, sys, time\\nwhile os.path.exists(sys.argv[1]): time.sleep(0.1)"


def listed():
    words = [os.path.join(os.path.dirname(sys.executable), "gc-info"), "--list-devices", "--json"]
    return subprocess.run(words, capture_output=True, text=True)


if __name__ == "__main__":
    with podwright.connect(**json.loads(sys.argv[1])) as pod:
        with pod.partition(size=2) as partition:
            with open("runs", "w"):
                pass
            program = ["--", sys.executable, "-c", INSTANCE, "runs"]
            words = ["poprun", "--num-replicas=2", "--num-instances=1", "--launcher=local"]
            launch = subprocess.Popen([*words, *program], env=partition.environment())
            renewals, before = {{}}, {{}}
            deadline = time.monotonic() + 240
            while len(renewals) < 2 or min(renewals.values()) < 2:
                assert partition.held and launch.poll() is None, (renewals, launch.poll())
                assert time.monotonic() < deadline, renewals
                for lease in pod.leases():
                    if lease.partition == partition.name:
                        name = lease.id
                        if lease.expires_in > before.get(name, lease.expires_in):
                            gained = lease.expires_in - before[name]
                            renewals[name] = renewals.get(name, 0.0) + gained / lease.ttl
                        before[name] = lease.expires_in
                time.sleep(0.2)
            os.remove("runs")
            assert launch.wait(60) == 0
            inside = podwright.launch(listed, partition=partition, launcher="local").result()
            assert inside.returncode == 0, inside
            assert partition.name in inside.stdout, inside
        print(json.dumps([pod.info.caller, partition.info.owner]))
"""
#: Seconds of the program's lease; poprun's has the least that its option allows.
LEASE_SECONDS, LAUNCH_LEASE_SECONDS = 6.0, 15.0


class Way(NamedTuple):
    """A way of naming a server. caller: who calls then."""

    name: str
    caller: str
    arguments: dict[str, Any]
    environ: dict[str, str]


class Site:
    """Two servers, with and without TLS; the folder of each program is its home."""

    def __init__(self, folder: Path, plain: Pod, tls: Pod, munge: str) -> None:
        self._folder, self._plain, self._tls, self._munge = folder, plain, tls, munge
        with plain.client() as client, tls.client() as tls_client:
            tls_client.call("CreateUser", UserRequest(name="alice"))
            self.address = f"127.0.0.1:{client.get_server_info().port}"
            self._tls_address = f"127.0.0.1:{tls_client.get_server_info().port}"
            self._client = client

    def home(self, way: str) -> Path:
        """The home of a program."""
        home = self._folder / way.replace(" ", "-").replace("'", "")
        home.mkdir(mode=0o700, exist_ok=True)
        return home

    def _key_of(self, name: str) -> str:
        with self._plain.client() as client:
            reply: Any = client.call("CreateUser", UserRequest(name=name))
        return str(reply.access_key)

    def ways(self) -> Iterator[Way]:
        """All ways."""
        user = (f"user{number}" for number in range(10))
        address = self.address
        name = next(user)
        key = self._key_of(name)
        yield Way("options", name, {"host": address, "user": name, "key": key}, {})
        name = next(user)
        environ = {"VIPU_CLI_API_USER_ID": name, "VIPU_CLI_API_ACCESS_KEY": self._key_of(name)}
        yield Way("environment", name, {}, {"VIPU_CLI_API_HOST": address, **environ})
        for way in ("--config", "V-IPU's file"):
            name = next(user)
            host, port = address.split(":")
            text = f'api-host="{host}"\napi-port="{port}"\napi-user-id="{name}"\n'
            home = self.home(way)
            path = home / ("own.hcl" if way == "--config" else "etc/vipu/vipu-cli.hcl")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{text}api-access-key="{self._key_of(name)}"\n')
            if way == "--config":
                yield Way(way, name, {"config": str(path)}, {})
            else:
                yield Way(way, name, {}, {"PODWRIGHT_ROOT": str(home)})
        for way in ("the current context", "a context of the environment"):
            name = next(user)
            contexts = {"lab": Context(address, "", name, self._key_of(name))}
            current = way == "the current context"
            path = self.home(way) / ".config" / "podwright" / "config.toml"
            write_contexts(str(path), Contexts("lab" if current else "", contexts))
            yield Way(way, name, {}, {} if current else {"PODWRIGHT_CONTEXT": "lab"})
        me = "root" if not os.getuid() else ""
        yield Way("socket", me, {}, {"PODWRIGHT_SOCKET": str(self._plain.socket)})
        certs = str(folder_of("alice"))
        yield Way("TLS", "alice", {"host": self._tls_address, "certs": certs}, {})
        if self._munge:
            environ = {"VIPU_CLI_API_HOST": address, "VIPU_CLI_MUNGE": self._munge}
            yield Way("MUNGE", me, {}, environ)

    def start(self, way: Way, program: Path) -> subprocess.Popen[str]:
        """Start the program."""
        home = self.home(way.name)
        kept = {name: os.environ[name] for name in ("PODWRIGHT_ROOT",) if name in os.environ}
        return subprocess.Popen(
            [sys.executable, str(program), json.dumps(way.arguments)],
            env={
                **kept,
                "HOME": str(home),
                "TMPDIR": str(home),
                "PATH": f"{BIN}:{os.environ['PATH']}",
                "PODWRIGHT_FENCE_AFTER": str(LAUNCH_LEASE_SECONDS),
                **way.environ,
            },
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def munge(tmp_path: Path) -> Iterator[str]:
    """The socket of a MUNGE of our own; empty where there is none, or we may not start it."""
    if shutil.which("munged") is None or os.getuid():
        yield ""
        return
    key, place = tmp_path / "munge.key", tmp_path / "munge.sock"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    words = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={place}"]
    words += [f"--{name}-file={tmp_path}/munge.{name}" for name in ("log", "pid", "seed")]
    daemon = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not place.exists():
        assert daemon.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield str(place)
    daemon.kill()
    daemon.wait()


def test_a_program_is_the_same_to_its_server_in_all_its_processes(
    make_pod: Callable[..., Pod], tmp_path: Path, munge: str
) -> None:
    munged = ("--munge", "--munge-socket", munge) if munge else ()
    plain = make_pod("--preset", "pod64", "--secure", *munged)
    tls = make_pod("--preset", "pod16", "--secure", "--tls-certs", str(SERVER))
    site = Site(tmp_path, plain, tls, munge)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(ttl=LEASE_SECONDS))
    ways = list(site.ways())
    started = [(way, site.start(way, program)) for way in ways]
    ended = [(way, process.communicate(timeout=300)) for way, process in started]
    for way, (out, err) in ended:
        assert out, (way.name, err)
        caller, owner = json.loads(out)
        assert caller == owner, way.name
        assert way.caller in ("", caller), way.name
    for pod in (plain, tls):
        with Client(UnixTransport(str(pod.socket))) as client:
            assert (client.list_leases(), client.list_partitions()) == ([], [])
