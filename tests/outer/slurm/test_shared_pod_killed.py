"""A hundred deaths of daemons on a pod that Slurm and Kubernetes share.

No job is lost, and no device is given twice.

The server, the service of Slurm and the operator are killed; slurmctld ends by SIGTERM, since one
that is killed forgets its last seconds (`test_any_instant`).
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
from tests.outer.slurm.shared_users import ROOM_S, KubernetesUser
from tests.outer.slurm.test_any_instant import kill_one
from tests.outer.slurm.test_endings import Watch

pytestmark = [pytest.mark.outer, pytest.mark.slurm, pytest.mark.soak]
DEATHS = int(os.environ.get("PODWRIGHT_DEATHS", "100"))
SEED = int(os.environ.get("PODWRIGHT_SEED", "5"))
#: Of a job: many are small, some need a quarter of the pod.
SIZES = (1, 2, 4, 4, 8, 16)


def submit(lab: NativeLab, kubernetes: KubernetesUser, rng: random.Random, number: int) -> bool:
    """Submit one job to one of the two. Returns whether it was accepted."""
    size, seconds = rng.choice(SIZES), rng.uniform(0.5, 5.0)
    if rng.random() < 0.5:
        kubernetes.create(f"job-{number}", size, seconds)
        return True
    try:
        lab.batch(f"sleep {seconds:.2f}", f"--ipus={size}", "-o", "/dev/null")
    except LabError:
        return False  # slurmctld was asked too soon after its start
    return True


def test_daemons_die_on_a_shared_pod(capsys: pytest.CaptureFixture[str]) -> None:
    rng, deaths, jobs = random.Random(SEED), Counter[str](), 0
    options = ["--room-after", str(ROOM_S)]
    with NativeLab(nodes=2, cpus=64, configure=options) as lab, KubernetesUser(lab) as kubernetes:
        with Watch(lab) as watch:
            due = time.monotonic() + 3
            while deaths.total() < DEATHS:
                jobs += submit(lab, kubernetes, rng, jobs)
                time.sleep(rng.uniform(0, 1))
                if time.monotonic() > due:
                    if rng.random() < 0.25:
                        kubernetes.kill()
                        deaths["operator"] += 1
                    else:
                        deaths[kill_one(lab, rng, signal.SIGTERM)] += 1
                    due = time.monotonic() + rng.uniform(0.2, 5)
            lab.wait_for_service()
            lab.wait("Slurm's jobs", lambda jobs: all(j.over for j in jobs.values()), seconds=600)
            poll(
                "the operator's jobs",
                lambda: all(
                    (job.get("status") or {}).get("launcherStatus") == "Completed"
                    for job in kubernetes.jobs()
                ),
                seconds=600,
            )
            states = Counter(job.state for job in lab.jobs().values())
        lab.wait_free(60)
        count = len(kubernetes.jobs())
    assert not watch.twice
    assert set(states) == {"COMPLETED"}
    assert states["COMPLETED"] + count == jobs
    with capsys.disabled():
        who = ", ".join(f"{number} {name}" for name, number in sorted(deaths.items()))
        print(f"\n{jobs} jobs, {count} of them IPUJobs; deaths: {who}")
