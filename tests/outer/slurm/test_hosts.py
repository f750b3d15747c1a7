"""Hosts of their own: the server far from slurmctld, reached over TCP with MUNGE, and gone for a
while; a node whose power goes.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.outer.lab import HostsLab, Release, poll
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm, pytest.mark.soak]
POD = "pod"


class FarLab(NativeLab):
    """slurmctld on the first host; vipu-server and the service on the one called `pod`."""

    def __init__(self, hosts: HostsLab, **options: Any) -> None:
        super().__init__(hosts=hosts, **options)
        self.hosts = hosts
        self._configure += ["--listen", f"{hosts.address[POD]}:8091"]
        self._configure += ["--munge-socket", f"{self.folder}/munge.socket"]

    def configure(self, *words: str) -> str:
        said = super().configure(*words)
        conf = self.folder / "podwright" / "hook.conf"
        # The first of the addresses is nobody's.
        conf.write_text("server tcp:10.77.0.99:8091\n" + conf.read_text())
        return said

    def where(self, argv: Sequence[str]) -> list[str]:
        self._place(POD)  # the other release, if there is one, is there since that host's boot
        return self.hosts.place(POD).wrap(argv)

    def power_off(self, name: str) -> None:
        """The host's power goes, with all that ran there."""
        self.hosts.kill(name)
        for one in ("server", "service") if name == POD else ():
            self._processes.pop(one).wait()
        daemon: subprocess.Popen[bytes] = self._daemons.pop(name)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()

    def power_on(self, name: str) -> None:
        self.hosts.revive(name)
        if name == POD:
            self.start_server()
            self.start_service()
            self.wait_for_service()
        self.start_daemon(name)
        self.run("scontrol", "update", f"nodename={name}", "state=resume")
        self.wait_for_nodes()


@pytest.fixture(scope="module")
def lab(release: Release) -> Iterator[FarLab]:
    conf = {"SlurmdTimeout": "5"}
    with (
        HostsLab(["ctl", "n1", "n2", POD]) as hosts,
        FarLab(hosts, cpus=16, conf=conf, release=release) as made,
    ):
        yield made
        made.wait_free()


def test_a_job_begins_and_ends_over_tcp(lab: FarLab) -> None:
    done = lab.run("srun", "--ipus=4", "-wn1", "sh", "-c", "echo $IPUOF_VIPU_API_PARTITION_ID")
    assert done.stdout.startswith("slurm_"), done.stderr
    lab.wait_free()
    log = lab.log()
    assert "no server answered" not in log


def test_the_servers_host_is_down_when_a_job_ends(lab: FarLab) -> None:
    job = lab.batch("sleep 600", "--ipus=16", "-wn1", "-o", "/dev/null")
    poll("its partition", lambda: lab.partitions().get(f"slurm_{job}"))
    lab.power_off(POD)
    lab.ok("scancel", str(job))
    lab.wait_state(job, "COMPLETING")
    whole = lab.batch("true", "--ipus=64", "-wn2", "-o", "/dev/null")
    poll("Slurm looked at it", lambda: lab.job(whole).reason in ("Licenses", "Resources"))
    lab.power_on(POD)
    assert lab.wait_over(job, seconds=90)[job].state == "CANCELLED"
    assert lab.wait_over(whole, seconds=90)[whole].state == "COMPLETED"
    assert lab.job(whole).fields["Restarts"] == "0"
    lab.wait_free()


def test_a_node_whose_power_goes_gives_its_devices_back(lab: FarLab) -> None:
    job = lab.batch("sleep 600", "--ipus=16", "-o", "/dev/null", "-n1", "--exclude=pod,n2")
    lost = lab.batch("sleep 600", "--ipus=16", "-o", "/dev/null", "-wn1", "--no-requeue")
    for one in (job, lost):
        lab.wait_state(one, "RUNNING")
    lab.power_off("n1")
    assert lab.wait_over(lost, seconds=120)[lost].state == "NODE_FAIL"
    poll("its restart", lambda: lab.job(job).fields["Restarts"] == "1", seconds=60)
    poll("the devices", lambda: lab.held() == 0)
    lab.power_on("n1")
    lab.wait_state(job, "RUNNING")
    assert lab.partitions()[f"slurm_{job}"].job.startswith(f"{job}/1, cluster lab")
    lab.ok("scancel", str(job))
    lab.wait_over(job)
    lab.wait_free()
