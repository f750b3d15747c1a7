"""What many sites use of Slurm beside devices, on the newest Slurm: reservations, nodes for one job
alone, features, and nodes that are switched off while nobody needs them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.outer.lab import ALICE, BOB, poll, release
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
POWER = {
    "SuspendProgram": "@LAB@/suspend",
    "ResumeProgram": "@LAB@/resume",
    "SuspendTime": "86400",  # nodes are switched off by hand
    "SuspendTimeout": "2",
    "ResumeTimeout": "600",
}
SAYS = '#!/bin/sh\necho "$1" >> @LAB@/out/{name}\n'
SCRIPTS = {name: SAYS.format(name=name) for name in ("suspend", "resume")}


@pytest.fixture(scope="module")
def lab() -> Iterator[NativeLab]:
    with NativeLab(nodes=2, cpus=16, release=release("newest"), conf=POWER, files=SCRIPTS) as lab:
        yield lab


def holds(lab: NativeLab, job: int) -> bool:
    return f"slurm_{job}" in lab.partitions()


def test_a_job_in_a_reservation_has_devices_and_others_leave_its_nodes_alone(
    lab: NativeLab,
) -> None:
    words = ["reservationname=ours", "nodes=n1", f"users={ALICE}", "starttime=now"]
    lab.ok("scontrol", "create", "reservation", *words, "duration=60")
    inside = lab.batch("sleep 600", "--ipus=16", "--reservation=ours")
    lab.wait_state(inside, "RUNNING")
    assert holds(lab, inside)
    other = lab.batch("sleep 600", "--ipus=16", "-n16", user=BOB)
    lab.wait_state(other, "RUNNING")
    assert lab.job(other).fields["NodeList"] == "n2"
    assert holds(lab, other)
    lab.run("scancel", str(inside), str(other))
    lab.wait_over(inside, other)
    lab.ok("scontrol", "delete", "reservationname=ours")
    lab.wait_free()


def test_a_job_alone_on_its_nodes_has_only_the_devices_it_asked_for(lab: NativeLab) -> None:
    alone = lab.batch("sleep 600", "--ipus=16", "--exclusive", "-N2")
    lab.wait_state(alone, "RUNNING")
    assert lab.held() == 16
    waiting = lab.batch("true", "--ipus=16", "-o", "/dev/null")
    lab.wait("it is looked at", lambda jobs: jobs[waiting].reason == "Resources")
    assert not holds(lab, waiting)
    lab.run("scancel", str(alone))
    assert lab.wait_over(alone, waiting)[waiting].state == "COMPLETED"
    lab.wait_free()


def test_a_job_with_devices_runs_where_its_constraint_says(lab: NativeLab) -> None:
    feature = ("availablefeatures=fast", "activefeatures=fast")
    lab.ok("scontrol", "update", "nodename=n2", *feature)
    job = lab.batch("sleep 600", "--ipus=4", "-C", "fast")
    lab.wait_state(job, "RUNNING")
    assert lab.job(job).fields["NodeList"] == "n2"
    assert holds(lab, job)
    lab.run("scancel", str(job))
    lab.wait_over(job)
    lab.wait_free()


def test_a_job_has_its_devices_while_its_node_is_switched_on(lab: NativeLab) -> None:
    """Slurm gives a job nodes that are switched off, and then switches them on."""
    lab.ok("scontrol", "update", "nodename=n2", "state=power_down_force")
    poll("it is switched off", lambda: "n2" in said(lab, "suspend"))
    lab.kill_daemon("n2")
    poll("Slurm knows", lambda: "POWERED_DOWN" in node(lab) and "POWERING" not in node(lab))
    job = lab.batch("echo $IPUOF_VIPU_API_PARTITION_ID", "--ipus=16", "-w", "n2")
    poll("it is switched on", lambda: "n2" in said(lab, "resume"))
    poll("its devices", lambda: holds(lab, job))
    assert lab.job(job).state == "CONFIGURING"
    lab._spawn("n2", lab._place("n2"), ["slurmd", "-b", "-D", "-N", "n2"])
    assert lab.wait_over(job, seconds=120)[job].state == "COMPLETED"
    assert lab.output(job) == f"slurm_{job}\n"
    lab.wait_free()


def said(lab: NativeLab, name: str) -> str:
    path = lab.folder / "out" / name
    return path.read_text() if path.exists() else ""


def node(lab: NativeLab) -> str:
    return lab.ok("scontrol", "--oneliner", "show", "node", "n2")
