"""Whatever becomes of slurmctld or of a job in between: each finds exactly its devices, or does not
start. Jobs wait, start, run and end while slurmctld is reconfigured, restarted and killed.
"""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.outer.lab import ALICE, BOB, poll, written_at
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

_names = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(release: Path | None) -> Iterator[NativeLab]:
    with NativeLab(nodes=4, cpus=16, release=release) as made:
        yield made


@pytest.fixture
def lab(cluster: NativeLab) -> Iterator[NativeLab]:
    yield cluster
    left = [str(job.id) for job in cluster.jobs().values() if not job.over]
    if left:
        cluster.run("scancel", *left)
    cluster.wait("an empty cluster", lambda jobs: all(job.over for job in jobs.values()))
    cluster.wait_free()
    figures = cluster.state()["figures"]
    assert (figures["unproven"], figures["held"], figures["bare"]) == (0, 0, 0)


class Gate:
    """A file for which jobs wait once they have begun."""

    def __init__(self, lab: NativeLab) -> None:
        self.path = lab.folder / "out" / f"go-{next(_names)}"
        self._begun = self.path.with_suffix(".begun")

    @property
    def script(self) -> str:
        show = "echo $IPUOF_VIPU_API_PARTITION_ID"
        begun = f"{show}\necho begun >>{self._begun}"
        until = f"until test -e {self.path}; do sleep 0.1; done"
        # What srun says of a node that slurmctld has not heard again is none of the job's.
        return f"{begun}\n{until}\nsrun -Q -N1 -n1 sh -c '{show}'"

    def reached(self, times: int) -> None:
        """So many starts have come here: slurmctld calls a job running before its batch step has
        proven anything, and a step whose job was requeued by then is rightly ended."""
        poll("starts at the gate", lambda: self._starts() == times)

    def _starts(self) -> int:
        return self._begun.read_text().count("begun") if self._begun.exists() else 0

    def open(self) -> None:
        self.path.touch()


def whole(lab: NativeLab) -> int:
    """A job that holds all devices."""
    job = lab.batch("echo begun; sleep 600", "--ipus=64")
    poll("all devices held", lambda: lab.held() == 64)
    lab.wait_state(job, "RUNNING")
    poll("its first line", lambda: lab.output(job))
    return job


def reconfigured(lab: NativeLab) -> None:
    if lab.release.version == (25, 5):
        # There slurmctld itself dies of it, without us as well: a state that is saved for the first
        # time with an array in it, while its accounting is already gone.
        saved(lab)
    lab.ok("scontrol", "reconfigure")
    up(lab)


def restarted(lab: NativeLab) -> None:
    """Ended on purpose, it saves what it knows."""
    lab.kill_daemon("slurmctld", signal.SIGTERM)
    lab.start_daemon("slurmctld")
    up(lab)


def killed(lab: NativeLab) -> None:
    saved(lab)
    lab.kill_daemon("slurmctld")
    lab.start_daemon("slurmctld")
    up(lab)


def up(lab: NativeLab) -> None:
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)
    poll("its nodes", lambda: "unk" not in lab.run("sinfo", "-h", "-N", "-o", "%T").stdout)


def saved(lab: NativeLab) -> None:
    """What slurmctld knows of its jobs by now is on disk."""
    path = lab.folder / "state" / "job_state"
    before = written_at(path)
    marker = max(lab.jobs())
    lab.ok("scontrol", "update", f"jobid={marker}", f"comment=saved-{next(_names)}")
    poll("saved", lambda: written_at(path) > before)


def holds(lab: NativeLab, job: int, size: int, *, restart: int = 0) -> None:
    """The running job has a partition of exactly its size, for this start."""
    lab.wait_state(job, "RUNNING")
    found = lab.partitions()[f"slurm_{job}"]
    assert found.size == size
    again = f"/{restart}" if restart else ""
    assert found.job.startswith((f"{job}{again},", f"{job}{again} of "))


def done(lab: NativeLab, job: int) -> None:
    assert lab.wait_over(job)[job].state == "COMPLETED"
    assert lab.output(job).split() == [f"slurm_{job}"] * 2


@pytest.mark.parametrize("what", [reconfigured, restarted, killed])
def test_jobs_that_wait_run_and_end(lab: NativeLab, what: Callable[[NativeLab], None]) -> None:
    first = whole(lab)
    gate = Gate(lab)
    held = lab.batch(gate.script, "--ipus=2", "--hold")
    waiting = [(lab.batch(gate.script, f"--ipus={n}", f"-n{t}"), n) for n, t in ((4, 1), (16, 2))]
    tasks = lab.batch(gate.script, "--ipus=4", "--array=1-2")
    what(lab)
    lab.ok("scancel", str(first))
    lab.ok("scontrol", "release", str(held))
    for job, size in [*waiting, (held, 2)]:
        holds(lab, job, size)
    members = [job.id for job in lab.jobs().values() if job.fields.get("ArrayJobId") == str(tasks)]
    lab.wait("both tasks", lambda jobs: sum(
        job.state == "RUNNING" and job.fields.get("ArrayJobId") == str(tasks)
        for job in jobs.values()) == 2)  # fmt: skip
    members = [job.id for job in lab.jobs().values() if job.fields.get("ArrayJobId") == str(tasks)]
    assert {lab.partitions()[f"slurm_{job}"].size for job in members} == {4}
    gate.reached(5)
    what(lab)  # with all of them running
    for job, size in [*waiting, (held, 2)]:
        holds(lab, job, size)
    gate.open()
    for job, _ in waiting:
        done(lab, job)
    done(lab, held)
    lab.wait_over(*members)


