"""vipu-server is reached over TCP: MUNGE says who the service is; of two addresses one is
nobody's, and the other comes and goes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from podwright.wire import AllocationRequest, NewUser, UserRequest
from tests.outer.lab import ALICE, HostsLab, poll
from tests.outer.lab._places import run
from tests.outer.slurm.native import PODWRIGHT, NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
NAME = "echo $IPUOF_VIPU_API_PARTITION_ID $IPUOF_VIPU_API_HOST $PODWRIGHT_SOCKET"


class FarLab(NativeLab):
    """The service beside slurmctld; vipu-server over TCP, and known by no socket."""

    host = "127.0.0.1"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.addresses = f"127.0.0.1:1,{self.host}:{self.port}"
        self._configure += ["--server", f"tcp:{self.addresses}"]
        self._configure += ["--munge-socket", f"{self.folder}/munge.socket"]
        self._configure += ["--host", self.host]

    def serve(self, *options: str) -> None:
        where = ["--api-host", self.host, "--listen-anywhere", "--secure"]
        where += ["--munge", "--munge-socket", f"{self.folder}/munge.socket"]
        self.serve_at(self.port, *options, *where)


@pytest.fixture(scope="module")
def lab() -> Iterator[FarLab]:
    with FarLab(nodes=1, cpus=8) as made:
        yield made


def test_a_job_begins_and_ends_with_its_server_over_tcp(lab: FarLab) -> None:
    assert f"tcp:{lab.addresses}" in (lab.folder / "podwright" / "native.toml").read_text()
    done = lab.run("srun", "--ipus=4", "sh", "-c", NAME, user=ALICE)
    assert done.stdout.split()[1:] == [lab.host], done.stderr
    lab.wait_free()


def test_a_server_that_is_down_for_a_while_costs_a_job_nothing(lab: FarLab) -> None:
    running = lab.batch("sleep 600", "--ipus=4", "-o", "/dev/null")
    lab.wait_state(running, "RUNNING")
    lab.end("server")
    lab.ok("scancel", str(running))
    waits = lab.batch("true", "--ipus=64", "-o", "/dev/null")
    lab.wait_state(running, "COMPLETING")
    lab.start_server()
    jobs = lab.wait_over(running, waits, seconds=90)
    assert (jobs[running].state, jobs[waits].state) == ("CANCELLED", "COMPLETED")
    assert jobs[waits].fields["Restarts"] == "0"
    lab.wait_free()


class SchedulerLab(FarLab):
    """vipu-server on a host of its own, with TLS; the service is there a scheduler, by its key."""

    def __init__(self, hosts: HostsLab, **options: Any) -> None:
        self.host = hosts.address["pod"]
        super().__init__(hosts=hosts, **options)
        self.hosts = hosts
        self._configure += ["--server-config", f"{self.folder}/slurm.hcl"]
        self._configure += ["--pod", "pod64=pod64/jobs"]

    def where(self, argv: Sequence[str]) -> list[str]:
        host = "pod" if "podwright.cli.vipu_server" in argv else self.controller
        return self.hosts.place(host).wrap(argv)

    def podwright(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(
            self.hosts.place(self.controller),
            [*PODWRIGHT, *words],
            env=self.environment(),
            timeout=120,
        )

    def serve(self, *options: str) -> None:
        again = (self.folder / "vipu-certs").exists()
        if not again:
            argv = [sys.executable, "-m", "podwright.cli.vipu_server", "--tls-init"]
            argv += ["--api-host", self.host, "--listen-anywhere"]
            done = run(self.hosts.place("pod"), ["env", "-C", str(self.folder), *argv])
            assert done.returncode == 0, done.stderr
        tls = ["--tls-certs", f"{self.folder}/vipu-certs/server"]
        where = ["--api-host", self.host, "--listen-anywhere", "--secure", *tls]
        self.serve_at(self.port, *options, *where)
        if again:
            return
        with self.client() as client:
            user = UserRequest(name="slurm", role="scheduler")
            made = client.call("CreateUser", user)
            assert isinstance(made, NewUser)
            client.call(
                "CreateAllocation", AllocationRequest(name="jobs", size=64, scheduler="slurm")
            )
        hcl = self.folder / "slurm.hcl"
        hcl.touch(0o600)
        hcl.write_text(
            f'api-user-id = "slurm"\napi-access-key = "{made.access_key}"\n'
            f'tls-certs = "{self.folder}/vipu-certs/client"\n'
        )


@pytest.mark.soak
def test_a_job_begins_and_ends_with_its_server_over_tls_by_a_schedulers_key() -> None:
    with HostsLab(["ctl", "n1", "pod"]) as hosts, SchedulerLab(hosts, cpus=8) as lab:
        job = lab.batch("sleep 600", "--ipus=4", "-wn1", "-o", "/dev/null")
        made = poll("its partition", lambda: lab.partitions().get(f"slurm_{job}"))
        assert (made.creator, made.owner, made.allocation) == ("slurm", ALICE, "jobs")
        lab.end("server")
        lab.ok("scancel", str(job))
        lab.wait_state(job, "COMPLETING")
        lab.start_server()
        assert lab.wait_over(job, seconds=90)[job].state == "CANCELLED"
        lab.wait_free()
        assert "api-access-key" not in (lab.folder / "podwright" / "native.toml").read_text()
