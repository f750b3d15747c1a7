"""A site that has all kinds of scripts, accounts and two pods: all of it goes on working."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.outer.lab import ALICE, BOB, poll
from tests.outer.slurm.site import SiteLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
SHOW = "echo $IPUOF_VIPU_API_PARTITION_ID $PBS_JOBID"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SiteLab]:
    with SiteLab(nodes=2, cpus=16) as made:
        yield made


@pytest.fixture
def lab(cluster: SiteLab) -> Iterator[SiteLab]:
    yield cluster
    left = [str(job.id) for job in cluster.jobs().values() if not job.over]
    if left:
        cluster.run("scancel", *left)
    cluster.wait_free()


def accounted(lab: SiteLab, job: int) -> dict[str, str]:
    """What the accounts say that a job had."""

    def said() -> str:
        return lab.ok("sacct", "-n", "-X", "-P", "-j", str(job), "-o", "AllocTRES").strip()

    return dict(word.split("=") for word in poll("its accounts", said).split(","))


def test_all_scripts_of_the_site_run_beside_ours(lab: SiteLab) -> None:
    script = f"#!/bin/sh\n#BB_lua\nsrun sh -c '{SHOW}'\n"
    job = lab.batch(script, "--ipus=8", "-n1", "-L", "matlab:1")
    assert lab.wait_over(job)[job].state == "COMPLETED"
    assert lab.output(job).split() == [f"slurm_{job}", str(job)]
    fields = lab.job(job).fields
    assert fields["Comment"] == "seen by the site"
    assert {"matlab:1", "ipu:8"} <= set(fields["Licenses"].split(","))
    names = ("prolog", "epilog", "setup", "pre_run", "job_teardown")
    poll("the site's scripts", lambda: all(lab.seen(name, job) for name in names))
    plain = lab.batch("true", "-o", "/dev/null")
    assert lab.wait_over(plain)[plain].state == "COMPLETED"
    assert lab.seen("prolog", plain)
    done = lab.run("sbatch", "-J", "forbidden", "--ipus=4", "--wrap=true", user=ALICE)
    assert done.returncode != 0
    assert "the site forbids this name" in done.stderr


@pytest.mark.soak
def test_a_job_cancelled_while_it_stages_in_holds_nothing(lab: SiteLab) -> None:
    slow = lab.folder / "seen" / "slow"
    slow.touch()
    try:
        job = lab.batch("#!/bin/sh\n#BB_lua\ntrue\n", "--ipus=8", "-n1")
        poll("its staging", lambda: lab.seen("setup", job))
        assert lab.job(job).state == "PENDING"
        assert lab.held() == 0
        lab.ok("scancel", str(job))
        assert lab.wait_over(job)[job].state == "CANCELLED"
    finally:
        slow.unlink()
    assert lab.held() == 0


def test_several_kinds_of_pod_stand_side_by_side(lab: SiteLab) -> None:
    jobs = {
        kind: lab.batch("sleep 60", "--ipus=16", f"--gres=vipu:{kind}", "-o", "/dev/null")
        for kind in ("pod64", "pod16")
    }
    lab.wait_state(jobs["pod64"], "RUNNING")
    lab.wait_state(jobs["pod16"], "RUNNING")
    at = lab.partitions()
    assert at[f"slurm_{jobs['pod64']}"].cluster == "podA"
    assert at[f"slurm_{jobs['pod16']}"].cluster == "podB"
    waits = lab.batch("true", "--ipus=4", "--gres=vipu:pod16", "-o", "/dev/null")
    passes = lab.batch("true", "--ipus=4", "-o", "/dev/null")
    assert lab.wait_over(passes)[passes].state == "COMPLETED"
    poll("Slurm's reason", lambda: lab.job(waits).reason == "Licenses")
    lab.ok("scancel", str(jobs["pod16"]))
    assert lab.wait_over(waits)[waits].state == "COMPLETED"
    assert accounted(lab, waits)["license/pod16"] == "4"
    done = lab.run("sbatch", "--ipus=32", "--gres=vipu:pod16", "--wrap=true", user=ALICE)
    assert "pod16 has 16" in done.stderr


def test_accounts_and_limits_are_in_devices(lab: SiteLab) -> None:
    lab.account("modify", "user", ALICE, "set", "grptres=license/ipu=16")
    try:
        first = lab.batch("sleep 60", "--ipus=16", "-o", "/dev/null")
        lab.wait_state(first, "RUNNING")
        second = lab.batch("true", "--ipus=4", "-o", "/dev/null")
        poll("the limit", lambda: lab.job(second).reason.startswith("AssocGrp"))
        other = lab.batch("true", "--ipus=16", "-o", "/dev/null", user=BOB)
        assert lab.wait_over(other)[other].state == "COMPLETED"
        assert lab.job(second).state == "PENDING"
        lab.ok("scancel", str(first))
        assert lab.wait_over(second)[second].state == "COMPLETED"
        assert accounted(lab, first)["license/ipu"] == "16"
        assert accounted(lab, second)["license/ipu"] == "4"
        assert not any("_x" in name for name in accounted(lab, second))
    finally:
        lab.account("modify", "user", ALICE, "set", "grptres=license/ipu=-1")


def test_what_slurm_schedules_is_closed_to_others(lab: SiteLab) -> None:
    job = lab.batch("sleep 60", "--ipus=8", "-o", "/dev/null")
    poll("its partition", lambda: lab.partitions().get(f"slurm_{job}"))
    for user in (ALICE, BOB):
        mine = ["create", "partition", "mine", "--size", "4"]
        done = lab.command("vipu", *mine, "--allocation", "jobs", user=user)
        assert done.returncode != 0
        assert "sched" in done.stderr
    done = lab.command("vipu", "remove", "partition", f"slurm_{job}", "--force", user=BOB)
    assert f"it belongs to {ALICE}" in done.stderr
    assert set(lab.partitions()) == {f"slurm_{job}"}


def test_taken_back_the_site_is_as_it_was(lab: SiteLab) -> None:
    """The last one: Slurm goes on without us."""
    lab.configure("--undo")
    assert lab.before_us() == lab.original
    lab.kill_daemon("slurmctld")
    lab.start_daemon("slurmctld")
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)
    job = lab.batch("true", "-o", "/dev/null")
    assert lab.wait_over(job)[job].state == "COMPLETED"
    assert lab.seen("epilog", job)
    assert lab.job(job).fields["Comment"] == "seen by the site"
    done = lab.run("sbatch", "--ipus=4", "--wrap=true", user=ALICE)
    assert done.returncode != 0
