"""The real commands against a real server, as a user would run them; nothing is replaced."""

from __future__ import annotations

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

from tests.whole.machines import SILENCE, Machines, World

BIN = Path(sys.executable).parent
REPOSITORY = Path(__file__).parents[2]


class Ran(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


class Pod:
    """A server of a simulated pod in a process of its own, and commands that talk to it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
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
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )
        deadline = time.monotonic() + 300
        while self.run("vipu", "--server-version").code:
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)

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
        """The partitions that there are, by name."""
        listed: list[dict[str, dict[str, Any]]] = self.json("vipu", "list", "partitions")
        return {entry["partition"]["id"]: entry["partition"] for entry in listed}


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


@pytest.fixture
def pod16(make_pod: Callable[..., Pod]) -> Pod:
    """A running server of a simulated POD16."""
    return make_pod("--preset", "pod16")


@pytest.fixture
def world(make_pod: Callable[..., Pod], tmp_path: Path) -> Iterator[World]:
    """A server that notices silence within a few seconds, with a key that agents share."""
    key = tmp_path / "agent.key"
    key.write_text("a key that only we two know\n")
    key.chmod(0o600)
    pod = make_pod("--agent-silence", str(SILENCE), "--agent-key", str(key), "-a", "lo")
    machines = Machines(tmp_path, "--agent-key", str(key))
    yield World(pod, machines)
    machines.end()
