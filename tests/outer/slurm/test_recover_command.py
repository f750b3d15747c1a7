"""`podwright slurm recover` on a real Slurm: a node drained with "Duplicate jobid" and a job held
with "launch failed requeued held", after kill -9 of slurmctld.

A node's prolog that fails leaves the job as a refused launch does; the node's reason is then set by
scontrol, as slurmctld writes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.outer.lab import Release, poll, written_at
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
HELD = "launch_failed_requeued_held"


class FailingLab(NativeLab):
    """A cluster whose nodes run no job while the file `fails` exists."""

    @property
    def fails(self) -> Path:
        return self.folder / "out" / "fails"

    def start(self) -> None:
        prolog = self.write("prolog", f"#!/bin/sh\ntest ! -e {self.fails}\n")
        prolog.chmod(0o755)
        self.settings["Prolog"] = str(prolog)
        words = self.settings["SchedulerParameters"].split(",")
        words.remove("nohold_on_prolog_fail")
        self.settings["SchedulerParameters"] = ",".join(words)
        self.write_conf()
        super().start()


@pytest.fixture(scope="module")
def lab(release: Release) -> Iterator[FailingLab]:
    with FailingLab(nodes=2, release=release) as lab:
        yield lab


def recover(lab: FailingLab, *words: str) -> tuple[int, dict[str, Any]]:
    done = lab.podwright("slurm", "recover", "--json", *words)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def wait_for_save(lab: FailingLab, job: int) -> None:
    """Wait until slurmctld has saved all that it knows now.

    It saves only what has changed, and a file that is written now may have been begun before the
    last change. So changes go on until a file is a second younger than the first of them.
    """
    first = time.time()
    files = [lab.folder / "state" / name for name in ("job_state", "node_state")]

    def saved() -> bool:
        lab.ok("scontrol", "update", f"jobid={job}", f"comment={time.time()}")
        lab.ok("scontrol", "update", "nodename=n2", "reason=broken disk")
        return all(written_at(file) > first + 1 for file in files)

    poll("slurmctld's saved state", saved, seconds=60, every=0.5)


def test_what_a_killed_slurmctld_leaves_is_listed_and_mended(lab: FailingLab) -> None:
    assert recover(lab) == (0, {"steps": [], "left_alone": []})
    by_user = lab.batch("true", "-H", "-o", "/dev/null")
    lab.fails.touch()
    job = lab.batch("true", "-w", "n1", "-o", "/dev/null")
    poll("the held job", lambda: lab.job(job).reason == HELD, seconds=60)
    lab.fails.unlink()
    for node, reason in (("n1", "Duplicate jobid"), ("n2", "broken disk")):
        lab.ok("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")
    wait_for_save(lab, by_user)
    lab.kill_daemon("slurmctld")
    assert lab.podwright("slurm", "recover").returncode not in (0, 1)
    lab.start_daemon("slurmctld")
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)

    def nodes_respond() -> bool:
        shown = lab.ok("scontrol", "show", "node")
        return "NOT_RESPONDING" not in shown and "State=UNKNOWN" not in shown

    poll("both nodes", nodes_respond, seconds=60)
    code, plan = recover(lab)
    assert code == 1
    assert [step["target"] for step in plan["steps"]] == ["node n1", f"job {job}"], plan
    assert lab.job(job).reason == HELD, "listing changes nothing"
    done = lab.podwright("slurm", "recover", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["node n1: mended", f"job {job}: mended"]
    # Slurm gives a requeued job a time at which it may begin.
    lab.ok("scontrol", "update", f"jobid={job}", "starttime=now")
    assert lab.wait_over(job)[job].state == "COMPLETED"
    assert "broken disk" in lab.ok("scontrol", "show", "node", "n2")
    assert lab.job(by_user).reason == "JobHeldUser"
    assert recover(lab) == (0, {"steps": [], "left_alone": []})
