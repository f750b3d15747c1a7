"""Without a word nothing is served beyond this machine, on any door; with the words it is."""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.certificates import MACHINE, SERVER, folder_of
from tests.whole.conftest import Pod
from tests.whole.machines import Machines

BIN = Path(sys.executable).parent
#: What asks for a door beyond loopback and does not say so in so many words.
REFUSED = {
    "gRPC": ("vipu-server", "--api-host", "0.0.0.0"),
    "gRPC on IPv6": ("vipu-server", "--api-host", "::"),
    "gRPC by a name": ("vipu-server", "--api-host", "pod.example.org"),
    "HTTP": ("vipu-server", "--http-port", "0", "--http-host", "0.0.0.0"),
    "HTTP with --secure": ("vipu-server", "--secure", "--http-port", "0", "--http-host", "::"),
    "keys in the clear": ("vipu-server", "--secure", "--api-host", "0.0.0.0"),
    "keys in the clear, anywhere": (
        *("vipu-server", "--secure", "--api-host", "0.0.0.0", "--listen-anywhere"),
    ),
    "an agent": ("vipu-agent", "--machine", "a", "--host", "0.0.0.0", "--port", "0"),
}


def listening(process: int) -> set[str]:
    """Where a process and its children listen on TCP."""
    family = [psutil.Process(process), *psutil.Process(process).children(recursive=True)]
    return {
        connection.laddr.ip.removeprefix("::ffff:")  # gRPC listens for both IPs at once
        for one in family
        for connection in one.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def pid_of(pod: Pod) -> int:
    assert pod.process is not None
    return pod.process.pid


def beyond(addresses: set[str]) -> set[str]:
    return {address for address in addresses if not ipaddress.ip_address(address).is_loopback}


@pytest.mark.parametrize("door", REFUSED)
def test_a_door_beyond_loopback_is_asked_for_in_so_many_words(door: str, tmp_path: Path) -> None:
    program, *words = REFUSED[door]
    if program == "vipu-server":
        words += ["--storage", str(tmp_path / "db"), "--socket", str(tmp_path / "s")]
        words += ["--preset", "pod4"] + ([] if "--api-host" in words else ["--api-port", "0"])
    done = subprocess.run(
        [str(BIN / program), *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 2, done
    assert "would travel for all to read" in done.stderr or "other machines" in done.stderr


def test_a_server_and_an_agent_listen_on_loopback_alone(
    make_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    pod = make_pod("--preset", "pod4", "--http-port", "0")
    machines = Machines(tmp_path)
    machines.start("ag1")
    try:
        for process in (pid_of(pod), machines.processes["ag1"].pid):
            addresses = listening(process)
            assert addresses
            assert not beyond(addresses)
    finally:
        machines.end()


@pytest.mark.parametrize(
    "words", [("--listen-anywhere",), ("--secure", "--tls-certs", str(SERVER))], ids=["told", "tls"]
)
def test_told_so_it_listens_anywhere(make_pod: Callable[..., Pod], words: tuple[str, ...]) -> None:
    pod = make_pod("--preset", "pod4", "--api-host", "0.0.0.0", *words)
    assert beyond(listening(pid_of(pod)))
    assert beyond(listening(pid_of(pod))) <= {"0.0.0.0", "::"}


def test_an_agent_with_tls_may_listen_anywhere(tmp_path: Path) -> None:
    command = [str(BIN / "vipu-agent"), "--machine", MACHINE, "--host", "0.0.0.0", "--port", "0"]
    command += ["--state", str(tmp_path / "state"), "--tls-certs", str(folder_of(MACHINE))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as agent:
        try:
            assert agent.stderr is not None
            assert MACHINE in agent.stderr.readline()
            assert beyond(listening(agent.pid))
            assert beyond(listening(agent.pid)) <= {"0.0.0.0", "::"}
        finally:
            agent.kill()
