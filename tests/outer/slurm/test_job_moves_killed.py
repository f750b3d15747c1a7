"""`podwright slurm serve` is killed, or stands still, in each step of a move: it is finished or
undone, no device is given twice, and none is left over.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outer.lab import poll
from tests.outer.slurm.native import NativeLab
from tests.outer.slurm.test_job_moves import Twice, places, program

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
soak = pytest.mark.soak

#: What has been when the service goes.
STEPS = ("planned", "asked", "ended", "moved", "the next one started")
#: Killed and back at once; gone until the launch goes on elsewhere; the same, but stopped.
HOW = ("killed", "gone", "stopped")
IN_CI = ("ended", "gone")


class Scattered:
    """Two launches that may move keep a job from starting, for which half of the pod is free."""

    def __init__(self, lab: NativeLab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        script = program(lab, folder, "--movable", "--move-seconds=900", "--num-replicas=16")
        jobs = [lab.submit(script, "--ipus=16", "--ipus-movable", "-t600") for _ in range(4)]
        poll("their first words", lambda: all(self.starts(job) == 1 for job in jobs), seconds=90)
        self.before = places(lab)
        jobs.sort(key=lambda job: min(self.before[job]))
        lab.ok("scancel", str(jobs[0]), str(jobs[2]))
        self.movers = jobs[1::2]
        self._said = len(lab.service_log())
        self.big = lab.submit("true", "--ipus=32")

    def starts(self, job: int) -> int:
        """How often its program began."""
        path = self.folder / f"ups.{job}"
        return path.read_text().count("\n") if path.exists() else 0

    def goes_on(self) -> bool:
        """One of them has moved, and begun again."""
        return any(self.starts(job) == 2 for job in self.movers)

    def let_end(self) -> None:
        """Who is asked to move may."""
        (self.folder / "may-end").touch()

    @contextlib.contextmanager
    def at(self, step: str) -> Iterator[None]:
        """From when this has been; of `ended` the server does not hear before it is over."""
        try:
            self._reach(step)
            yield
        finally:
            self.lab.send("server", signal.SIGCONT)

    def _reach(self, step: str) -> None:
        if step == "planned":
            said = self._said
            poll("a plan", lambda: "room is made" in self.lab.service_log()[said:], seconds=60)
            return
        poll("who is asked", (self.folder / "asked").exists, seconds=60)
        if step == "ended":
            self.lab.send("server", signal.SIGSTOP)
        if step != "asked":
            self.let_end()
        if step == "ended":
            poll("its end", (self.folder / "ended").exists, seconds=60)
        if step == "moved":
            poll("its other devices", self._moved, seconds=60)
        if step == "the next one started":
            poll("its devices", self._started, seconds=60)

    def _moved(self) -> bool:
        now = places(self.lab)
        return any(now[job] != self.before[job] for job in self.movers)

    def _started(self) -> bool:
        return self.big in places(self.lab) or self.lab.job(self.big).over


def go(lab: NativeLab, how: str) -> None:
    """The service is gone, or stands still."""
    if how == "stopped":
        lab.send("service", signal.SIGSTOP)
    else:
        lab.end("service")


def come_back(lab: NativeLab, how: str) -> None:
    """It serves again."""
    if how == "stopped":
        lab.send("service", signal.SIGCONT)
    else:
        lab.start_service()
    lab.wait_for_service()


@pytest.mark.parametrize(
    ("step", "how"),
    [
        pytest.param(step, how, marks=[] if (step, how) == IN_CI else [soak])
        for step in STEPS
        for how in HOW
    ],
)
def test_the_service_goes_in_any_step_of_a_move(
    lab: NativeLab, tmp_path: Path, step: str, how: str
) -> None:
    jobs = Scattered(lab, tmp_path)
    with Twice(lab) as twice:
        with jobs.at(step):
            go(lab, how)
        if how != "killed" and step != "planned":
            jobs.let_end()
            poll("who goes on", jobs.goes_on, seconds=60)
        come_back(lab, how)
        jobs.let_end()
        ended = lab.wait_over(jobs.big, seconds=120)
        assert {lab.job(job).state for job in jobs.movers} == {"RUNNING"}
        (tmp_path / "may-finish").touch()
        ended |= lab.wait_over(*jobs.movers)
        whole = lab.submit("true", "--ipus=64")
        ended |= lab.wait_over(whole)
        lab.wait_free()
    mine = [ended[job] for job in (jobs.big, whole, *jobs.movers)]
    assert {(job.state, job.fields["ExitCode"]) for job in mine} == {("COMPLETED", "0:0")}
    assert {job.fields["Restarts"] for job in mine} == {"0"}
    assert jobs.goes_on()
    assert not twice.found
    figures = lab.state()["figures"]
    assert (figures["unproven"], figures["held"], figures["bare"]) == (0, 0, 0)
