"""`podwright slurm retry` in real batch jobs, with faults that were planted."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator

import pytest

from podwright.hosts import expand
from tests.outer.gpu.ill import RESET, IllLab, wait_idle
from tests.outer.lab import Release, release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
PYTHON = shlex.quote(sys.executable)


class RetryLab(IllLab):
    """Four nodes. `retry` on them is ours, with Slurm's commands of this lab's release."""

    def __init__(self, release: Release) -> None:
        super().__init__(release, nodes=4, act="warn")

    def _write_podwright(self) -> None:
        super()._write_podwright()
        here = f"nsenter -t {os.getpid()} -m -r --"
        standin = f'export PODWRIGHT_STANDIN_NVML="{self.folder}/gpus/$SLURMD_NODENAME.toml"'
        self.write("bin/on-node", f'#!/bin/sh\n{standin}\nexec {here} "$@"\n')
        for name in ("squeue", "srun"):
            there = ["env", "-C", f"{self.folder}/out", f"/usr/bin/{name}"]
            line = shlex.join([*self.prefix(), *there])
            # What a step runs is this machine's, whichever Debian slurmd lives in.
            on_node = (
                f'for word; do shift; [ "$word" != sh ] || set -- "$@" {self.folder}/bin/on-node; '
            )
            on_node += 'set -- "$@" "$word"; done\n'
            self.write(
                f"bin/{name}", f'#!/bin/sh\n{on_node if name == "srun" else ""}exec {line} "$@"\n'
            )
        own = shlex.join([sys.executable, "-m", "podwright.cli.podwright", "slurm", "retry"])
        self.write(
            "bin/retry",
            f'#!/bin/sh\n{standin}\nexport PATH="{self.folder}/bin:$PATH"\n'
            f'exec {here} {own} "$@"\n',
        )

    def job_that_runs(self, command: str, *options: str) -> int:
        script = f"echo $SLURMD_NODENAME >> {self.folder}/out/starts-$SLURM_JOB_ID\n"
        script += f"exec {self.folder}/bin/retry --max 2 -- sh -c {shlex.quote(command)}"
        return self.submit(script, "-N1", "--gpus-per-node=1", *options)

    def requeued(self, job: int, restarts: int = 1) -> None:
        self.wait(
            "its requeue",
            lambda jobs: jobs[job].fields["Restarts"] == str(restarts),
            seconds=120,
        )
        self.start_again(job)

    def starts(self, job: int) -> list[str]:
        return (self.folder / f"out/starts-{job}").read_text().split()

    def attempts(self, job: int) -> list[dict[str, object]]:
        path = self.folder / f"out/slurm-{job}.retry.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module", params=[pytest.param("oldest", marks=pytest.mark.soak), "newest"])
def lab(request: pytest.FixtureRequest) -> Iterator[RetryLab]:
    with RetryLab(release(request.param)) as started:
        yield started


@pytest.fixture(autouse=True)
def well(lab: RetryLab) -> Iterator[None]:
    yield
    lab.all_gpus()
    wait_idle(lab)


def test_a_job_leaves_the_node_whose_gpu_asks_for_a_reset(lab: RetryLab) -> None:
    lab.gpu("n1", RESET)
    job = lab.job_that_runs('[ "$SLURMD_NODENAME" != n1 ]', "--requeue")
    lab.requeued(job)
    done = lab.wait_over(job, seconds=180)[job]
    assert (done.state, done.fields["ExcNodeList"]) == ("COMPLETED", "n1")
    assert lab.starts(job) == ["n1", "n2"]
    (attempt,) = lab.attempts(job)
    assert (attempt["cause"], attempt["bad_nodes"]) == ("hardware", ["n1"])
    assert (
        attempt["because"] == "n1: GPU 1 needs a reset: the driver asks for it now, after an error"
    )


def test_two_sick_nodes_are_left_one_after_the_other(lab: RetryLab) -> None:
    lab.gpu("n1", RESET)
    lab.gpu("n2", RESET)
    job = lab.job_that_runs('[ "$SLURMD_NODENAME" = n3 ]', "--requeue")
    lab.requeued(job)
    lab.requeued(job, 2)
    done = lab.wait_over(job, seconds=180)[job]
    assert done.state == "COMPLETED"
    assert expand(done.fields["ExcNodeList"]) == ("n1", "n2")
    assert lab.starts(job) == ["n1", "n2", "n3"]


def test_the_verdict_of_roots_health_check_is_evidence(lab: RetryLab) -> None:
    """A user may not read the kernel's log, and finds what root's check found there."""
    go = lab.folder / "out/go"
    command = (
        f'[ "$SLURMD_NODENAME" != n1 ] || {{ while ! [ -e {go} ]; do sleep 0.1; done; exit 5; }}'
    )
    job = lab.job_that_runs(command, "--requeue")
    lab.wait_state(job, "RUNNING")
    found = "reason=podwright: GPU 1 has fallen off the bus"
    lab.ok("scontrol", "update", "nodename=n1", "state=drain", found)
    go.touch()
    lab.requeued(job)
    assert lab.wait_over(job, seconds=180)[job].state == "COMPLETED"
    (attempt,) = lab.attempts(job)
    assert (attempt["cause"], attempt["bad_nodes"]) == ("hardware", ["n1"])
    assert attempt["source"] == "podwright node health, as root"
    lab.ok("scontrol", "update", "nodename=n1", "state=resume")


def test_a_full_disk_blames_nobody_and_another_node_is_tried(lab: RetryLab) -> None:
    full = '[ "$SLURMD_NODENAME" != n1 ] || exec cat /etc/passwd > /dev/full'
    job = lab.job_that_runs(full, "--requeue")
    lab.requeued(job)
    assert lab.wait_over(job, seconds=180)[job].state == "COMPLETED"
    (attempt,) = lab.attempts(job)
    assert (attempt["cause"], attempt["bad_nodes"]) == ("not known", [])
    assert lab.starts(job) == ["n1", "n2"]


def test_a_killed_retry_starts_nothing_again(lab: RetryLab) -> None:
    lab.gpu("n1", RESET)
    job = lab.job_that_runs("kill -KILL $PPID; exit 3", "--requeue")
    done = lab.wait_over(job, seconds=180)[job]
    assert (done.state, done.fields["Restarts"]) == ("FAILED", "0")


def test_an_error_in_the_program_is_not_tried_again(lab: RetryLab) -> None:
    job = lab.job_that_runs(f"exec {PYTHON} -c undefined", "--requeue")
    done = lab.wait_over(job, seconds=180)[job]
    assert (done.state, done.fields["Restarts"], done.fields["ExitCode"]) == ("FAILED", "0", "1:0")
    assert [attempt["cause"] for attempt in lab.attempts(job)] == ["program"]


def test_where_the_cause_is_not_known_other_nodes_are_tried_until_the_limit(lab: RetryLab) -> None:
    job = lab.job_that_runs("kill -KILL $$", "--requeue")
    lab.requeued(job)
    lab.requeued(job, 2)
    done = lab.wait_over(job, seconds=180)[job]
    assert (done.state, done.fields["Restarts"]) == ("FAILED", "2")
    assert done.fields["ExitCode"] == "137:0"
    assert len(set(lab.starts(job))) == 3
    assert [attempt["cause"] for attempt in lab.attempts(job)] == ["not known"] * 3
    assert not any(attempt["bad_nodes"] for attempt in lab.attempts(job))


def test_where_requeue_is_forbidden_the_job_ends_with_the_commands_code(lab: RetryLab) -> None:
    lab.gpu("n1", RESET)
    job = lab.job_that_runs("exit 3", "--no-requeue")
    done = lab.wait_over(job, seconds=180)[job]
    assert (done.state, done.fields["ExitCode"]) == ("FAILED", "3:0")
    said = (lab.folder / f"out/slurm-{job}.out").read_text()
    assert "the job is not started again: submit it with --requeue" in said


def test_a_job_that_its_user_cancels_stays_ended(lab: RetryLab) -> None:
    lab.gpu("n1", RESET)
    job = lab.job_that_runs("sleep 600", "--requeue")
    lab.wait_state(job, "RUNNING")
    lab.wait("its start", lambda jobs: (lab.folder / f"out/starts-{job}").exists())
    lab.ok("scancel", str(job))
    done = lab.wait_over(job, seconds=180)[job]
    assert (done.state, done.fields["Restarts"]) == ("CANCELLED", "0")


def test_a_task_of_an_array_requeues_itself_alone(lab: RetryLab) -> None:
    lab.gpu("n1", RESET)
    command = '[ "$SLURM_ARRAY_TASK_ID" = 0 ] || [ "$SLURMD_NODENAME" != n1 ]'
    first = lab.job_that_runs(command, "--requeue", "--array=0-1", "--exclusive")
    lab.wait("one requeue", lambda jobs: any(j.fields["Restarts"] != "0" for j in jobs.values()) or
             all(j.over for n, j in jobs.items() if n >= first), seconds=120)  # fmt: skip
    jobs = {n: j for n, j in lab.jobs().items() if j.fields.get("ArrayJobId") == str(first)}
    for number, job in jobs.items():
        if job.fields["Restarts"] != "0":
            assert job.fields["ArrayTaskId"] == "1"
            lab.start_again(number)
    for number in jobs:
        assert lab.wait_over(number, seconds=180)[number].state == "COMPLETED"
