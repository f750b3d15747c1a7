"""How soon a silent machine is noticed, and all that lies on it settled: stopped, and killed.

A server and agents, each a process of its own. The figure is the time from the signal until the
last partition of the machine is in ERROR; the limit is the silence that is configured and a second.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import Figures, figure
from podwright.client import Client, UnixTransport
from podwright.errors import PodwrightError
from podwright.wire import AgentRequest, ClusterRequest, PartitionSpec, ReadyState

SILENCE = 2.0  #: seconds
MACHINES = ("ag1", "ag2", "ag3", "ag4")
SPANNING = ("wide", [(0, offset) for offset in range(8, 16)])


def run() -> Figures:
    """The time for each way to fall silent."""
    for way, number in (("stopped", signal.SIGSTOP), ("killed", signal.SIGKILL)):
        folder = Path(tempfile.mkdtemp(prefix="podwright-bench-"))
        try:
            with _agents(folder) as agents, _server(folder) as client:
                _make(client, agents)
                victim = agents["ag3"][0]  # a part of `wide`
                single = agents["ag1"][0]  # four partitions of one
                for what, process, names in (
                    ("machine", single, {f"p{at}" for at in range(4)}),
                    ("part", victim, {"wide"}),
                ):
                    process.send_signal(number)
                    took = _settled(client, names)
                    yield figure(
                        f"controller.silence.{way}.{what}",
                        took,
                        "s",
                        limit=SILENCE + 1.0,
                        silence=SILENCE,
                        partitions=len(names),
                    )
        finally:
            shutil.rmtree(folder)


def _settled(client: Client, names: set[str]) -> float:
    begun = time.perf_counter()
    while True:
        for info in client.list_partitions():
            if info.name in names and info.ready_state is not ReadyState.ERROR:
                break
        else:
            return time.perf_counter() - begun
        if time.perf_counter() > begun + 60:
            raise RuntimeError("a silent machine was not noticed within a minute")
        time.sleep(0.005)


def _make(client: Client, agents: dict[str, tuple[subprocess.Popen[str], int]]) -> None:
    for name, (_, port) in agents.items():
        client.call("CreateAgent", AgentRequest(name=name, host="127.0.0.1", port=port))
    client.call("CreateCluster", ClusterRequest(name="c1", agents=list(agents)))
    for at in range(4):
        spec = PartitionSpec(name=f"p{at}", size=1, devices=[(0, at)], auto_reset=False)
        client.create_partition(spec)
    name, devices = SPANNING
    client.create_partition(PartitionSpec(name=name, size=8, devices=devices, auto_reset=False))


@contextmanager
def _agents(folder: Path) -> Iterator[dict[str, tuple[subprocess.Popen[str], int]]]:
    processes = {
        name: subprocess.Popen(
            [
                *(sys.executable, "-m", "podwright.cli.vipu_agent", "--machine", name),
                *("--port", "0", "--state", str(folder / f"{name}.json")),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in MACHINES
    }
    try:
        yield {name: (process, _port(process)) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r" on 127\.0\.0\.1:(\d+)", line)
    if found is None:
        raise RuntimeError(f"an agent said: {line}")
    return int(found[1])


@contextmanager
def _server(folder: Path) -> Iterator[Client]:
    socket = folder / "s"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "podwright.cli.vipu_server", "--api-port", "0"),
            *("--socket", str(socket), "--storage", str(folder / "db")),
            *("--agent-silence", str(SILENCE)),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        with Client(UnixTransport(str(socket))) as client:
            while True:
                try:
                    client.get_server_info()
                    break
                except PodwrightError:
                    if process.poll() is not None:
                        raise
                    time.sleep(0.02)
            yield client
    finally:
        process.kill()
        process.wait()
