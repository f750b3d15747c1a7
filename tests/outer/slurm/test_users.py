"""What a user does and finds, and what he is told where it cannot be."""

from __future__ import annotations

import os
import shlex
import sys

import pytest

from podwright.wire import EventList, EventsRequest, LeaseInfo, ReadyState
from tests.outer.lab import ALICE, BOB, poll
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

#: A job that runs Python finds it on this machine alone, whose Slurm is the oldest: the others are
#: minimal Debians. That a partition is ready before its job's first instruction `check` proves on
#: all of them; that poprun uses it is the same Python whatever the Slurm.
with_python = pytest.mark.parametrize("shared_lab", ["oldest"], indirect=True)
SHOW = "echo $IPUOF_VIPU_API_PARTITION_ID gcd $IPUOF_VIPU_API_GCD_ID"


def test_a_job_and_each_of_its_tasks_find_their_partition(lab: NativeLab) -> None:
    gate = lab.folder / "out" / "looked-at"
    script = f"#!/bin/sh\n#SBATCH --ipus=16 --ntasks=4\n#SBATCH --num-replicas 8\n{SHOW}\n"
    wait = f"until test -e {gate}; do sleep 0.1; done\n"
    job = lab.batch(f"{script}srun -l sh -c '{SHOW}'\n{wait}")
    partition = poll("its partition", lambda: lab.partitions().get(f"slurm_{job}"))
    assert (partition.size, partition.num_gcds, partition.num_replicas) == (16, 4, 8)
    assert (partition.owner, lab.holds(job)) == (ALICE, str(job))
    gate.touch()
    lab.wait_over(job)
    first, *tasks = lab.output(job).splitlines()
    assert first == f"slurm_{job} gcd"
    assert sorted(tasks) == [f"{k}: slurm_{job} gcd {k}" for k in range(4)]


@with_python
def test_the_partition_is_ready_before_the_first_instruction(lab: NativeLab) -> None:
    show = f"{sys.executable} -m podwright.cli.vipu get partition $IPUOF_VIPU_API_PARTITION_ID"
    done = lab.run("srun", "--ipus=4", "sh", "-c", f"PODWRIGHT_SOCKET={lab.server_socket} {show}")
    assert ReadyState.ACTIVE.value in done.stdout, done.stderr


def test_srun_and_salloc_take_the_same_options(lab: NativeLab) -> None:
    done = lab.run("srun", "--ipus=2", "sh", "-c", SHOW, user=ALICE)
    assert done.stdout.startswith("slurm_")
    assert done.stdout.endswith("gcd 0\n")
    done = lab.run("salloc", "--ipus=8", "-n2", "srun", "-l", "sh", "-c", SHOW, user=ALICE)
    assert [line[:9] for line in sorted(done.stdout.splitlines())] == ["0: slurm_", "1: slurm_"]


def test_the_kind_of_pod_may_be_named(lab: NativeLab) -> None:
    script = (
        f"#!/bin/sh\n#SBATCH --ipus=2 --ntasks=1\n#SBATCH --gres=vipu:pod64\nsrun sh -c '{SHOW}'"
    )
    job = lab.batch(script)
    lab.wait_over(job)
    assert lab.output(job) == f"slurm_{job} gcd 0\n"


def test_each_task_of_an_array_has_its_own(lab: NativeLab) -> None:
    lab.batch(f"{SHOW} >>array", "--ipus=4", "--array=1-20%8", "-o", "/dev/null")
    lab.wait("the array", lambda jobs: all(job.over for job in jobs.values()))
    names = (lab.folder / "out" / "array").read_text().splitlines()
    assert len(names) == len(set(names)) == 20


def test_two_heterogeneous_jobs_that_each_need_the_whole_pod_both_finish(lab: NativeLab) -> None:
    part = ["-N1", "-n1", "--ipus=32"]
    gate = lab.folder / "out" / "seen"
    wait = f"until test -e {gate}; do sleep 0.1; done"
    both = [lab.batch(wait, *part, ":", *part) for _ in range(2)]
    # Whichever Slurm starts first.
    names = {f"slurm_{job}" for job in both}
    poll("a component's partition", lambda: names & lab.partitions().keys())
    gate.touch()
    jobs = lab.wait_over(*both, *(job + 1 for job in both))
    assert {jobs[job + at].state for job in both for at in (0, 1)} == {"COMPLETED"}
    assert {int(jobs[job].fields["Restarts"]) for job in both} == {0}
    assert lab.state()["figures"]["waited"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ipus=3"], "use 2 or 4"),
        (["--ipus=128"], "pod64 has 64"),
        (["--ipus=4", "-n3"], "a number of tasks that divides 4"),
        (["--ipus=4", "-n8"], "8 GCDs of 4 devices"),
        (["--ipus=4", "-n2", "--num-replicas=3"], "3 replicas do not divide"),
        (["--ipus=4", "--gres=vipu:pod9"], "no pod of type 'pod9'; there are: pod64"),
        (["--gres=vipu:pod64"], "say how much with --ipus=N"),
        (["--gres=vipu:pod64", "--ipus=0"], "say how much with --ipus=N"),
        (["--num-replicas=2"], "--ipus=N, which is missing"),
        (["-L", "ipu:4"], "ask with --ipus=N"),
        (["-L", "ipu_x4:4"], "ask with --ipus=N"),
        (["--ipus=4", "-L", "podwright_gcds:4"], "ask with --ipus=N"),
    ],
)
def test_what_cannot_be_is_refused_at_submission_with_the_reason(
    lab: NativeLab, options: list[str], said: str
) -> None:
    done = lab.run("sbatch", *options, "--wrap=true", user=ALICE)
    assert done.returncode != 0
    assert said in done.stderr


