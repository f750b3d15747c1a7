"""`podwright slurm retry` in real batch jobs, with a hundred faults that were planted.

The bar: no innocent node is blamed or left out, no error of a program is tried twice, no job is
lost or doubled, and of a hundred faults at least 85 get a name; the others are not known.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from podwright.gpu.retry import JobAttempt, read_history
from podwright.hosts import expand
from tests.outer.gpu.ill import IllLab, wait_idle
from tests.outer.gpu.planted import FAULTS, HARDWARE, PROGRAM, RESET, UNKNOWN, Fault
from tests.outer.lab import Job, Release, poll, release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


class RetryLab(IllLab):
    """Four nodes. `retry` on them is ours, with Slurm's commands of this lab's release."""

    def __init__(self, release: Release) -> None:
        conf = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
        if release.version >= (25, 11):
            conf["SlurmctldParameters"] = "enable_expedited_requeue"
        lines = [f"PartitionName={name} Nodes=ALL State=UP {more}" for name, more in (
            ("main", "Default=YES PriorityTier=1"), ("urgent", "PriorityTier=9"))]  # fmt: skip
        super().__init__(release, nodes=4, act="warn", conf=conf, lines=lines)
        self.cut: str | None = None

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

    def job_that_runs(self, command: str, *options: str, limit: int = 2) -> int:
        script = f"echo $SLURMD_NODENAME >> {self.folder}/out/starts-$SLURM_JOB_ID\n"
        command = f": > {self.folder}/out/up-$SLURM_JOB_ID; {command}"
        script += f"exec {self.folder}/bin/retry --max {limit} -- sh -c {shlex.quote(command)}"
        return self.submit(script, "--gpus-per-node=1", *options)

    def follow(self, job: int, *, wait: bool = False) -> Job:
        """The job at its end. wait: leave each new start to Slurm."""
        for seen in itertools.count():
            jobs = self.wait(
                "its end or another start",
                functools.partial(_has_moved_on, job, seen),
                seconds=500,
            )
            if jobs[job].over:
                break
            if not wait:
                self.start_again(job)
        return jobs[job]

    def disturb(self, job: int, how: str) -> None:
        """What happens while a job runs, and then the sign for it to go on."""
        if not how:
            return
        self.wait_state(job, "RUNNING", seconds=300)
        poll("its command", (self.folder / f"out/up-{job}").exists, seconds=300)
        what, _, more = how.partition(" ")
        node, _, reason = more.partition(" ")
        if what == "cancel":
            self.ok("scancel", str(job))
        elif what == "preempt":
            urgent = self.submit("exit 0", "-N4", "--exclusive", "--partition=urgent")
            self.wait_over(urgent, seconds=300)
        elif what == "cut":
            self.kill_daemon(node)
            self.cut = node
        elif what == "drain":
            words = [f"nodename={node}", "state=drain", f"reason={reason}"]
            self.ok("scontrol", "update", *words)
        (self.folder / f"out/go-{job}").touch()

    def starts(self, job: int) -> list[str]:
        return (self.folder / f"out/starts-{job}").read_text().split()

    def attempts(self, job: int) -> list[JobAttempt]:
        path = self.folder / f"out/slurm-{job}.retry.jsonl"
        return read_history(path) if path.exists() else []


@pytest.fixture(scope="module", params=[pytest.param("oldest", marks=pytest.mark.soak), "newest"])
def lab(request: pytest.FixtureRequest) -> Iterator[RetryLab]:
    with RetryLab(release(request.param)) as started:
        yield started


@pytest.fixture(autouse=True)
def well(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "lab" not in request.fixturenames:
        return
    lab: RetryLab = request.getfixturevalue("lab")
    lab.all_gpus()
    if lab.cut:
        lab.start_daemon(lab.cut)
        lab.cut = None
        # 22.05 does not take back all GPUs of a job that was requeued without one of its nodes.
        lab.kill_daemon("slurmctld", signal.SIGTERM)
        lab.start_daemon("slurmctld")
        poll("slurmctld", lambda: lab.run("sinfo").returncode == 0, seconds=300)
    for line in lab.ok("sinfo", "-h", "-N", "-o", "%N %T").splitlines():
        name, state = line.split()
        if state.startswith(("drain", "down")):
            lab.run("scontrol", "update", f"nodename={name}", "state=resume")
    wait_idle(lab)


def test_a_hundred_faults_are_planted_and_85_have_a_name() -> None:
    named = [bool(fault.causes) and UNKNOWN not in fault.causes for fault in FAULTS]
    older = [has for fault, has in zip(FAULTS, named, strict=True) if not fault.newest_only]
    both = [*named, *older]
    assert len(both) >= 100
    assert sum(both) / len(both) >= 0.85


@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, id=str(f), marks=() if f.quick else pytest.mark.soak) for f in FAULTS],
)
def test_a_planted_fault_is_named_and_no_innocent_is_blamed(lab: RetryLab, fault: Fault) -> None:
    if fault.newest_only and lab.release.version < (25, 11):
        pytest.skip("this release has no expedited requeue")
    for node, gpu_fault in fault.sick.items():
        lab.gpu(node, gpu_fault)
    options = [f"-N{fault.nodes}", *fault.options]
    job = lab.job_that_runs(fault.command, *options, limit=fault.limit)
    lab.disturb(job, fault.while_running)
    done = lab.follow(job, wait="--requeue=expedite" in fault.options)
    attempts = lab.attempts(job)
    assert [attempt.cause for attempt in attempts] == list(fault.causes)
    blamed = {node for attempt in attempts for node in attempt.bad_nodes}
    assert blamed == set(fault.bad)
    assert done.state == fault.state
    restarts = fault.restarts
    if restarts is None:
        ends_there = fault.state == "FAILED"
        restarts = len(fault.causes) - ends_there
    assert int(done.fields["Restarts"]) == restarts
    assert len(lab.starts(job)) == restarts + 1  # neither lost nor doubled
    excluded = done.fields["ExcNodeList"]
    left_out = set(expand(excluded)) if excluded != "(null)" else set()
    if UNKNOWN in fault.causes:
        tried = {node for attempt in attempts for node in attempt.without}
        assert left_out == tried
    elif HARDWARE in fault.causes and restarts:
        assert left_out <= blamed
        assert left_out == {n for a in attempts[:restarts] for n in a.bad_nodes}
    else:
        assert left_out == set()
    for number, attempt in enumerate(attempts[1:], 1):
        bad_before = {n for a in attempts[:number] for n in a.bad_nodes}
        assert not bad_before & set(attempt.nodes)
    assert [attempt.cause for attempt in attempts].count(PROGRAM) <= 1


def test_an_expedited_job_starts_again_at_once(lab: RetryLab) -> None:
    """Others wait for as long as credentials live."""
    if lab.release.version < (25, 11):
        pytest.skip("this release has no expedited requeue")
    lab.gpu("n1", RESET)
    job = lab.job_that_runs('[ "$SLURMD_NODENAME" != n1 ]', "-N1", "--requeue=expedite")
    done = lab.follow(job, wait=True)
    assert (done.state, lab.starts(job)) == ("COMPLETED", ["n1", "n2"])
    assert done.fields["EligibleTime"] <= done.fields["SubmitTime"]


@pytest.mark.parametrize(
    "sick", [("n1",), pytest.param(("n1", "n2"), marks=pytest.mark.soak)], ids=["one", "two"]
)
def test_a_task_of_an_array_requeues_itself_alone(lab: RetryLab, sick: tuple[str, ...]) -> None:
    for node in sick:
        lab.gpu(node, RESET)
    command = f'case " {" ".join(sick)} " in *" $SLURMD_NODENAME "*) exit 1;; esac'
    first = lab.job_that_runs(command, "-N1", "--requeue", "--array=0-1", "--exclusive")
    lab.wait("both tasks", lambda jobs: len(_tasks(jobs, first)) == 2, seconds=300)
    for number in _tasks(lab.jobs(), first):
        assert lab.follow(number).state == "COMPLETED"
    tasks = _tasks(lab.jobs(), first)
    for number, job in tasks.items():
        *failed, last = lab.starts(number)
        assert set(failed) <= set(sick)
        assert last not in sick
        assert job.fields["Restarts"] == str(len(failed))
    assert {lab.starts(number)[0] for number in tasks} == {"n1", "n2"}


def _has_moved_on(job: int, restarts: int, jobs: Mapping[int, Job]) -> bool:
    return jobs[job].over or int(jobs[job].fields["Restarts"]) > restarts


def _tasks(jobs: Mapping[int, Job], first: int) -> dict[int, Job]:
    """The tasks of an array that have begun."""
    mine = {n: job for n, job in jobs.items() if job.fields.get("ArrayJobId") == str(first)}
    return {n: job for n, job in mine.items() if job.fields["ArrayTaskId"].isdigit()}


def test_a_node_at_fault_that_comes_again_runs_nothing(lab: RetryLab) -> None:
    """As where somebody takes the list of excluded nodes away."""
    lab.gpu("n1", RESET)
    job = lab.job_that_runs('[ "$SLURMD_NODENAME" != n1 ] || exit 3', "-N1", "--requeue")
    lab.wait("its requeue", lambda jobs: jobs[job].fields["Restarts"] == "1", seconds=300)
    lab.ok("scontrol", "update", f"jobid={job}", "ExcNodeList=")
    lab.start_again(job)
    done = lab.wait(
        "its second requeue", lambda jobs: jobs[job].over or jobs[job].fields["Restarts"] == "2"
    )
    assert not done[job].over
    lab.start_again(job)
    assert lab.wait_over(job, seconds=300)[job].state == "COMPLETED"
    assert [attempt.code for attempt in lab.attempts(job)] == [3, None]
    assert lab.starts(job) == ["n1", "n1", "n2"]


def test_the_page_leads_from_a_failing_script_to_a_finished_job(lab: RetryLab) -> None:
    """With a torchrun that fails beside a sick GPU, and as many nodes as the lab has."""
    page = (Path(__file__).parents[3] / "docs/slurm/recovery.md").read_text()
    script, history = re.findall(r"```bash\n(.*?)```", page, re.S)[:2]
    lab.write("typed/podwright", f'#!/bin/sh\nshift 2\nexec {lab.folder}/bin/retry "$@"\n')
    lab.write("typed/torchrun", '#!/bin/sh\n[ "$SLURMD_NODENAME" != n2 ]\n')
    lab.gpu("n2", RESET)
    script = script.replace("--nodes=4 --gpus-per-node=8", "--nodes=2 --gpus-per-node=1")
    job = lab.submit(script, f"--export=ALL,PATH={lab.folder}/typed:/usr/bin:/bin")
    assert lab.follow(job).state == "COMPLETED"
    said = (lab.folder / f"out/slurm-{job}.out").read_text()
    sentences = re.findall(r"`(Cause: [^`]*|the job starts again [^`]*)`", page)
    for sentence in sentences:
        assert sentence.replace("n17", "n2").replace("GPU 3", "GPU 1") in said
    for line in history.splitlines():
        words = shlex.split(line.replace("4711", str(job)), comments=True)[1:]
        done = subprocess.run(
            [sys.executable, "-m", "podwright.cli.podwright", *words, f"--folder={lab.folder}/out"],
            capture_output=True,
            check=True,
            text=True,
        )
        assert "n2: GPU 1 needs a reset" in done.stdout
    assert len(sentences) == 2
