"""What jobs leave behind on real Slurm, by the way of tracking processes, and what the Epilog of
`configure --gpus --clean` does about it.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outer.gpu.ill import IllLab, wait_idle
from tests.outer.lab import ALICE, Release, poll, release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
#: How a program gets away from its job. It writes its pid beside FILE.
ESCAPES = {
    "child": "sh {program} {file} &",
    "session": "setsid sh {program} {file} &",
    "orphan": "( ( sh {program} {file} & ) & )",
    "daemon": "( ( setsid sh {program} {file} </dev/null >/dev/null 2>&1 & ) & )",
}
PROGRAM = """#!/bin/sh
trap '' TERM HUP
echo $$ > $1.new && mv $1.new $1
exec sleep 1000
"""


class LeftLab(IllLab):
    """Two nodes with the Epilog. Its jobs have numbers that no other lab's have."""

    def __init__(self, release: Release, tracking: str, clean: str = "end") -> None:
        self.clean = clean
        self.made: list[int] = []
        super().__init__(release, nodes=2)
        first = random.SystemRandom().randrange(1_000_000, 60_000_000, 1000)
        self.settings |= {"FirstJobId": str(first), "ProctrackType": f"proctrack/{tracking}"}
        if tracking == "cgroup":
            self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        text = (self.folder / "slurm.conf").read_text()
        text = text.replace(
            "ProctrackType=proctrack/linuxproc", f"ProctrackType=proctrack/{tracking}"
        )
        (self.folder / "slurm.conf").write_text(f"{text}FirstJobId={first}\n")
        self.write("program", PROGRAM)

    def _write_podwright(self) -> None:
        super()._write_podwright()
        line = shlex.join([*self.prefix(), "/usr/bin/squeue"])
        self.write("bin/squeue", f'#!/bin/sh\nexec {line} "$@"\n')

    def _configure(self, act: str) -> None:
        super()._configure(act)
        self.configure("--gpus", f"{self.folder}/inventory.json", f"--clean={self.clean}")

    def job_that_leaves(self, *escapes: str) -> tuple[int, list[int]]:
        """A job of n1 that has left processes on GPU 1 and ended: its number, and their pids."""
        out = self.folder / "out"
        (out / "go").unlink(missing_ok=True)
        files = [out / f"pid{len(self.made)}-{escape}" for escape in escapes]
        started = "\n".join(
            ESCAPES[escape].format(program=self.folder / "program", file=file)
            for escape, file in zip(escapes, files, strict=True)
        )
        script = f"{started}\nwhile ! [ -e {out}/go ]; do sleep 0.1; done\n"
        job = self.submit(script, "-wn1", "--gpus-per-node=1", user=ALICE)
        poll("the pids", lambda: all(file.exists() for file in files), seconds=120)
        pids = [int(file.read_text()) for file in files]
        self.made += pids
        held = ", ".join(f"{{ pid = {pid}, memory = 512 }}" for pid in pids)
        self.gpu("n1", f"processes = [{held}]")
        (out / "go").touch()
        self.wait_over(job, seconds=300)
        return job, pids

    def stop(self) -> None:
        for pid in self.made:
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
        super().stop()


def lives(pid: int) -> bool:
    """Whether the program that a job left still runs, and is no other process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return words.startswith(b"sleep\x001000") and state not in "ZX"


@pytest.fixture(scope="module", params=["oldest", "newest"])
def lab(request: pytest.FixtureRequest) -> Iterator[LeftLab]:
    with LeftLab(release(request.param), "linuxproc") as started:
        yield started


@pytest.fixture(autouse=True)
def idle(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "lab" in request.fixturenames:
        started = request.getfixturevalue("lab")
        started.gpu("n1")
        for name in started.drained():
            started.ok("scontrol", "update", f"nodename={name}", "state=resume")
        wait_idle(started)


def test_the_epilog_ends_what_a_job_left(lab: LeftLab) -> None:
    _, pids = lab.job_that_leaves(*ESCAPES)
    poll("their end", lambda: not any(map(lives, pids)), seconds=120)
    wait_idle(lab)
    assert lab.drained() == {}


def test_what_is_no_proof_drains_the_node_until_it_is_gone(lab: LeftLab) -> None:
    """Alice has another job on the node, and only the environment names the ended one."""
    other = lab.submit("sleep 600", "-wn1", "--gpus-per-node=1", user=ALICE)
    lab.wait_state(other, "RUNNING")
    job, (pid,) = lab.job_that_leaves("daemon")
    poll("the drained node", lambda: "n1" in lab.drained(), seconds=120)
    reason = lab.drained()["n1"]
    assert reason == f"podwright: held: GPU 1 by sleep {pid} of {ALICE}, job {job}"
    assert lives(pid)
    lab.ok("scancel", str(other))
    lab.wait_over(other)
    lab.check("n1")
    assert (lives(pid), lab.drained()) == (False, {})


@pytest.mark.parametrize("name", ["oldest", "newest"])
@pytest.mark.parametrize("tracking", ["linuxproc", "cgroup"])
def test_what_slurm_leaves_by_itself(name: str, tracking: str) -> None:
    """The table of docs/slurm/gpu-health.md."""
    with LeftLab(release(name), tracking, clean="warn") as lab:
        _, pids = lab.job_that_leaves(*ESCAPES)
        wait_idle(lab)
        left = {escape: lives(pid) for escape, pid in zip(ESCAPES, pids, strict=True)}
        assert left == dict.fromkeys(ESCAPES, tracking == "linuxproc")
        assert lab.drained() == {}
