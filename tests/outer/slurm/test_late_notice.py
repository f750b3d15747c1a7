"""While the service or the server is away or stopped, a job whose prolog waits says so: in its
AdminComment, and on its srun's stderr. Once the answer has come, its comment is as it would be. An
epilog that waits says so in slurmctld's log.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.outer.lab import ALICE, Release, poll
from tests.outer.slurm.native import NativeLab
from tests.outer.slurm.ways import WayLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
NOTICE = "waits in its prolog: its devices are not ready after 2 s"


def made_lab(mode: str, release: Release) -> NativeLab:
    if mode == "native":
        return NativeLab(nodes=2, cpus=16, release=release)
    return WayLab(mode, made={"s4-1": 4, "s4-2": 4}, nodes=2, cpus=16, release=release)


@pytest.fixture(scope="module", params=["native", "static"])
def lab(request: pytest.FixtureRequest, release: Release) -> Iterator[NativeLab]:
    with made_lab(request.param, release) as slurm_lab:
        conf = slurm_lab.folder / "podwright" / "hook.conf"
        # Hooks run inside the other release, where scontrol has its usual place.
        text = re.sub(r"(?m)^scontrol .*", "scontrol /usr/bin/scontrol", conf.read_text())
        conf.write_text(f"{text}late-seconds 2\n")
        yield slurm_lab


def submit(lab: NativeLab) -> str:
    return "--gres=vipu:4" if isinstance(lab, WayLab) else "--ipus=4"


def comment(lab: NativeLab, job: int) -> str:
    return lab.job(job).fields.get("AdminComment", "")


def waiting_srun(lab: NativeLab) -> tuple[subprocess.Popen[str], int]:
    """An srun whose job is CONFIGURING, and says that it waits."""
    srun = lab.popen(
        "srun", submit(lab), "sh", "-c", "echo $IPUOF_VIPU_API_PARTITION_ID", user=ALICE
    )

    def late() -> int:
        jobs = (job for job in lab.jobs().values() if job.state == "CONFIGURING")
        return next((job.id for job in jobs if NOTICE in comment(lab, job.id)), 0)

    return srun, poll("a job that says that it waits", late)


@pytest.mark.parametrize("process", ["service", "server"])
def test_a_stopped_process_is_told_of_and_the_job_goes_on_with_it(
    lab: NativeLab, process: str
) -> None:
    lab.send(process, signal.SIGSTOP)
    try:
        srun, job = waiting_srun(lab)
    finally:
        lab.send(process, signal.SIGCONT)
    out, err = srun.communicate(timeout=300)
    assert srun.returncode == 0, err
    assert out.startswith(("slurm_", "s4-"))
    assert f"podwright: job {job} {NOTICE}" in err
    assert err.count(NOTICE) == 1
    assert NOTICE not in comment(lab, job)
    # Steps of static partitions read there what the job was given.
    assert ("podwright:" in comment(lab, job)) is isinstance(lab, WayLab)
    lab.wait_over(job)


def test_a_batch_job_says_it_in_its_comment_while_the_service_is_away(lab: NativeLab) -> None:
    lab.end("service")
    try:
        job = lab.batch("true", submit(lab), "-o", "/dev/null")
        poll("its comment", lambda: NOTICE in comment(lab, job))
        assert "It waits 58 s more; then a batch job goes back to the queue" in comment(lab, job)
    finally:
        lab.start_service()
    assert lab.wait_over(job)[job].state == "COMPLETED"
    assert NOTICE not in comment(lab, job)


@pytest.mark.parametrize("process", ["service", "server"])
def test_an_epilog_that_waits_says_so_in_slurmctlds_log(lab: NativeLab, process: str) -> None:
    job = lab.batch("sleep 600", submit(lab), "-o", "/dev/null")
    poll("its start", lambda: lab.job(job).state == "RUNNING")
    words = f"job {job} has ended and waits in its epilog: its devices are not given back after 2 s"
    lab.send(process, signal.SIGSTOP)
    try:
        lab.ok("scancel", str(job))
        poll("its epilog's line", lambda: words in lab.log())
        assert lab.job(job).state == "COMPLETING"
    finally:
        lab.send(process, signal.SIGCONT)
    lab.wait_free()
    assert lab.log().count(words) == 1
