"""vipu-server is reached over TCP: MUNGE says who the service is; of two addresses one is
nobody's, and the other comes and goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.outer.lab import ALICE
from tests.outer.slurm.native import NativeLab
from tests.ports import free_port

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
NAME = "echo $IPUOF_VIPU_API_PARTITION_ID $IPUOF_VIPU_API_HOST $PODWRIGHT_SOCKET"


class FarLab(NativeLab):
    """The service beside slurmctld; vipu-server over TCP, and known by no socket."""

    host = "127.0.0.1"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.port = free_port()
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
