"""Machines come and go: Slurm counts what is there within ten seconds, and running jobs stay.

Sixteen devices of four machines, each with an agent of its own, which is killed and started again.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest

from podwright.wire import PartitionInfo, ReadyState
from tests.outer.lab import LabError, Release, poll
from tests.outer.slurm.native import NativeLab
from tests.ports import free_ports

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
MACHINES = ("m1", "m2", "m3", "m4")
SOAK = os.environ.get("PODWRIGHT_SOAK") == "1"


class MachinesLab(NativeLab):
    """Native mode over registered agents."""

    def start_server(self) -> None:
        self.ports = dict(zip(MACHINES, free_ports(len(MACHINES)), strict=True))
        # An agent of a busy machine may be silent for a while; one that was killed is for ever.
        self.serve("--agent-silence", "5" if SOAK else "20")
        for name in MACHINES:
            self.start_agent(name)
            where = ["--host", "127.0.0.1", "--port", str(self.ports[name])]
            self.admin("create", "agent", name, *where)
        self.admin("create", "cluster", "pod16", "--agents", ",".join(MACHINES))

    def start_agent(self, name: str) -> None:
        argv = ["podwright.cli.vipu_agent", "--machine", name, "--port", str(self.ports[name])]
        self._begin(name, [*argv, "--state", f"{self.folder}/{name}.agent"])
        poll(f"agent {name}", lambda: self._listens(self.ports[name]))

    def _listens(self, port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def admin(self, *words: str) -> None:
        said = self.command("vipu_admin", *words, user="root")
        if said.returncode:
            raise LabError(said.stderr)

    def start_service_as(self, on_failure: str) -> None:
        self.end("service")
        self.configure("--on-failure", on_failure, "--write")
        self.start_service()
        self.wait_for_service()

    def offered(self, licence: str = "ipu_x1") -> int:
        """What Slurm may give out at most: all but what the reservation hides."""
        words = self.ok("scontrol", "-o", "show", "lic", licence).replace("=", " ").split()
        return int(words[words.index("Total") + 1]) - int(words[words.index("Reserved") + 1])


@pytest.fixture(scope="module")
def cluster(release: Release) -> Iterator[MachinesLab]:
    with MachinesLab(nodes=2, cpus=16, release=release) as made:
        yield made


@pytest.fixture
def lab(cluster: MachinesLab) -> Iterator[MachinesLab]:
    yield cluster
    for name in MACHINES:
        if not cluster.runs(name):
            cluster.start_agent(name)
    left = [str(job.id) for job in cluster.jobs().values() if not job.over]
    if left:
        cluster.run("scancel", *left)
    cluster.wait_free()
    poll("all devices counted", lambda: cluster.offered("ipu_x16") == 16)


def running(lab: MachinesLab, *options: str) -> tuple[int, PartitionInfo]:
    job = lab.batch("sleep 600", "-o", "/dev/null", *options)
    lab.wait_state(job, "RUNNING")
    return job, poll("its partition", lambda: lab.partitions().get(f"slurm_{job}"))


def machines(partition: PartitionInfo) -> set[str]:
    return {ref.machine for gcd in partition.gcds for ref in gcd}


def counted(lab: MachinesLab, licence: str, count: int) -> None:
    """Slurm counts so: within ten seconds on a machine that has time."""
    start = time.monotonic()
    poll(f"{count} {licence}", lambda: lab.offered(licence) == count)
    assert time.monotonic() - start < 10 or not SOAK


def test_a_drained_machine_is_counted_out_and_in_again(lab: MachinesLab) -> None:
    job, before = running(lab, "--ipus=4")
    (mine,) = machines(before)
    other = next(name for name in MACHINES if name != mine)
    lab.admin("drain", "machine", other)
    counted(lab, "ipu_x1", 12)
    waits = lab.batch("true", "--ipus=16", "-o", "/dev/null")
    lab.admin("drain", "machine", mine)
    poll("a look", lambda: lab.job(waits).reason == "Licenses")
    assert lab.job(job).state == "RUNNING"
    assert lab.partitions()[before.name].ready_state is ReadyState.ACTIVE
    lab.ok("scancel", str(job))
    counted(lab, "ipu_x1", 8)
    for name in (mine, other):
        lab.admin("resume", "machine", name)
    counted(lab, "ipu_x16", 16)
    assert lab.wait_over(waits)[waits].state == "COMPLETED"


def test_a_failed_machine_moves_the_partition_of_a_running_job(lab: MachinesLab) -> None:
    lab.start_service_as("relocate")
    job, before = running(lab, "--ipus=4", "--num-replicas=2")
    (failed,) = machines(before)
    lab.end(failed)

    def moved() -> PartitionInfo | None:
        now = lab.partitions()[before.name]
        there = now.ready_state is ReadyState.ACTIVE and failed not in machines(now)
        return now if there else None

    after = poll("its partition elsewhere", moved)
    assert (after.size, after.num_replicas) == (4, 2)
    assert after.job.startswith(f"{job}, cluster lab")
    assert lab.job(job).state == "RUNNING"
    assert lab.job(job).fields["Restarts"] == "0"
    # Twelve devices are left, and four of them are the job's: what is hidden are the failed four.
    counted(lab, "ipu_x1", 12)
    others = [lab.batch("true", "--ipus=4", "-o", "/dev/null") for _ in range(3)]
    assert {one.state for one in lab.wait_over(*others).values() if one.id in others} == {
        "COMPLETED"
    }
    lab.start_agent(failed)
    counted(lab, "ipu_x1", 16)


@pytest.mark.soak
def test_a_failed_machine_puts_its_job_back_into_the_queue(lab: MachinesLab) -> None:
    lab.start_service_as("requeue")
    job, before = running(lab, "--ipus=4")
    other, untouched = running(lab, "--ipus=4")
    (failed,) = machines(before)
    lab.end(failed)
    poll("its restart", lambda: lab.job(job).fields["Restarts"] == "1")
    lab.wait_state(job, "RUNNING")
    again = lab.partitions()[before.name]
    assert again.job.startswith(f"{job}/1, cluster lab")
    assert failed not in machines(again)
    assert lab.job(other).fields["Restarts"] == "0"
    assert machines(lab.partitions()[untouched.name]) == machines(untouched)


@pytest.mark.soak
def test_a_job_stays_where_the_site_chose_so(lab: MachinesLab) -> None:
    lab.start_service_as("stay")
    job, before = running(lab, "--ipus=4")
    (failed,) = machines(before)
    lab.end(failed)
    counted(lab, "ipu_x16", 0)
    lab.start_agent(failed)
    poll("its repair", lambda: lab.partitions()[before.name].ready_state is ReadyState.ACTIVE)
    assert lab.job(job).state == "RUNNING"
    assert machines(lab.partitions()[before.name]) == {failed}
