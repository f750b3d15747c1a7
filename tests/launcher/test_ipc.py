"""Shared memory that programs make themselves: the host's, or with `--ipc=private` the launch's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.hosts import can_hold
from podwright.launcher.options._instance_environment import chosen_ipc
from tests.launcher.conftest import Launcher

HELD, _, PRIVATE = can_hold()
#: Each instance makes a file and a segment of System V's, and waits until it sees those of both.
PROGRAM = """
import ctypes, os, sys, time
name, key = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
rank = int(os.environ["RANK"])
assert libc.shmget(key + rank, 4096, 0o1600) >= 0, os.strerror(ctypes.get_errno())
open(f"/dev/shm/{name}-{rank}", "w").close()
while not all(os.path.exists(f"/dev/shm/{name}-{i}") and libc.shmget(key + i, 0, 0) >= 0
              for i in range(2)):
    time.sleep(0.01)
print("up", flush=True)
time.sleep(600)
"""
TWO = ("--num-replicas=2", "--num-instances=2", "--grace=1", sys.executable, "-c", PROGRAM)


class Made:
    """What the instances of a test make, and what the host sees of it."""

    def __init__(self, launcher: Launcher) -> None:
        self.name = f"podwright-test-{launcher.mark}"
        self.key = int(launcher.mark[:7], 16) + 2

    def here(self) -> list[str]:
        """Return the files and segments on this host."""
        keys = {line.split()[0] for line in Path("/proc/sysvipc/shm").read_text().splitlines()}
        segments = [str(key) for key in (self.key, self.key + 1) if str(key) in keys]
        return segments + [n for n in os.listdir("/dev/shm") if n.startswith(self.name)]

    def start(self, launcher: Launcher, *options: str, **environ: str) -> subprocess.Popen[str]:
        """Start a launch, and wait until its instances have made and seen everything."""
        words = (*options, *TWO, self.name, str(self.key))
        process = launcher.start(*words, **environ)
        assert process.stdout
        for _ in range(2):
            assert process.stdout.readline().endswith("up\n"), process.communicate()
        return process

    def clear(self) -> None:
        """Remove it from this host."""
        for name in os.listdir("/dev/shm"):
            if name.startswith(self.name):
                os.unlink(f"/dev/shm/{name}")
        for key in (self.key, self.key + 1):
            subprocess.run(["ipcrm", "-M", str(key)], check=False, capture_output=True)


@pytest.mark.parametrize("way", ["killed", "ended"])
def test_private_shared_memory_goes_with_the_launch(launcher: Launcher, way: str) -> None:
    """All watchers are killed at once, and nobody is left to clean up."""
    if not (HELD and PRIVATE):
        words = ("--num-replicas=1", "--num-instances=1", "true")
        ran = launcher.run("--ipc=private", *words)
        assert ran.code != 0
        assert "--ipc=private cannot be had on this host" in ran.err
        return
    made = Made(launcher)
    process = made.start(launcher, "--ipc=private")
    assert made.here() == []
    if way == "killed":
        for pid in (tree := launcher.tree(process)):
            with contextlib.suppress(ProcessLookupError):  # the kernel may have been faster
                os.kill(pid, signal.SIGKILL)
        assert process.pid in tree
    else:
        process.terminate()
    process.communicate(timeout=300)
    launcher.leaves_no_process()
    assert made.here() == []


def test_shared_memory_is_the_hosts_by_default(launcher: Launcher) -> None:
    """The launch sees data that was in /dev/shm before it, and what it makes there stays."""
    made = Made(launcher)
    try:
        process = made.start(launcher)
        assert len(made.here()) == 4
        process.terminate()
        process.communicate(timeout=300)
        launcher.leaves_no_process()
        assert len(made.here()) == 4
    finally:
        made.clear()


def test_a_launch_is_refused_where_private_memory_cannot_be_had(launcher: Launcher) -> None:
    words = ("--num-replicas=2", "--num-instances=2", "true")
    ran = launcher.run("--ipc=private", "--pid-namespace=no", *words)
    assert ran.code != 0
    assert "--ipc=private cannot be had on this host: there is no PID namespace" in ran.err
    launcher.leaves_nothing()


@pytest.mark.parametrize(
    ("told", "environ", "wanted"),
    [
        (None, {}, ""),
        (None, {"PODWRIGHT_IPC": "private"}, "private"),
        ("host", {"PODWRIGHT_IPC": "private"}, "host"),
        ("private", {}, "private"),
    ],
)
def test_the_option_comes_before_the_variable(
    told: str | None, environ: Mapping[str, str], wanted: str
) -> None:
    assert chosen_ipc(told, environ) == wanted


def test_an_unknown_value_of_the_variable_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="PODWRIGHT_IPC='own' is not host or private"):
        chosen_ipc(None, {"PODWRIGHT_IPC": "own"})
