"""Slurm's commands go wrong in ways that Slurm itself cannot be asked for: a stand-in around them
writes down what the service runs, and does what a test arms.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.outer.lab import Release, poll
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
STAND_IN = """\
#!/bin/sh
echo "$*" >>@LAB@/said
if [ -e "@LAB@/fault.$1" ]; then . "@LAB@/fault.$1"; fi
exec @PREFIX@ "$@"
"""


class FaultyLab(NativeLab):
    """The service runs every command of Slurm's through the stand-in."""

    def prefix(self) -> list[str]:
        whole = STAND_IN.replace("@PREFIX@", shlex.join(super().prefix()))
        return [str(self.write("stand-in", whole))]

    def said(self, *words: str) -> int:
        """How often it ran a command with these words."""
        lines = (self.folder / "said").read_text().splitlines()
        return sum(all(word in line for word in words) for line in lines)

    @contextmanager
    def fault(self, command: str, does: str) -> Iterator[None]:
        """As long as it stands, the command does this."""
        armed = self.write(f"fault.{command}", f"{does}\n")
        try:
            yield
        finally:
            armed.unlink()


@pytest.fixture(scope="module")
def lab(release: Release) -> Iterator[FaultyLab]:
    with FaultyLab(nodes=1, cpus=16, release=release) as made:
        yield made


def test_slurm_does_not_give_out_what_it_was_not_told_is_in_pieces(lab: FaultyLab) -> None:
    """Slurm knows of two free blocks of 16, and of 32 that lie together. Two jobs of 16 begin: one
    breaks the 32. When the first job has ended, Slurm would start a job of 32.
    """

    def start() -> int:
        job = lab.batch("sleep 600", "--ipus=16", "-o", "/dev/null")
        lab.wait_state(job, "RUNNING")
        return job

    job = start()
    poll("Slurm is told", lambda: lab.state()["told"].get("ipu_x32") == 32)
    with lab.fault("scontrol", "echo 'slurm_update error: Invalid argument' >&2; exit 1"):
        others = [start(), start()]
        lab.ok("scancel", str(job))
        poll("its devices", lambda: lab.held() == 32)
        refused = lab.said("scontrol update reservationname=podwright")
        poll("tries", lambda: lab.said("scontrol update reservationname=podwright") > refused + 2)
        half = lab.batch("true", "--ipus=32", "-o", "/dev/null")
        poll("Slurm looked at it", lambda: lab.job(half).reason == "Licenses")
        assert lab.job(job).state == "COMPLETING"
        assert "Invalid argument" in lab.state()["problem"]
    lab.wait_over(job)
    lab.ok("scancel", *map(str, others))
    jobs = lab.wait_over(job, half, *others)
    assert (jobs[job].state, jobs[half].state) == ("CANCELLED", "COMPLETED")
    assert jobs[half].fields["Restarts"] == "0"
    lab.wait_free()
    assert lab.state()["problem"] == ""
    assert lab.state()["figures"]["waited"] == 0


@pytest.mark.parametrize(
    "does",
    [
        "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
        "echo 'half a li'; kill -9 $$",
    ],
    ids=["refuses", "dies"],
)
def test_a_squeue_that_fails_ends_nobodys_devices(lab: FaultyLab, does: str) -> None:
    living = lab.batch("sleep 600", "--ipus=16", "-o", "/dev/null")
    lab.wait_state(living, "RUNNING")
    with lab.fault("squeue", does):
        asked = lab.said("squeue")
        done = lab.run("srun", "--ipus=4", "true")  # hooks need no list of jobs
        assert done.returncode == 0, done.stderr
        poll("a sweep", lambda: lab.said("squeue") > asked)
        poll("its end alone", lambda: set(lab.partitions()) == {f"slurm_{living}"}, seconds=15)
        lab.ok("scancel", str(living))
        assert lab.wait_over(living)[living].state == "CANCELLED"
    lab.wait_free()
