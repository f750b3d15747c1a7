"""One server is started for a user, however many commands ask at once; failures are explained."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podwright.client import start_server
from podwright.errors import Unavailable

#: A server in the size of a test: notes its pid and what it was given, listens, waits to be ended.
_SERVER = """
import os, socket, sys, time
folder = sys.argv[1]
with open(f"{folder}/pids", "a") as file:
    print(os.getpid(), file=file)
open_files = sorted(int(n) for n in os.listdir("/proc/self/fd"))
with open(f"{folder}/facts", "w") as file:
    print(os.getsid(0) == os.getpid(), os.path.realpath("/proc/self/fd/0"), open_files, file=file)
time.sleep(0.2)
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"{folder}/server.sock")
time.sleep(60)
"""


@pytest.fixture
def command(tmp_path: Path) -> Iterator[list[str]]:
    yield [sys.executable, "-S", "-c", _SERVER, str(tmp_path)]
    pids = tmp_path / "pids"
    for line in pids.read_text().split() if pids.exists() else ():
        os.kill(int(line), signal.SIGKILL)
        os.waitpid(int(line), 0)


def ready(folder: Path) -> Callable[[], bool]:
    return (folder / "server.sock").exists


def test_of_many_commands_at_once_one_starts_the_server(tmp_path: Path, command: list[str]) -> None:
    ours: list[bool] = []

    def ask() -> None:
        ours.append(
            start_server(str(tmp_path), os.environ, ready(tmp_path), command=command, timeout=300)
        )

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ours) == [False] * 4 + [True]
    assert len((tmp_path / "pids").read_text().split()) == 1


def test_a_started_server_holds_no_descriptor_of_ours(tmp_path: Path, command: list[str]) -> None:
    """A pipe that stayed open in the server would make scripts wait for the server's end."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    start_server(str(tmp_path), os.environ, ready(tmp_path), command=command, timeout=300)
    os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)
    leads, standard_input, *_ = (tmp_path / "facts").read_text().split()
    assert (leads, standard_input) == ("True", "/dev/null")
    assert (tmp_path / "server.log").stat().st_mode & 0o777 == 0o600


def test_a_server_that_fails_to_start_is_quoted(tmp_path: Path) -> None:
    failing = [sys.executable, "-S", "-c", "import sys; sys.exit('no accelerators, no pod')"]
    with pytest.raises(Unavailable, match="ended at once with code 1: no accelerators, no pod"):
        start_server(str(tmp_path), os.environ, lambda: False, command=failing, timeout=300)


def test_a_started_server_that_never_answers_is_ended(tmp_path: Path) -> None:
    deaf = _SERVER.replace("listener.bind", "str")
    sleeping = [sys.executable, "-S", "-c", deaf, str(tmp_path)]
    with pytest.raises(Unavailable, match=r"did not answer within 0\.5 s"):
        start_server(str(tmp_path), os.environ, lambda: False, command=sleeping, timeout=0.5)
    deadline = time.monotonic() + 300
    while os.waitpid(-1, os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_lock_that_is_not_given_back_is_not_waited_for_ever(tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / "start.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="another command is starting a server"):
            start_server(str(tmp_path), os.environ, lambda: False, command=["/x"], timeout=0.1)
