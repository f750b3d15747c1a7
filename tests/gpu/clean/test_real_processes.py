"""Real processes that jobs left behind: what is ended, and what is left alone."""

from __future__ import annotations

import os
import random
import shlex
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from podwright.gpu.clean import _node_processes
from podwright.gpu.clean._clean_node import CleanReport, GpusSeen, clean
from podwright.gpu.clean._leftovers import Belongs, GpuState, Here
from podwright.gpu.clean._listed_jobs import _WIDTHS
from podwright.gpu.clean._node_processes import end, read_groups, read_process
from tests.outer.lab import poll

UID = os.getuid() or 65534
#: Slurm gives no job a number this high, and no other run of these tests has the same ones: what is
#: ended here is never a job of a Slurm on this machine.
FIRST = random.SystemRandom().randrange(100_000_000, 900_000_000, 10)
JOB, OTHER_JOB = FIRST, FIRST + 1
HERE = Here("n1", "blue")
ENDED, LIVING = (JOB, FIRST + 2, FIRST + 4), (OTHER_JOB, FIRST + 3)
#: How a process gets away from its parent. {}: the words that start it.
ESCAPES = {
    "child": "{} &",
    "session": "setsid {} &",
    "orphan": "( ( {} & ) & )",
    "daemon": "( setsid sh -c {quoted} & )",
    "namespaces": "unshare -U -i -u {} &",
}


