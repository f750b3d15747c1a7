"""By default nothing is served beyond this machine, on any door; with the options it is."""

from __future__ import annotations

import ipaddress
import json
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
    """Return where a process and its children listen on TCP."""
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


#: Runs each command in a child of one interpreter; standard input names them, as JSON.
_EACH_IN_A_CHILD = """
import importlib, json, os, sys
import podwright.cli.vipu_agent, podwright.cli.vipu_server
codes = []
for log, program, words in json.load(sys.stdin):
    child = os.fork()
    if not child:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT, 0o600), 2)
        sys.argv = [program, *words]
        sys.exit(importlib.import_module("podwright.cli." + program.replace("-", "_")).main(words))
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


def test_a_door_beyond_loopback_is_asked_for_in_so_many_words(tmp_path: Path) -> None:
    commands = []
    for number, (program, *words) in enumerate(REFUSED.values()):
        if program == "vipu-server":
            words += ["--storage", str(tmp_path / "db"), "--socket", str(tmp_path / "s")]
            words += ["--preset", "pod4"] + ([] if "--api-host" in words else ["--api-port", "0"])
        commands.append((str(tmp_path / f"{number}.log"), program, words))
    done = subprocess.run(
        [sys.executable, "-c", _EACH_IN_A_CHILD],
        input=json.dumps(commands), capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert dict(zip(REFUSED, json.loads(done.stdout), strict=True)) == dict.fromkeys(REFUSED, 2)
    for door, (log, _, _) in zip(REFUSED, commands, strict=True):
        reason = Path(log).read_text()
        assert "would travel for all to read" in reason or "other machines" in reason, door
    assert not (tmp_path / "db").exists()


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
    "words",
    [("--listen-anywhere",), ("--secure", "--tls-certs", str(SERVER))],
    ids=["told", "tls"],
)
def test_a_server_that_is_told_so_listens_anywhere(
    make_pod: Callable[..., Pod], words: tuple[str, ...]
) -> None:
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
