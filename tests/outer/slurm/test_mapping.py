"""Host mapping: a job gets the machines of its hosts, and failures say so where people look."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from podwright.wire import PartitionSpec
from tests.outer.lab import ALICE, Release, poll
from tests.outer.slurm.test_endings import quick_hooks
from tests.outer.slurm.ways import MappingLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

VIPU = f"{sys.executable} -m podwright.cli.vipu"


@pytest.fixture(scope="module")
def lab(release: Release) -> Iterator[MappingLab]:
    with MappingLab(nodes=4, cpus=16, release=release) as made:
        yield made


# A job that runs this machine's programs: there is no Python in the others.
@pytest.mark.parametrize("release", ["oldest"], indirect=True)
def test_a_job_makes_its_partitions_in_the_machines_of_its_hosts(lab: MappingLab) -> None:
    script = (
        f"{VIPU} create partition p$SLURM_JOB_ID --size 32\nsrun -N2 printenv PODWRIGHT_ALLOCATION"
    )
    job = lab.submit(f"{script}\nsleep 600\n", "-N2")
    name = f"p{job}"
    made = poll("its partition", lambda: lab.partitions().get(name))
    assert (made.allocation, made.size) == (f"c{job}", 32)
    machines = lab.allocations()[f"c{job}"]
    assert len(machines) == 8
    mine = ["create", "partition", "mine", "--size", "4", "--allocation", f"c{job}"]
    for words in (mine, ["reset", "partition", name], ["remove", "partition", name, "--force"]):
        done = lab.command("vipu", *words, user=ALICE)
        assert done.returncode != 0
        assert "root" in done.stderr
    poll("its tasks", lambda: lab.output(job).count(f"c{job}\n") == 2)
    other = lab.batch("true", "-N1")
    lab.wait_over(other)
    lab.ok("scancel", str(job))
    lab.wait_over(job)
    lab.wait_free()


def test_a_job_has_its_hosts_for_itself(lab: MappingLab) -> None:
    first = lab.batch("sleep 600", "-w", "n1", "-n1")
    lab.wait_state(first, "RUNNING")
    second = lab.batch("true", "-w", "n1", "-n1")
    told = lab.explained(second, "Resources", ALICE)
    assert f"n1: job {first} has its machines" in told
    lab.ok("scancel", str(first))
    assert lab.wait_over(second)[second].state == "COMPLETED"


@pytest.mark.parametrize("options", [["-N3"], ["-w", "n1,n2,n4"], ["-N2-3"]])
def test_hosts_whose_machines_make_no_allocation_are_refused(
    lab: MappingLab, options: list[str]
) -> None:
    done = lab.run("sbatch", *options, "--wrap=true", user=ALICE)
    assert done.returncode != 0
    assert "3 hosts have 48 devices, and an allocation has 4, 8, 16, 32, 64" in done.stderr


@pytest.mark.soak
def test_the_third_failure_holds_the_job_with_the_reason(lab: MappingLab) -> None:
    with lab.client() as client:
        client.create_partition(PartitionSpec(name="stranger", size=4))
    job = lab.batch("true", "-N1")
    poll("held", lambda: lab.job(job).reason == "JobHeldAdmin", seconds=90, every=0.3)
    said = lab.job(job).fields["AdminComment"]
    assert said.startswith("try 3 of 3 failed: create allocation")
    assert "stranger of cluster pod64 lie outside any allocation" in said
    assert lab.job(job).fields["Restarts"] == "3"
    with lab.client() as client:
        client.remove_partition("stranger")
    lab.ok("scontrol", "release", str(job))
    assert lab.wait_over(job)[job].state == "COMPLETED"
    lab.wait_free()


def test_a_step_finds_its_allocation_though_its_comment_is_overwritten(lab: MappingLab) -> None:
    """By the service's word; while that is away, nothing runs in it unsaid."""
    folder = lab.folder / "out"
    show = "srun -N1 -n1 printenv PODWRIGHT_ALLOCATION"
    body = "".join(
        f"echo {word}\nuntil test -e {folder}/{word}-$SLURM_JOB_ID; do sleep 0.1; done\n{show}\n"
        for word in ("overwritten", "away")
    )
    job = lab.batch(body, "-N1")
    poll("its script", lambda: "overwritten" in lab.output(job))
    lab.ok("scontrol", "update", f"jobid={job}", "admincomment=overwritten")
    (folder / f"overwritten-{job}").touch()
    poll("its step", lambda: f"c{job}\naway\n" in lab.output(job))
    lab.end("service")
    (folder / f"away-{job}").touch()
    poll("its refusal", lambda: "does not begin here" in lab.output(job))
    lab.start_service()
    lab.wait_for_service()
    lab.wait_over(job)
    assert lab.output(job).count(f"c{job}\n") == 1
    lab.wait_free()


def reason(lab: MappingLab) -> str:
    return lab.ok("sinfo", "-h", "-n", "n1", "-o", "%T %E").strip()


def test_a_failing_epilog_takes_the_host_out_with_the_reason(lab: MappingLab) -> None:
    bad = lab.write("bad-epilog", "#!/bin/sh\nexit 3\n")
    conf = lab.folder / "podwright" / "hook.conf"
    conf.write_text(conf.read_text() + f"before-epilog-slurmctld {bad}\n")
    job = lab.batch("true", "-w", "n1")
    lab.wait_over(job)
    poll(
        "its reason", lambda: f"podwright: job {job}: the site's {bad} ended with 3" in reason(lab)
    )
    quick_hooks(lab)
    assert reason(lab).startswith("drain")
    lab.wait_free()  # the machines came back all the same; the host is the site's to mend
    lab.ok("scontrol", "update", "nodename=n1", "state=resume")


def test_a_host_comes_back_with_its_machines(lab: MappingLab) -> None:
    conf = lab.folder / "podwright" / "hook.conf"
    before = conf.read_text()
    conf.write_text(before.replace("epilog-seconds 600", "epilog-seconds 1"))
    job = lab.batch("sleep 600", "-w", "n1")
    poll("its machines", lambda: lab.holds(job))
    lab.wait_state(job, "RUNNING")  # its hook has heard so
    lab.end("service")
    lab.ok("scancel", str(job))
    poll("its reason", lambda: f"podwright: job {job}: no server answered" in reason(lab))
    conf.write_text(before)
    lab.start_service()
    lab.wait_free()
    poll("the host", lambda: reason(lab).startswith("idle"))


def test_check_proves_the_set_up(lab: MappingLab) -> None:
    done = lab.podwright("slurm", "check", *lab.site_option(), "--wait", "500")
    assert done.returncode == 0, done.stdout
    assert {line[:3] for line in done.stdout.splitlines()} == {"yes"}
