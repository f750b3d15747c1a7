"""A server, its agents and an administrator, each a process, for tests that break them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from podwright.client import Client, UnixTransport
from podwright.wire import AgentInfo, AgentList, ListRequest, PartitionInfo, PartitionName, Value
from tests.ports import free_port

if TYPE_CHECKING:
    from tests.whole.conftest import Pod

BIN = Path(sys.executable).parent
SILENCE = 5.0  # not less: a busy machine that runs tests is no dead one
V = TypeVar("V", bound=Value)


class Machines:
    """Agents as processes; their state files outlive them.

    variables: the environment of agents that are started from now on, beside this process's.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.arguments = arguments
        self.variables: dict[str, str] = {}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.ports: dict[str, int] = {}

    def start(self, name: str, *arguments: str) -> None:
        """Start the agent of a machine, again where it was before, until it answers."""
        process = self.processes[name] = subprocess.Popen(
            [
                BIN / "vipu-agent",
                *("--machine", name, "--port", str(self.ports.setdefault(name, free_port()))),
                *("--state", str(self.folder / f"{name}.json"), *self.arguments, *arguments),
            ],
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        assert f" on 127.0.0.1:{self.ports[name]}, kept in " in line, line + process.stderr.read()

    def signal(self, name: str, number: int) -> None:
        """Kill, stop or continue an agent."""
        process = self.processes[name]
        process.send_signal(number)
        if number == signal.SIGKILL:
            self._reap(process)

    def end(self) -> None:
        """End them all."""
        for process in self.processes.values():
            process.kill()
            self._reap(process)

    def _reap(self, process: subprocess.Popen[str]) -> None:
        process.wait(300)
        if process.stderr is not None:
            process.stderr.close()


class World:
    """An empty server and its machines."""

    def __init__(self, pod: Pod, machines: Machines) -> None:
        self.pod = pod
        self.machines = machines

    def admin(self, *words: str) -> str:
        return self.pod.good("vipu-admin", *words)

    def register(self, *names: str) -> None:
        threads = [threading.Thread(target=self.machines.start, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in names:
            port = str(self.machines.ports[name])
            said = self.admin("create", "agent", name, "--host", "127.0.0.1", "--port", port)
            assert said == f"create agent ({name}): success.\n"

    def state(self, agent: str) -> tuple[str, str]:
        found = self.info(agent)
        return found.state, found.reason

    def info(self, agent: str) -> AgentInfo:
        listed = self.ask("ListAgents", ListRequest(), AgentList).agents
        return next(info for info in listed if info.name == agent)

    def until_heard(self, agent: str) -> None:
        """Wait until an agent that was just started has answered. It may have been UP before."""
        begin = time.monotonic()
        self.until(lambda: self.info(agent).last_seen < time.monotonic() - begin)
        self.until(lambda: self.state(agent)[0] == "UP")

    def ask(self, method: str, request: Value, reply: type[V]) -> V:
        """Ask without a command, for questions that are repeated often."""
        with Client(UnixTransport(str(self.pod.socket))) as client:
            answer = client.call(method, request)
        assert isinstance(answer, reply)
        return answer

    def until(self, what: Callable[[], bool], seconds: float = 300) -> float:
        begin = time.monotonic()
        while not what():
            assert time.monotonic() < begin + seconds, "it did not come to pass"
            time.sleep(0.05)
        return time.monotonic() - begin

    def ready(self, partition: str) -> str:
        name = PartitionName(name=partition)
        return self.ask("GetPartition", name, PartitionInfo).ready_state.value
