"""Static partitions: the right free one is handed over, and what cannot be is refused at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.outer.lab import ALICE, BOB, Release, poll
from tests.outer.slurm.ways import StaticLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

SHOW = "echo $IPUOF_VIPU_API_PARTITION_ID gcd $IPUOF_VIPU_API_GCD_ID"


@pytest.fixture(scope="module")
def lab(release: Release) -> Iterator[StaticLab]:
    with StaticLab(nodes=2, cpus=16, release=release) as made:
        yield made


def test_a_job_and_its_tasks_find_the_partition_that_was_handed_over(lab: StaticLab) -> None:
    gate = lab.folder / "out" / "looked-at"
    wait = f"until test -e {gate}; do sleep 0.1; done\n"
    job = lab.batch(f"#!/bin/sh\n#SBATCH --gres=vipu:4\n{SHOW}\nsrun sh -c '{SHOW}'\n{wait}")
    lease = poll("its lease", lambda: lab.leases()[:1])[0]
    assert lease.owner == ALICE
    assert lease.holder.startswith(f"Slurm job {job}, cluster lab, submitted ")
    gate.touch()
    assert lab.wait_over(job)[job].state == "COMPLETED"
    assert lab.output(job) == f"{lease.partition} gcd\n{lease.partition} gcd 0\n"
    assert lease.partition.startswith("s4-")
    lab.wait_free()


def test_gres_vipu_4_means_one_partition_of_four_with_and_without_a_count(lab: StaticLab) -> None:
    for gres in ("vipu:4", "vipu:4:1"):
        done = lab.run("srun", f"--gres={gres}", "sh", "-c", SHOW, user=ALICE)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("s4-")
        assert "," not in done.stdout
    show = f"{SHOW} of $PODWRIGHT_PARTITIONS"
    done = lab.run("srun", "-n2", "--gres=vipu:4:2", "sh", "-c", show, user=ALICE)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len({words[0] for words in lines}) == 2
    assert {words[-1] for words in lines} == {",".join(sorted(words[0] for words in lines))}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gres=vipu:1"], "asks for a partition of 1 devices, and there is none"),
        (["--gres=vipu:3"], "there are 2 of vipu:2, 4 of vipu:4. 3 partitions of one size are"),
        (["--gres=vipu:4:5"], "asks for 5 partitions of 4 devices"),
        (["-N2", "--gres=vipu:4:3"], "asks for 6 partitions of 4 devices, for 2 host(s)"),
        (["--gres=vipu"], "--gres=vipu is not understood: vipu:SIZE"),
        (["--gres=vipu:pod64"], "vipu:pod64 is not understood"),
        (["-L", "vipu_4"], "ask with --gres=vipu:SIZE"),
    ],
)
def test_what_nobody_has_is_refused_instead_of_waiting_for_ever(
    lab: StaticLab, options: list[str], said: str
) -> None:
    for command in (["sbatch", *options, "--wrap=true"], ["srun", *options, "true"]):
        done = lab.run(*command, user=ALICE)
        assert done.returncode != 0
        assert said in done.stderr


def test_a_job_that_waits_for_a_static_partition_is_told_who_has_it(lab: StaticLab) -> None:
    first = lab.batch("sleep 600", "--gres=vipu:2:2")
    lab.wait_state(first, "RUNNING")
    second = lab.batch(SHOW, "--gres=vipu:2", user=BOB)
    said = f"waits for 1 of the 2 partitions of 2 devices; 0 are free; s2-1: Slurm job {first}"
    poll("its sentence", lambda: said in lab.job(second).fields.get("AdminComment", ""), seconds=40)
    told = lab.explained(second, "Licenses", BOB)
    assert "PENDING, it waits for devices" in told
    assert f"s2-1: Slurm job {first} of {ALICE} has it" in told
    assert "--gres=vipu:4 would start now" in told
    lab.ok("scancel", str(first))
    assert lab.wait_over(second)[second].state == "COMPLETED"


#: Where this machine's programs are: there is no Python in the others.
def test_a_job_whose_licences_are_lost_begins_nothing(lab: StaticLab) -> None:
    """As after a requeue on 25.05 to 25.11.6: Slurm then passes it by the hooks."""
    job = lab.batch("touch began-$SLURM_JOB_ID", "--gres=vipu:4", "--hold", "-o", "/dev/null")
    lab.ok("scontrol", "update", f"jobid={job}", "licenses=")
    assert "vipu_4" not in lab.job(job).fields.get("Licenses", "")
    lab.ok("scontrol", "release", str(job))
    poll("it starts", lambda: lab.job(job).fields["Restarts"] != "0" or lab.job(job).over)
    lab.wait("it is held", lambda jobs: jobs[job].fields["Priority"] == "0"
             and jobs[job].state == "PENDING")  # fmt: skip
    said = lab.ok("squeue", "-h", "-j", str(job), "-O", "admin_comment:400")
    assert said.startswith(f"vipu=4; a step of job {job}: job {job} holds no partition")
    assert not (lab.folder / "out" / f"began-{job}").exists()
    lab.ok("scancel", str(job))


@pytest.mark.parametrize("release", ["oldest"], indirect=True)
def test_poprun_uses_it_and_nobody_else_can(lab: StaticLab) -> None:
    poprun = f"{sys.executable} -m podwright.cli.poprun --num-replicas=4 --num-instances=2"
    script = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
    script += f"{poprun} sh -c '{SHOW}'\nsleep 600\n"
    job = lab.submit(script, "--gres=vipu:4")
    poll("both instances", lambda: lab.output(job).count("gcd") == 2)
    name = lab.leases()[0].partition
    assert lab.output(job).count(f"{name} gcd") == 2
    for words in (["reset", "partition", name], ["remove", "partition", name, "--force"]):
        assert lab.command("vipu", *words, user=BOB).returncode != 0
    lab.ok("scancel", str(job))
    lab.wait_free()
    with lab.client() as client:
        assert client.get_partition(name).size == 4  # poprun leaves it as it is


def test_check_proves_the_set_up(lab: StaticLab) -> None:
    done = lab.podwright("slurm", "check", *lab.site_option(), "--wait", "500")
    assert done.returncode == 0, done.stdout
    assert {line[:3] for line in done.stdout.splitlines()} == {"yes"}
