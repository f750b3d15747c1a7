"""A machine falls silent: its partitions are in ERROR, and their jobs report that.

The machines here have agents, each of which is a process that is killed.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.client import Client, UnixTransport
from podwright.wire import PartitionInfo
from tests.kubernetes.lab import KubeLab, StandIns
from tests.kubernetes.test_ipujobs import World
from tests.kubernetes.test_troubles import attempts, both_run
from tests.outer.lab import poll
from tests.whole.machines import SILENCE, Machines

pytestmark = pytest.mark.kubernetes

MACHINES = ("ag1", "ag2", "ag3")


class Troubled(World):
    """Three machines of four IPUs each."""

    def __init__(self, lab: KubeLab, folder: Path) -> None:
        self.machines = Machines(folder)
        super().__init__(lab, folder)

    def start_server(self) -> None:
        """With its machines."""
        self._start(
            "server",
            *("vipu-server", "--api-port", "0", "--agent-silence", str(SILENCE)),
            *("--socket", str(self.socket), "--storage", str(self.folder / "store.db")),
        )
        self._await_server()
        for name in MACHINES:
            self.machines.start(name)
            port = str(self.machines.ports[name])
            self.good("vipu-admin", "create", "agent", name, "--host", "127.0.0.1", "--port", port)
        self.good("vipu-admin", "create", "cluster", "c1", "--agents", ",".join(MACHINES))

    def stop(self) -> None:
        """All of them."""
        super().stop()
        self.machines.end()

    def infos(self) -> list[PartitionInfo]:
        """Return the partitions, as the server reports them."""
        with Client(UnixTransport(str(self.socket)), timeout=60.0) as client:
            return list(client.list_partitions())

    def machine_of(self, job: str) -> str:
        """Return the only machine on which a job has IPUs."""
        found = {
            device.machine
            for info in self.infos()
            if info.name.startswith(f"p-{job}-")
            for gcd in info.gcds
            for device in gcd
        }
        (name,) = found
        return name

    def is_in_error(self, job: str) -> bool:
        """Return the server's error of the only partition of a job, which may be gone by now."""
        mine = [info for info in self.infos() if info.name.startswith(f"p-{job}-")]
        return not mine or mine[0].ready_state.value == "ERROR"

    def is_up(self, machine: str) -> bool:
        """Return whether the server hears the machine."""
        found = json.loads(self.good("vipu-admin", "list", "agents", "--json"))
        return any(one["name"] == machine and one["state"] == "UP" for one in found)


@pytest.fixture
def jobs(plane: KubeLab, tmp_path: Path) -> Iterator[Troubled]:
    with StandIns(plane.http, 2):
        made = Troubled(plane, tmp_path)
        yield made
        made.stop()


def test_a_job_fails_or_restarts_elsewhere_when_its_partition_is_in_error(jobs: Troubled) -> None:
    """Its machine is silent, so a restarted job gets IPUs of another one."""
    both_run(jobs)
    silent = [jobs.machine_of(name) for name in ("never", "anew")]
    for name in silent:
        jobs.machines.signal(name, signal.SIGKILL)
    jobs.is_said("never", "Failed", f"machine {silent[0]} has been silent")
    jobs.until("anew", lambda: attempts(jobs, "anew") >= 1)
    jobs.is_said("anew", "Running", "All instances running")
    assert {jobs.machine_of("anew")} == set(MACHINES) - set(silent)
    for name in silent:
        jobs.machines.start(name)
    jobs.nothing_is_left()


def test_a_job_fails_for_an_error_that_is_over_when_the_operator_looks(jobs: Troubled) -> None:
    """Nothing is reset under running pods: the error stays until the job has failed because
    of it.
    """
    both_run(jobs)
    assert [info.auto_reset for info in jobs.infos()] == [False, False]
    silent = jobs.machine_of("never")
    jobs.processes["operator"].kill()
    jobs.processes["operator"].wait()
    jobs.machines.signal(silent, signal.SIGKILL)
    poll("its error", lambda: jobs.is_in_error("never"), seconds=jobs.patience)
    jobs.machines.start(silent)
    poll("its return", lambda: jobs.is_up(silent), seconds=jobs.patience)
    jobs.start_operator()
    jobs.is_said("never", "Failed", f"machine {silent} has been silent")
    jobs.nothing_is_left()
