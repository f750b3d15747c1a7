"""The command as scripts use it: a process, real pipes, a real terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.stub import Stub, http, stub
from tests.client.test_unix import P1

INFO = {"version": "1.18.0", "host": "127.0.0.1", "port": 8123, "simulated": True}
PARTITIONS = {
    "partitions": [
        {**P1, "name": "p0", "ready_state": "ERROR"},
        {**P1, "name": "part1", "cluster": "a-long-cluster"},
        {**P1, "name": "part3", "num_ilds": 2, "size": 32},
    ]
}
COMMAND = [sys.executable, "-m", "podwright.cli.vipu"]


def answer(name: str, body: dict[str, Any]) -> bytes:
    replies: dict[str, Any] = {"GetServerInfo": INFO, "ListPartitions": PARTITIONS}
    return http(replies.get(name, P1))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    with stub(tmp_path / "s", answer) as made:
        monkeypatch.setenv("PODWRIGHT_SOCKET", made.path)
        yield made


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """A line of a script in which `vipu` and `vipu-admin` are our commands."""
    commands = (
        'vipu() { "$PYTHON" -m podwright.cli.vipu "$@"; }; '
        'vipu-admin() { "$PYTHON" -m podwright.cli.vipu_admin "$@"; }'
    )
    script = f"set -o pipefail; {commands}; {line}"
    environ = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        ["bash", "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "out"),
    [
        (
            "vipu list partitions | grep ACTIVE | cut -d '|' -f 3 | cut -d ' ' -f 2 | head -1",
            "part1\n",
        ),
        ("vipu-admin list partitions | sed -n '3 p' | cut -d '|' -f 3 | tr -d ' '", "p0\n"),
        ("vipu list partition | awk '{print $5}' | sed -n '3 p'", "p0\n"),
        (
            "vipu --server-version | sed -n 2p | awk '{print $2}' | awk -F: '{print $1}'",
            "127.0.0.1\n",
        ),
        ("vipu get partition p1 --ipuof-configs | tail -n +2 | head -c 1", "{"),
    ],
)
@pytest.mark.usefixtures("server")
def test_what_scripts_in_the_field_do_with_it_works(line: str, out: str) -> None:
    done = shell(line)
    assert (done.stdout, done.returncode) == (out, 0)


@pytest.mark.usefixtures("server")
def test_the_servers_address_is_found_by_the_usual_expression() -> None:
    found = re.search(r"host: (.*):", shell("vipu --server-version").stdout)
    assert found is not None
    assert found[1] == "127.0.0.1"


@pytest.mark.usefixtures("server")
def test_simulated_is_said_once_and_never_on_standard_output(tmp_path: Path) -> None:
    done = shell(f"vipu get partition p1 --gcd 0 --ipuof-configs > {tmp_path}/p1_ipuof.conf")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "SIMULATED: these devices exist only in software.\n"
    assert json.loads((tmp_path / "p1_ipuof.conf").read_text())["attributes"] == {"GCD Id": "0"}


def test_a_server_that_is_not_there_has_v_ipus_line_and_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VIPU_CLI_API_HOST", "127.0.0.1:1")
    done = shell("vipu list partitions")
    first, second = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (69, "")
    assert first == (
        "unable to connect to VIRM/V-IPU Controller at 127.0.0.1:1: context deadline exceeded"
    )
    assert second.startswith("What is wrong: connection refused. Start vipu-server there, or")


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_interrupted_command_ends_quietly(tmp_path: Path) -> None:
    go_on = threading.Event()

    def hang(name: str, body: dict[str, Any]) -> bytes:
        if name == "ListPartitions":
            go_on.wait(300)
        return answer(name, body)

    with stub(tmp_path / "s", hang) as made:
        environ = {**os.environ, "PODWRIGHT_SOCKET": made.path}
        with subprocess.Popen(
            [*COMMAND, "list", "partitions"],
            env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            until(lambda: len(made.calls) == 2)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=300)
        go_on.set()
    assert process.returncode == 130
    assert (out, err) == ("", "SIMULATED: these devices exist only in software.\n")


def test_a_full_disk_is_one_line(server: Stub) -> None:
    done = shell("vipu list partitions > /dev/full")
    assert done.returncode == 74
    assert done.stderr.splitlines()[-1] == (
        "vipu: cannot write the output: no space left on device"
    )
    assert server.calls


def test_a_wait_shows_on_a_terminal_and_is_wiped_away(tmp_path: Path) -> None:
    shown = threading.Event()

    def slow(name: str, body: dict[str, Any]) -> bytes:
        if name == "CreatePartition":
            shown.wait(300)
        return answer(name, body)

    with stub(tmp_path / "s", slow) as made:
        ours, theirs = pty.openpty()
        environ = {**os.environ, "PODWRIGHT_SOCKET": made.path}
        with subprocess.Popen(
            [*COMMAND, "create", "partition", "p1", "--size", "4"],
            env=environ, stdout=subprocess.DEVNULL, stderr=theirs,
        ) as process:  # fmt: skip
            os.close(theirs)
            said = b""
            while "create partition (p1) … 1 s".encode() not in said:
                assert select.select([ours], [], [], 300)[0]
                said += os.read(ours, 4096)
            shown.set()
            assert process.wait(300) == 0
        said = b""
        with contextlib.suppress(OSError):  # that is how a terminal ends
            while piece := os.read(ours, 4096):
                said += piece
        os.close(ours)
    assert said.endswith(b"\r\x1b[K")
