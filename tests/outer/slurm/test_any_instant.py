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
SECONDS = 240
SEED = int(os.environ.get("PODWRIGHT_SEED", "5"))


def up(lab: NativeLab) -> None:
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)


def kill_one(lab: NativeLab, rng: random.Random) -> str:
    """One of the three dies, and is started again, at once or after a moment."""
    who = rng.choice(("slurmctld", "server", "service"))
    how = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
    if who == "slurmctld":
        lab.kill_daemon("slurmctld", how)
    else:
        lab.end(who, how)
    time.sleep(rng.choice((0, rng.uniform(0, 3))))
    if who == "slurmctld":
        lab.start_daemon("slurmctld")
        up(lab)
    elif who == "server":
        lab.start_server()
    else:
        lab.start_service()
    return who


def bare(lab: NativeLab) -> list[int]:
    """Jobs whose program runs and who have no partition."""
    running = [job.id for job in lab.jobs().values() if job.state == "RUNNING"]
    held = lab.partitions()
    return [job for job in running if f"slurm_{job}" not in held]


def test_daemons_die_at_any_instant(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(SEED)
    conf = {"AuthInfo": "socket=@LAB@/munge.socket,cred_expire=5", "KillWait": "1"}
    killed: list[str] = []
    submitted = 0
    with NativeLab(nodes=2, cpus=64, conf=conf) as lab, Watch(lab) as watch:
        start = time.monotonic()
        due = start + 3
        while time.monotonic() - start < SECONDS:
            size = 1 << min(6, int(rng.expovariate(0.6)))
            try:
                lab.batch(f"sleep {rng.uniform(0, 6):.2f}", f"--ipus={size}", "-o", "/dev/null")
                submitted += 1
            except LabError:
                pass  # slurmctld was asked too soon after its start
            time.sleep(rng.uniform(0, 0.5))
            if time.monotonic() > due:
                killed.append(kill_one(lab, rng))
                due = time.monotonic() + rng.uniform(0.2, 6)
        lab.wait_for_service()
        # A job that Slurm started while it had not heard of the end of another is being made ready.
        poll("devices of all that run", lambda: not bare(lab), seconds=60, every=0.5)
        lab.wait("the end", lambda jobs: all(job.over for job in jobs.values()), seconds=240)
        lab.wait_free(60)
        whole = lab.batch("true", "--ipus=64", "-o", "/dev/null")
        assert lab.wait_over(whole)[whole].state == "COMPLETED"
        lab.wait_free()
        leaked = lab.held()
        states = {job.state for job in lab.jobs().values()}
    kinds = ", ".join(f"{count} {who}" for who, count in sorted(Counter(killed).items()))
    with capsys.disabled():
        print(
            f"\n{submitted} jobs, killed meanwhile: {kinds}; leaked {leaked}, given twice "
            f"{len(watch.twice)}; jobs ended {sorted(states)}"
        )
    assert leaked == 0
    assert not watch.twice
