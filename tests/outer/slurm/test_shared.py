"""One reconfigurable partition for all: each job holds a part of it, and the rest waits."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.outer.lab import ALICE, BOB, Release, poll
from tests.outer.slurm.ways import SharedLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

SHOW = "echo $IPUOF_VIPU_API_PARTITION_ID lease $PODWRIGHT_LEASE gcd $IPUOF_VIPU_API_GCD_ID"


@pytest.fixture(scope="module")
def lab(release: Release) -> Iterator[SharedLab]:
    with SharedLab(nodes=2, cpus=16, release=release) as made:
        yield made


def test_jobs_hold_parts_of_one_partition_that_do_not_overlap(lab: SharedLab) -> None:
    jobs = [lab.batch("sleep 600", "--ipus=16", user=user) for user in (ALICE, BOB, ALICE)]
    for job in jobs:
        lab.wait_state(job, "RUNNING")
    leases = lab.leases()
    assert {(one.partition, one.owner, len(one.devices)) for one in leases} == {
        ("all", ALICE, 16),
        ("all", BOB, 16),
    }
    assert len(set(lab.taken())) == 48
    waits = lab.batch(SHOW, "--ipus=32")
    told = lab.explained(waits, "Licenses", BOB)
    assert "16 are free, at most 16 of them together" in told
    assert "--ipus=16 would start now" in told
    lab.ok("scancel", *map(str, jobs))
    assert lab.wait_over(waits)[waits].state == "COMPLETED"
    assert lab.output(waits).startswith("all lease l")
    lab.wait_free()


def test_parts_have_their_own_part_of_it_or_none(lab: SharedLab) -> None:
    parts = ["-n1", "-N1", "--ipus=4", ":", "-n1", "-N1", "--ipus=0"]
    job = lab.batch(f"srun --het-group=0,1 sh -c '{SHOW}'", *parts)
    assert lab.wait_over(job)[job].state == "COMPLETED"
    poll("its words", lambda: len(lab.output(job).splitlines()) == 2)
    first, none = sorted(lab.output(job).splitlines())
    assert (first.startswith("all lease l"), none) == (True, "lease gcd"), (first, none)
    lab.wait_free()


def test_what_a_job_submits_has_its_own_part_or_none(lab: SharedLab) -> None:
    """Slurm hands the job's environment on to it. A step has its job's, or nothing."""
    plain = lab.write("out/plain.sh", f"#!/bin/sh\n{SHOW}\nsrun --ipus=4 true || {SHOW}\n")
    submit = f"srun sbatch --parsable --ipus=0 {plain}\nsleep 600\n"
    job = lab.batch(submit, "--ipus=4")
    poll("its job", lambda: lab.output(job).strip().isdecimal())
    none = int(lab.output(job))
    assert lab.wait_over(none)[none].state == "COMPLETED"
    poll("its words", lambda: len(lab.output(none).splitlines()) == 3)
    first, refused, second = lab.output(none).splitlines()
    assert (first, second) == ("lease gcd", "lease gcd")
    assert "submit it with --ipus=4" in refused
    lab.ok("scancel", str(job))
    lab.wait_free()


# A job that runs this machine's programs: there is no Python in the others.
@pytest.mark.parametrize("release", ["oldest"], indirect=True)
def test_a_launch_uses_only_its_jobs_part_of_the_shared_partition(lab: SharedLab) -> None:
    poprun = f"{sys.executable} -m podwright.cli.poprun --num-replicas=4 --num-instances=1"
    script = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
    script += f"{poprun} sh -c 'echo runs; sleep 600'\n"
    job = lab.submit(script, "--ipus=8")
    poll("the program", lambda: "runs" in lab.output(job))
    with lab.client() as client:
        leases = {bool(one.parent): set(one.devices) for one in client.list_leases()}
    assert len(leases[True]) == 4
    assert leases[True] < leases[False]
    other = lab.command(
        "poprun",
        "--num-replicas=4",
        "--num-instances=1",
        "true",
        user=BOB,
        env={"SLURM_JOB_ID": "1"},
    )
    assert other.returncode != 0
    lab.ok("scancel", str(job))
    lab.wait_free()


def test_what_a_reconfigurable_partition_cannot_do_is_refused(lab: SharedLab) -> None:
    done = lab.run("sbatch", "-N2", "--ipus=4", "--wrap=true", user=ALICE)
    assert "a reconfigurable partition has one; use -N 1" in done.stderr
    done = lab.run("sbatch", "--ipus=128", "--wrap=true", user=ALICE)
    assert "shared has 64" in done.stderr


def test_a_job_that_names_no_devices_is_told_what_to_type(lab: SharedLab) -> None:
    for options in ([], ["-n2"]):
        done = lab.run("sbatch", *options, "--wrap=true", user=ALICE)
        assert done.returncode != 0
        assert "--ipus=N, up to 64, or --ipus=0 for none" in done.stderr
    done = lab.run("srun", "--ipus=0", "sh", "-c", SHOW, user=ALICE)
    assert done.stdout == "lease gcd\n", done.stderr
    submit = lab.folder / "job_submit.lua"
    asking = submit.read_text()
    lab.configure("--default-ipus", "8", "--write")
    # slurmctld reads a script that changed when it runs it next, and looks at seconds alone.
    poll("the site's default", lambda: lab.run("sbatch", "--wrap=true").returncode == 0, every=0.5)
    done = lab.run("srun", "sh", "-c", SHOW, user=ALICE)
    assert done.stdout.startswith("all lease l"), done.stderr
    assert asking != submit.read_text()
    lab.configure("--write")
    lab.wait_free()


def test_check_proves_the_set_up(lab: SharedLab) -> None:
    done = lab.podwright("slurm", "check", *lab.site_option(), "--wait", "500")
    assert done.returncode == 0, done.stdout
    assert {line[:3] for line in done.stdout.splitlines()} == {"yes"}