class Processes:
    """Started by `start`, found by the file into which each writes its pid."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shells: list[subprocess.Popen[bytes]] = []
        self.pids: list[int] = []
        folder.chmod(0o777)
        for number in range(2):
            (folder / f"gpu{number}").touch()
        self.gpus = tuple(GpuState(k, (str(folder / f"gpu{k}"),)) for k in range(2))

    def start(self, environ: dict[str, str], escape: str = "child", trap: str = "") -> int:
        """The pid of a new process that holds GPU 0."""
        file = self.folder / f"pid{len(self.pids)}"
        script = f"{trap}\nexec 9<{self.folder}/gpu0; echo $$ >{file}.new; mv {file}.new {file}; "
        settings = shlex.join(f"{key}={value}" for key, value in environ.items())
        words = f"env {settings} sh -c {shlex.quote(script + 'exec sleep 1000')}"
        shell = ESCAPES[escape].format(words, quoted=shlex.quote(f"{words} & "))
        self.shells.append(
            subprocess.Popen(
                ["sh", "-c", f"{shell}\nwait"],
                env={"PATH": os.environ["PATH"]},
                user=UID if os.getuid() == 0 else None,
            )
        )
        poll("its pid", file.exists)
        pid = int(file.read_text())
        poll("sleep", lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
        self.pids.append(pid)
        return pid

    def clean(self, listing: str | None, *, end_leftovers: bool = False) -> CleanReport:
        return clean(
            HERE,
            lambda words: listing,
            lambda: GpusSeen(self.gpus),
            end_leftovers=end_leftovers,
        )

    def living(self) -> list[int]:
        return [pid for pid in self.pids if read_process(pid, HERE) is not None]

    def stop(self) -> None:
        for pid in self.pids:
            if (process := read_process(pid, HERE)) and process.command == "sleep":
                os.kill(pid, signal.SIGKILL)
        for shell in self.shells:
            shell.kill()
            shell.wait()


def of_job(job: int, **more: str) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(UID), "SLURMD_NODENAME": "n1", **more,
    }  # fmt: skip


def listing(*jobs: int, uid: int = 7777, state: str = "RUNNING") -> str:
    """What squeue prints of living jobs."""
    rows: list[Sequence[object]] = [(job, state, uid, "n[1-2]") for job in jobs]
    return "".join(
        "".join(str(v).ljust(w) for v, w in zip(row, _WIDTHS.values(), strict=True)) + "\n"
        for row in rows
    )


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    monkeypatch.setattr(_node_processes, "TERM_SECONDS", 0.5)
    # pytest closes the folders above its own to other users.
    with tempfile.TemporaryDirectory(prefix="podwright-clean-") as folder:
        started = Processes(Path(folder))
        yield started
        started.stop()


@pytest.mark.parametrize("escape", ESCAPES)
def test_an_orphan_of_an_ended_job_is_found_and_ended(processes: Processes, escape: str) -> None:
    pid = processes.start(of_job(JOB), escape)
    report = processes.clean(listing(OTHER_JOB))
    (verdict,) = report.left
    assert (verdict.process.pid, verdict.process.gpus, verdict.job) == (pid, (0,), JOB)
    assert report.reason.startswith(f"podwright: held: GPU 0 by sleep {pid} of ")
    assert report.reason.endswith(f", job {JOB}")
    report = processes.clean(listing(OTHER_JOB), end_leftovers=True)
    assert [process.pid for process in report.ended] == [pid]
    assert (report.reason, processes.living()) == ("", [])


@pytest.mark.parametrize("trap", ["trap '' TERM", "kill -STOP $$ &"])
def test_what_ignores_a_request_to_end_is_killed(processes: Processes, trap: str) -> None:
    if trap.startswith("kill"):
        pid = processes.start(of_job(JOB))
        os.kill(pid, signal.SIGSTOP)
    else:
        processes.start(of_job(JOB), trap=trap)
    assert processes.clean(listing(), end_leftovers=True).reason == ""
    assert processes.living() == []


def test_without_slurms_answer_nothing_is_ended(processes: Processes) -> None:
    processes.start(of_job(JOB))
    for answer in (None, "slurm_load_jobs error: Unable to contact slurm controller\n"):
        report = processes.clean(answer, end_leftovers=True)
        assert [verdict.belongs for verdict in report.processes] == [Belongs.NOT_KNOWN]
    assert len(processes.living()) == 1


def test_a_pid_that_was_given_to_another_process_is_left_alone(processes: Processes) -> None:
    pid = processes.start(of_job(JOB))
    seen = read_process(pid, HERE)
    assert seen is not None
    for changed in ({"start": seen.start - 1}, {"environ_job": OTHER_JOB}, {"uid": seen.uid + 1}):
        end([msgspec.structs.replace(seen, **changed)], HERE)
    assert processes.living() == [pid]


@pytest.mark.parametrize(
    ("groups", "jobs", "nodes"),
    [
        ("8:memory:/slurm/uid_7/job_12/step_0/task_0\n4:pids:/slurm/uid_7/job_12\n", (12,), []),
        ("4:freezer:/slurm_n2/uid_7/job_12/step_batch\n", (12,), ["n2"]),
        ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n", (12,), []),
        ("0::/system.slice/n2_slurmstepd.scope/job_12/step_extern/user\n", (12,), ["n2"]),
        ("0::/user.slice/user-7.slice/session-3.scope\n", (), []),
        ("0::/system.slice/job_12.service\n", (), []),
        ("0::/system.slice/slurmstepd.scope/system\n", (), []),
    ],
)
def test_the_cgroups_of_slurm_name_the_job(
    groups: str, jobs: tuple[int, ...], nodes: list[str]
) -> None:
    assert read_groups(groups) == (jobs, nodes)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_a_device_is_known_by_its_number_where_its_file_has_another_name(
    processes: Processes,
) -> None:
    """As in a container, whose /dev has files of its own."""
    own = processes.folder / "nvidia0"
    os.mknod(own, stat.S_IFCHR | 0o666, os.stat("/dev/full").st_rdev)
    processes.gpus = (GpuState(0), GpuState(1, (str(own),)))
    pid = processes.start(of_job(JOB), trap="exec 8</dev/full")
    (verdict,) = processes.clean(listing()).left
    assert (verdict.process.pid, verdict.process.gpus) == (pid, (1,))


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.soak)])
def test_among_many_only_those_of_ended_jobs_are_ended(processes: Processes, count: int) -> None:
    """The living jobs are another user's, as far as Slurm says, so environments are proof."""
    chance = random.Random(count)
    left: list[int] = []
    kept: list[int] = []
    for _ in range(count):
        escape, trap = chance.choice(list(ESCAPES)), chance.choice(["", "", "trap '' TERM"])
        job = chance.choice([*ENDED, *LIVING, None])
        environ = {} if job is None else of_job(job)
        if chance.random() < 0.2:
            name = chance.choice(["SLURMD_NODENAME", "SLURM_CLUSTER_NAME"])
            environ[name] = "other"
        pid = processes.start(environ, escape, trap)
        is_left = job in ENDED and "other" not in environ.values()
        (left if is_left else kept).append(pid)
    report = processes.clean(listing(*LIVING), end_leftovers=True)
    assert sorted(process.pid for process in report.ended) == sorted(left)
    assert processes.living() == kept