@pytest.mark.parametrize("what", [reconfigured, killed])
def test_requeued_jobs_get_partitions_of_their_next_start(
    lab: NativeLab, what: Callable[[NativeLab], None]
) -> None:
    gate = Gate(lab)
    job = lab.batch(gate.script, "--ipus=8")
    holds(lab, job, 8)
    gate.reached(1)
    lab.ok("scontrol", "requeuehold", str(job))
    lab.wait_state(job, "PENDING")
    poll("its first end", lambda: lab.holds(job) is None)
    what(lab)
    lab.start_again(job)
    holds(lab, job, 8, restart=1)
    gate.reached(2)
    lab.ok("scontrol", "suspend", str(job))
    lab.wait_state(job, "SUSPENDED")
    what(lab)
    assert lab.partitions()[f"slurm_{job}"].size == 8
    lab.ok("scontrol", "resume", str(job))
    gate.open()
    assert lab.wait_over(job)[job].state == "COMPLETED"


@pytest.mark.parametrize("what", [reconfigured, killed])
def test_unequal_parts_keep_their_sizes(lab: NativeLab, what: Callable[[NativeLab], None]) -> None:
    first = whole(lab)
    gate = Gate(lab)
    sizes = (32, 16, 16)
    words = [word for n in sizes for word in ("-n1", "-N1", f"--ipus={n}", ":")]
    leader = lab.batch(gate.script, *words[:-1])
    text = "waits for 32 devices"
    poll("the sweep's words", lambda: text in shown(lab, leader), seconds=60)
    lab.end("service", signal.SIGKILL)  # at any moment of a sweep
    what(lab)
    lab.start_service()
    lab.wait_for_service()
    lab.ok("scancel", str(first))
    for part, size in enumerate(sizes):
        holds(lab, leader + part, size)
    gate.open()
    jobs = lab.wait_over(*(leader + part for part in range(3)))
    assert {jobs[leader + part].state for part in range(3)} == {"COMPLETED"}
    assert lab.output(leader).split() == [f"slurm_{leader}"] * 2


def shown(lab: NativeLab, job: int) -> str:
    return lab.ok("squeue", "-h", "-j", str(job), "-O", "admin_comment:200")


@pytest.mark.parametrize("user", [ALICE, BOB])
def test_nobody_changes_what_a_job_was_counted_with(lab: NativeLab, user: str) -> None:
    gate = Gate(lab)
    waits = lab.batch(gate.script, "--ipus=4", "--hold")
    plain = lab.submit("true", "--hold", user=user)
    runs = lab.batch(gate.script, "--ipus=4")
    holds(lab, runs, 4)
    tried = [
        (waits, "licenses=ipu:8;ipu_x1:8;podwright_job:1"),
        (waits, "licenses="),
        (waits, "numtasks=4"),
        (runs, "licenses="),
        (runs, "licenses=ipu;ipu_x1:64"),
        (plain, "licenses=ipu;ipu_x1:64"),
        (plain, "licenses=podwright_job"),
    ]
    before = {job: lab.job(job).fields["Licenses"] for job in (waits, plain, runs)}
    for job, change in tried:
        said = lab.run("scontrol", "update", f"jobid={job}", change, user=user)
        assert said.returncode != 0, (job, change)
    assert {job: lab.job(job).fields["Licenses"] for job in (waits, plain, runs)} == before
    lab.ok("scontrol", "release", str(waits))
    holds(lab, waits, 4)
    gate.open()
    for job in (waits, runs):
        done(lab, job)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-L", "ipu;ipu_x1:64"], "licence ipu is not asked for by name"),
        (["-L", "ipu;podwright_job:1"], "licence ipu is not asked for by name"),
        (["-L", "podwright_job:1"], "licence podwright_job is not asked for by name"),
        (["--ipus=4", "-L", "ipu:64"], "licence ipu is not asked for by name"),
        (["--ipus=4", "-L", "a|b"], "Slurm takes no licence list with | beside other licences"),
    ],
)
def test_forged_requests_are_refused_with_words(
    lab: NativeLab, options: list[str], words: str
) -> None:
    for command in (["sbatch", *options, "--wrap=true"], ["srun", *options, "true"]):
        said = lab.run(*command, user=ALICE)
        assert said.returncode != 0
        assert words in said.stderr


def test_a_number_given_out_again_meets_no_old_lease(lab: NativeLab) -> None:
    gate = Gate(lab)
    old = lab.batch(gate.script, "--ipus=4")
    holds(lab, old, 4)
    before = lab.partitions()[f"slurm_{old}"]
    conf = lab.folder / "slurm.conf"
    conf.write_text(f"{conf.read_text()}FirstJobId={old}\n")
    lab.kill_daemon("slurmctld")
    # It has lost its state: all of it, or the script that is left there makes it pass the number.
    for entry in (lab.folder / "state").iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    lab.start_daemon("slurmctld", clean=True)
    up(lab)
    new = lab.batch(gate.script, "--ipus=4")
    assert new == old
    # A node that still runs the old one refuses the new one: then it fails, and holds nothing.
    lab.wait_state(new, "RUNNING", "COMPLETED", "FAILED")
    now = lab.partitions().get(f"slurm_{new}")
    assert now is None or now.created_at > before.created_at
    gate.open()
    lab.wait_over(new)
