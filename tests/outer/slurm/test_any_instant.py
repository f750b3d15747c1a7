"""Daemons killed at random instants under a random load: nothing leaks, nothing is given twice, and
no job that runs is without its devices once all are up again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter

import pytest

from tests.outer.lab import LabError, poll
from tests.outer.slurm.native import NativeLab
from tests.outer.slurm.test_endings import Watch

pytestmark = [pytest.mark.outer, pytest.mark.slurm, pytest.mark.soak]
SECONDS = 120
SEED = int(os.environ.get("PODWRIGHT_SEED", "5"))


def up(lab: NativeLab) -> None:
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)


def kill_one(lab: NativeLab, rng: random.Random, slurmctld: signal.Signals) -> str:
    """One of the three dies, and is started again, at once or after a moment."""
    who = rng.choice(("slurmctld", "server", "service"))
    if who == "slurmctld":
        lab.kill_daemon("slurmctld", slurmctld)
    else:
        lab.end(who)
    time.sleep(rng.choice((0, rng.uniform(0, 3))))
    if who == "slurmctld":
        lab.start_daemon("slurmctld")
        up(lab)
    elif who == "server":
        lab.start_server()
    else:
        lab.start_service()
    return who


def bare(lab: NativeLab) -> set[int]:
    """Jobs whose program runs and who have no partition."""
    held = lab.partitions()
    running = {job.id for job in lab.jobs().values() if job.state == "RUNNING"}
    return {job for job in running if f"slurm_{job}" not in held}


def storm(lab: NativeLab, rng: random.Random, slurmctld: signal.Signals) -> tuple[list[str], int]:
    """The load and the deaths: who died, and how many jobs there were."""
    killed: list[str] = []
    submitted = 0
    start = time.monotonic()
    due = start + 3
    while time.monotonic() - start < SECONDS:
        size = 1 << min(6, int(rng.expovariate(0.6)))
        try:
            lab.batch(f"sleep {rng.uniform(0, 4):.2f}", f"--ipus={size}", "-o", "/dev/null")
            submitted += 1
        except LabError:
            pass  # slurmctld was asked too soon after its start
        time.sleep(rng.uniform(0, 0.5))
        if time.monotonic() > due:
            killed.append(kill_one(lab, rng, slurmctld))
            due = time.monotonic() + rng.uniform(0.2, 6)
    lab.wait_for_service()
    return killed, submitted


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_daemons_die_at_any_instant(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    """slurmctld that may save its state forgets nothing: then every job completes. Killed, it
    forgets the last seconds, gives numbers out again and drains nodes (`Duplicate jobid`)."""
    conf = {"KillWait": "1"}
    with NativeLab(nodes=2, cpus=64, conf=conf) as lab:
        with Watch(lab) as watch:
            killed, submitted = storm(lab, random.Random(SEED), signal.Signals[how])
            if how == "SIGKILL":
                for node in lab.nodes:
                    lab.run("scontrol", "update", f"nodename={node}", "state=resume")
                if left := [str(job.id) for job in lab.jobs().values() if not job.over]:
                    lab.run("scancel", *left)
            else:
                seen = bare(lab)
                time.sleep(6)  # longer than any of them lives
                assert not seen & bare(lab), "a job runs without its devices"
            lab.wait("the end", lambda jobs: all(job.over for job in jobs.values()), seconds=300)
        lab.wait_free(60)
        whole = lab.batch("true", "--ipus=64", "-o", "/dev/null")
        assert lab.wait_over(whole)[whole].state == "COMPLETED"
        lab.wait_free()
        leaked = lab.held()
        states = Counter(job.state for job in lab.jobs().values())
        waited = lab.state()["figures"]["waited"]
    kinds = ", ".join(f"{count} {who}" for who, count in sorted(Counter(killed).items()))
    with capsys.disabled():
        print(
            f"\n{submitted} jobs, meanwhile ended ({how}): {kinds}; leaked {leaked}, given twice "
            f"{len(watch.twice)}; jobs: {dict(states)}; waited for shape {waited}"
        )
    assert leaked == 0
    assert not watch.twice
    if how == "SIGTERM":
        assert set(states) == {"COMPLETED"}