def test_nobody_changes_a_waiting_jobs_licences(lab: NativeLab) -> None:
    job = lab.batch("true", "--ipus=64", "--hold")
    done = lab.run("scontrol", "update", f"jobid={job}", "licenses=ipu:1", user=ALICE)
    assert done.returncode != 0
    assert "ipu:64" in lab.job(job).fields["Licenses"]


def test_a_partition_belongs_to_its_jobs_user(lab: NativeLab) -> None:
    job = lab.batch("sleep 600", "--ipus=8")
    name = f"slurm_{job}"
    poll("its partition", lambda: lab.partitions().get(name))

    for words in (["reset", "partition", name], ["remove", "partition", name, "--force"]):
        done = lab.command("vipu", *words, user=BOB)
        assert done.returncode != 0
        assert f"it belongs to {ALICE}" in done.stderr
    done = lab.command("vipu", "remove", "partition", name, "--force", user=ALICE)
    assert f"it belongs to job {job} and goes when that ends" in done.stderr
    assert lab.command("vipu", "reset", "partition", name, user=ALICE).returncode == 0
    run = ["--num-replicas=8", "--num-instances=1", "true"]
    env = {"IPUOF_VIPU_API_PARTITION_ID": name}
    done = lab.command("poprun", *run, user=BOB, env=env)
    assert done.returncode != 0
    assert ALICE in done.stderr
    assert lab.partitions()[name].ready_state is ReadyState.ACTIVE


def test_a_waiting_job_says_what_it_waits_for(lab: NativeLab) -> None:
    first = lab.batch("sleep 600", "--ipus=16", "-t10")
    lab.wait_state(first, "RUNNING")
    second = lab.batch("true", "--ipus=64")
    said = "waits for 64 devices of pod64: 48 are free"
    poll(
        "its sentence",
        lambda: said in lab.ok("squeue", "-h", "-j", str(second), "-O", "admin_comment:120"),
        seconds=20,
    )
    poll("Slurm's own reason", lambda: lab.job(second).reason == "Licenses")
    site = ["--site", f"{lab.folder}/podwright/native.toml"]
    done = lab.command("vipu", "explain", "--job", str(second), *site, user=BOB)
    assert done.returncode == 75, done.stderr
    assert "it waits for 64 devices of pod64 that lie together; 48 are free" in done.stdout
    assert f" at the latest, when job {first} ends" in done.stdout
    done = lab.command("vipu", "explain", "--job", str(first), *site, user=BOB)
    assert f"partition slurm_{first} holds 16 devices" in done.stdout, done.stderr


@with_python
def test_poprun_in_a_job_uses_its_partition(lab: NativeLab) -> None:
    poprun = f"{sys.executable} -m podwright.cli.poprun --num-replicas=8 --num-instances=2"
    script = "export OMPI_ALLOW_RUN_AS_ROOT=1\n"
    script += "export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
    job = lab.submit(f"{script}{poprun} sh -c '{SHOW} of $POPDIST_NUM_TOTAL_REPLICAS'", "--ipus=8")
    assert lab.wait_over(job)[job].state == "COMPLETED", lab.output(job)
    lines = [line for line in lab.output(job).splitlines() if "gcd" in line]
    assert len(lines) == 2
    assert all(f"slurm_{job} gcd" in line and "of 8" in line for line in lines)


@pytest.mark.parametrize("shared_lab", ["newest"], indirect=True)
def test_a_launch_outlives_the_suspension_of_its_job(lab: NativeLab) -> None:
    """Stopped for longer than its lease lasts: the job decides, nothing is fenced.

    On the oldest, over several hosts: tests/outer/test_hosts_slurm.py.
    """
    # Root's, who finds this machine's Python from within the other release, where this machine's
    # srun is of no use: the instances are on the job's first host.
    program = "i=0; while :; do i=$((i + 1)); echo $i; sleep .2; done"
    words = f"--num-replicas=4 --num-instances=1 sh -c {shlex.quote(program)}"
    alone = "-u SLURM_JOBID -u SLURM_NODELIST -u SLURM_JOB_NODELIST"
    environ = f"{alone} PODWRIGHT_SOCKET={lab.server_socket} PODWRIGHT_FENCE_AFTER=15"
    poprun = f"env {environ} {sys.executable} -m podwright.cli.poprun {words}"
    job = lab.submit(f"exec chroot /proc/{os.getpid()}/root {poprun}", "--ipus=4")
    name = f"slurm_{job}"
    poll("its first words", lambda: "<stdout>: 3" in lab.output(job))

    lab.ok("scontrol", "suspend", str(job))
    lab.wait_state(job, "SUSPENDED")
    with lab.client() as client:

        def lease() -> LeaseInfo:
            return next(one for one in client.list_leases() if one.partition == name)

        poll("the end of its time", lambda: lease().expires_in <= 0)
        said = lab.output(job)
        assert lease().state == "HELD"
        assert lab.partitions()[name].ready_state is ReadyState.ACTIVE
        lab.ok("scontrol", "resume", str(job))
        poll("its next words", lambda: len(lab.output(job)) > len(said))
        poll("a renewal", lambda: lease().expires_in > 0)
        told = client.ask("ListEvents", EventsRequest(), EventList).events
        assert not [one for one in told if one.about == name and one.what == "Fencing"]
    lab.ok("scancel", str(job))
    lab.wait_over(job)
    assert "is over: nobody renewed it" not in lab.output(job)


def test_check_proves_the_set_up(lab: NativeLab) -> None:
    done = lab.podwright("slurm", "check", *lab.site_option(), "--wait", "500")
    assert done.returncode == 0, done.stdout
    assert {line[:3] for line in done.stdout.splitlines()} == {"yes"}
