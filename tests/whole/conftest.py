"""The real commands against a real server, as a user would run them; nothing is replaced."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from podwright.cli.shared import _json
from podwright.client import Client, UnixTransport
from podwright.errors import PodwrightError
from tests.conftest import home_variables
from tests.whole.machines import SILENCE, Machines, World

BIN = Path(sys.executable).parent
REPOSITORY = Path(__file__).parents[2]


class Ran(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


class Pod:
    """A server of a simulated pod in a process of its own, and commands that talk to it.

    folder: of the server's files, and the working folder of commands. variables: the server's
    environment, beside this process's. environ: that of commands.
    """

    def __init__(
        self, folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.variables = dict(variables or {})
        self.socket = folder / "server.sock"
        self.storage = folder / "server.db"
        self.arguments = arguments
        self.process: subprocess.Popen[str] | None = None
        self.environ = {
            **os.environ,
            "PODWRIGHT_SOCKET": str(self.socket),
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }

    def start(self) -> None:
        """Start the server, again over the same store if it ran before, until it answers."""
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(
                [
                    BIN / "vipu-server",
                    *("--socket", str(self.socket), "--api-port", "0"),
                    *("--storage", str(self.storage), *self.arguments),
                ],
                env={**os.environ, **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )
        deadline = time.monotonic() + 300
        while not self._answers():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)

    def log(self) -> str:
        """What the server has written."""
        return (self.folder / "server.log").read_text()

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                client.get_server_info()
        except PodwrightError:
            return False
        return True

    def client(self) -> Client:
        """A client of the server in this process: commands cost a tenth of a second each."""
        return Client(UnixTransport(str(self.socket)))

    def used_from(self, folder: Path) -> Pod:
        """The same running server, with a working folder and an environment of commands anew."""
        pod = Pod(folder, *self.arguments)
        pod.socket, pod.storage, pod.process = self.socket, self.storage, self.process
        pod.environ = {
            **os.environ,
            "PODWRIGHT_SOCKET": str(self.socket),
            "PATH": pod.environ["PATH"],
        }
        return pod

    def clear(self) -> None:
        """Remove all partitions, and wait until all devices are free again."""
        deadline = time.monotonic() + 300
        with self.client() as client:
            while names := [info.name for info in client.list_partitions()]:
                assert time.monotonic() < deadline, names
                for name in names:
                    with contextlib.suppress(PodwrightError):  # its launch may remove it itself
                        client.remove_partition(name, force=True)
            while any(device.state != "FREE" for device in client.list_devices()):
                assert time.monotonic() < deadline, client.list_devices()
                time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the server by a signal; its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(300)

    def run(
        self, *words: str | Path, timeout: float = 300, environ: Mapping[str, str] | None = None
    ) -> Ran:
        """Run a command to its end."""
        done = subprocess.run(
            [str(word) for word in words],
            env={**self.environ, **(environ or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            executable=str(BIN / words[0]) if (BIN / words[0]).exists() else None,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def good(self, *words: str | Path) -> str:
        """Run a command that must succeed; what it printed."""
        ran = self.run(*words)
        assert ran.code == 0, ran
        return ran.out

    def json(self, *words: str) -> Any:
        """Run a command with --json; what it printed, read."""
        return json.loads(self.good(*words, "--json"))

    def partitions(self) -> dict[str, dict[str, Any]]:
        """The partitions that there are, by name, as `vipu list partitions --json` has them."""
        with self.client() as client:
            return {
                info.name: _json.partition(info)["partition"] for info in client.list_partitions()
            }


@pytest.fixture
def make_pod(tmp_path: Path) -> Iterator[Callable[..., Pod]]:
    """Starts servers: `make_pod("--preset", "pod16")`; ends them afterwards."""
    pods: list[Pod] = []

    def make(*arguments: str) -> Pod:
        folder = tmp_path / f"pod{len(pods)}"
        folder.mkdir(mode=0o700)
        pod = Pod(folder, *arguments)
        pods.append(pod)
        pod.start()
        return pod

    yield make
    for pod in pods:
        pod.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def served16(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """A running server of a simulated POD16 for all tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("served16")
    folder.chmod(0o700)
    pod = Pod(folder, "--preset", "pod16", variables=home_variables(folder))
    pod.start()
    yield pod
    pod.stop(signal.SIGKILL)


@pytest.fixture
def shared16(served16: Pod, tmp_path: Path) -> Iterator[Pod]:
    """That server, without partitions. A test may neither stop it nor change its machines."""
    folder = tmp_path / "shared16"
    folder.mkdir(mode=0o700)
    pod = served16.used_from(folder)
    assert pod.partitions() == {}
    yield pod
    pod.clear()


@pytest.fixture
def pod16(make_pod: Callable[..., Pod]) -> Pod:
    """A running server of a simulated POD16."""
    return make_pod("--preset", "pod16")


@pytest.fixture
def silence() -> float:
    """The seconds after which the server of `world` takes a silent machine for dead."""
    return SILENCE


@pytest.fixture
def world(make_pod: Callable[..., Pod], tmp_path: Path, silence: float) -> Iterator[World]:
    """A server that notices silence after a few seconds, with a key that agents share."""
    key = tmp_path / "agent.key"
    key.write_text("a key that only we two know\n")
    key.chmod(0o600)
    pod = make_pod("--agent-silence", str(silence), "--agent-key", str(key), "-a", "lo")
    machines = Machines(tmp_path, "--agent-key", str(key))
    yield World(pod, machines)
    machines.end()
