"""A launch over two hosts moves: other devices, the same hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.outer.lab import HostsLab, poll

pytestmark = [pytest.mark.outer, pytest.mark.soak]

BIN = Path(sys.executable).parent
#: Says where it runs each time it starts, and ends in order to move.
PROGRAM = """
trap 'exit 75' USR1
echo "$PODWRIGHT_RESTART $(uname -n)" >>ups
while :; do sleep 0.1; done
"""
LINE = (
    *("--vipu-partition=p", "--movable", "--move-seconds=900", "--move-signal=USR1"),
    *("--num-replicas=4", "--num-instances=2", "--host=a,b", "--allow-run-as-root=yes"),
)


class Moving:
    """A server in the lab's folder, which all hosts see, and a launch on host a."""

    def __init__(self, lab: HostsLab, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            **os.environ,
            "PODWRIGHT_SOCKET": str(folder / "server.sock"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        words = ("--socket", folder / "server.sock", "--storage", folder / "server.db")
        self._begun = [self._begin(BIN / "vipu-server", "--preset=pod16", "--api-port=0", *words)]
        poll("the server", lambda: self._run("vipu", "--server-version").returncode == 0)
        self._lab = lab

    def launch(self, *options: str) -> subprocess.Popen[bytes]:
        poprun = ["env", "-C", str(self.folder), sys.executable, "-m", "podwright.cli.poprun"]
        line = self._lab.place("a").wrap([*poprun, *options, *LINE, "sh", "-c", PROGRAM])
        self._begun.append(self._begin(*line))
        return self._begun[-1]

    def admin(self, *words: str) -> Any:
        done = self._run("vipu-admin", *words, "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout or "{}")

    def machine(self) -> str:
        """The one that the launch has devices of."""
        (row,) = [row for row in self.admin("list", "machines") if row["partitions"]]
        return str(row["machine"])

    def ups(self) -> list[str]:
        path = self.folder / "ups"
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def stop(self) -> None:
        server, *launches = self._begun
        for launch in launches:  # which nsenter has started
            children = Path(f"/proc/{launch.pid}/task/{launch.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGTERM)
            launch.wait(300)
        server.send_signal(signal.SIGTERM)
        server.wait(300)

    def _begin(self, *words: str | Path) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                words, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / words[0], *words[1:]],
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def lab() -> Iterator[HostsLab]:
    with HostsLab(["a", "b"]) as found:
        yield found


@pytest.mark.parametrize("launcher", ["local", "mpirun"])
def test_it_goes_on_on_the_same_hosts(lab: HostsLab, launcher: str) -> None:
    folder = lab.folder / f"moves-{launcher}"
    folder.mkdir(mode=0o755)
    moving = Moving(lab, folder)
    try:
        moving.launch(f"--launcher={launcher}")
        poll("a launch that can be moved", lambda: moving.admin("moves")["movable"] == 1)
        before = moving.machine()
        moving.admin("drain", "machine", before)
        poll("its second start", lambda: len(moving.ups()) == 4)
        assert moving.ups() == ["0 a", "0 b", "1 a", "1 b"]
        assert moving.machine() != before
    finally:
        moving.stop()
