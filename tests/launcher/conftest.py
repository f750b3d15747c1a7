"""Runs of poprun with a fake server, and the search for what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from podwright.hosts import Process, descendants, kill_all, processes

REPOSITORY = Path(__file__).parents[2]
MARK = "PODWRIGHT_TEST_MARK"


class Ran(NamedTuple):
    """How poprun ended, and its output."""

    code: int
    out: str
    err: str


class Tree(NamedTuple):
    """The pids of the processes that every launch with mpirun has on its own host."""

    poprun: int
    keeper: int
    guardian: int
    mpirun: int


#: What the processes of a launch call themselves.
_NAMES = {"keeper": "podwright-keep", "guardian": "podwright-guard", "mpirun": "mpirun"}


def name_of(pid: int) -> str:
    """Return the name of a process, if it still exists; Open MPI's mpirun becomes prterun."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
    return "mpirun" if name == "prterun" else name


class Launcher:
    """Starts poprun processes. Every descendant of theirs carries a mark of this test alone."""

    def __init__(self, folder: Path, memory: Path, user: int | None = None) -> None:
        self.folder, self.memory, self._user = folder, memory, user
        self.mark = os.urandom(8).hex()
        self.stdin: IO[bytes] | int = subprocess.DEVNULL
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.cwd = folder / "work"
        self.cwd.mkdir()
        self.environ = {
            **os.environ,
            "CALLS": str(folder / "calls"),
            "LOST": str(folder / "lost"),
            "SLEPT": str(folder / "slept"),
            "MEMORY": str(memory),
            "PYTHONPATH": str(REPOSITORY),
            "TMPDIR": str(self.temporary),
            MARK: self.mark,
        }
        self.processes: list[subprocess.Popen[str]] = []
        if user is not None:
            for place in (folder, memory, self.temporary, self.cwd):
                os.chown(place, user, user)

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """Start poprun in a process group of its own, as shells start commands."""
        process = subprocess.Popen(
            [*self._as_user(), sys.executable, "-m", "tests.launcher.alone", *words],
            env={**self.environ, **environ},
            cwd=self.cwd,
            stdin=self.stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )
        self.processes.append(process)
        return process

    def _as_user(self) -> list[str]:
        """Run as an ordinary user, who may still read this Python's folder, which may be root's."""
        if self._user is None:
            return []
        who = [
            "setpriv",
            f"--reuid={self._user}",
            f"--regid={self._user}",
            "--clear-groups",
        ]
        return [*who, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--"]

    def run(self, *words: str, timeout: float = 300, **environ: str) -> Ran:
        """Run poprun to its end."""
        process = self.start(*words, **environ)
        out, err = process.communicate(timeout=timeout)
        return Ran(process.returncode, out, err)

    def calls(self) -> list[str]:
        """Return the calls that the server received, except renewals."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(json.loads, lines) if call != "Renew"]

    def renewals(self) -> int:
        """Return how often the lease was renewed."""
        return (self.folder / "calls").read_text().count('"Renew"')

    def ours(self) -> list[Process]:
        """Return the living processes with this test's mark."""
        entry = f"{MARK}={self.mark}".encode()
        found = []
        for process in processes().values():
            try:
                environ = Path(f"/proc/{process.pid}/environ").read_bytes()
            except OSError:
                continue
            if entry in environ.split(b"\0") and not process.dead:
                found.append(process)
        return found

    def left(self) -> list[str]:
        """Return what is left of the runs: processes, temporary files, shared memory."""
        folders = (self.temporary, self.memory)
        return [*map(str, self.ours()), *(str(path) for f in folders for path in f.iterdir())]

    def clear(self) -> None:
        """Remove what a failed test left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        kill_all(self.ours(), signal.SIGKILL)

    def leaves_nothing(self, within: float = 120) -> None:
        """Fail unless everything is gone soon."""
        wait_until(lambda: not self.left(), within, lambda: f"left behind: {self.left()}")

    def leaves_no_process(self, within: float = 120) -> None:
        """Fail unless all processes are gone soon."""
        wait_until(lambda: not self.ours(), within, lambda: f"left behind: {self.left()}")

    def tree(self, process: subprocess.Popen[str]) -> Tree:
        """Return the pids of a run's watchers and of its mpirun, once they exist."""
        found: dict[str, int] = {}

        def there() -> bool:
            names = {name_of(p.pid): p.pid for p in descendants(process.pid)}
            found.clear()
            found.update((own, names[name]) for own, name in _NAMES.items() if name in names)
            return len(found) == len(_NAMES)

        wait_until(there)
        return Tree(process.pid, **found)


def wait_until(
    true: Callable[[], bool], within: float = 120, why: Callable[[], str] = lambda: "too late"
) -> None:
    """Wait for something, with a deadline."""
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    """poprun with a fake server. What a failed test left is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="podwright-test-", dir="/dev/shm") as memory:
        yield from _launcher(tmp_path, Path(memory))


def _launcher(folder: Path, memory: Path) -> Iterator[Launcher]:
    found = Launcher(folder, memory)
    yield found
    found.clear()
