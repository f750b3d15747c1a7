"""Recorded jobs of real sites as the jobs of several guests, through the server's own queue.

`PODWRIGHT_TRACES` names a folder of CSV files with the columns submit_s, runtime_s, devices,
walltime_s and user, which may be empty. They are not a part of the project.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from random import Random

import pytest

from tests.guests.common_queue.histories import as_one, broken_promises
from tests.guests.common_queue.simulated_pod import Job, SimulatedPod

GUESTS = ("slurm", "kubernetes a", "people")
DEVICES = 256
JOBS = 1_000_000  #: of all plays of a trace
LOAD = 0.95  #: of the pod, that the jobs ask for on average


def recorded(path: Path) -> list[tuple[float, float, int, float, str]]:
    """Submission, run time, devices, limit and user of each job that fits."""
    with path.open(encoding="utf-8") as rows:
        jobs = [
            (
                float(row["submit_s"]),
                max(1.0, float(row["runtime_s"])),
                int(row["devices"]),
                float(row["walltime_s"] or 0),
                row["user"],
            )
            for row in csv.DictReader(rows)
        ]
    return [job for job in jobs if 0 < job[2] <= DEVICES // 2]


def guests_of(path: Path, deal: int) -> tuple[dict[str, list[Job]], float]:
    """The jobs by guest, and when the last is submitted. Each user has one guest, by the number of
    the deal. The times between submissions are stretched to LOAD."""
    jobs = recorded(path)
    span = max(submit for submit, *_ in jobs) + 1.0
    work = sum(seconds * devices for _, seconds, devices, *_ in jobs)
    factor = work / (span * DEVICES * LOAD)
    by_guest: dict[str, list[Job]] = {guest: [] for guest in GUESTS}
    for number, (submit, seconds, devices, limit, user) in enumerate(jobs):
        guest = Random(f"{deal} {user or number}").choice(GUESTS)
        name = f"{guest}-{number}"
        by_guest[guest].append(Job(name, devices, seconds, submit * factor, limit=limit))
    return by_guest, span * factor


def check_trace(path: Path, deals: range) -> float:
    """Play a trace once for each deal. Returns the use beside one scheduler's.

    It is that of all deals together. Which jobs are left to fill a gap depends on every earlier
    start, so one deal says little: the use of one scheduler alone is 70 to 82 % of the pod when
    twenty days of Helios merely have other names of jobs.
    """
    used = [0.0, 0.0]
    for deal in deals:
        by_guest, last = guests_of(path, deal)
        shared = SimulatedPod(DEVICES, by_guest, room_s=300.0)
        alone = SimulatedPod(DEVICES, as_one(list(by_guest.values())), room_s=300.0)
        for place, pod in enumerate((shared, alone)):
            pod.run(last)
            used[place] += pod.used
        shared.run_on(float("inf"))
        broken = broken_promises(shared)
        assert not broken, f"{path.name}, deal {deal}: {broken[:5]}"
    return used[0] / used[1]


@pytest.mark.soak
@pytest.mark.skipif("PODWRIGHT_TRACES" not in os.environ, reason="PODWRIGHT_TRACES names no folder")
def test_promises_are_kept_with_recorded_jobs() -> None:
    for path in sorted(Path(os.environ["PODWRIGHT_TRACES"]).glob("*.csv")):
        share = check_trace(path, range(max(1, JOBS // len(recorded(path)))))
        assert share >= 0.97, f"{path.name}: {share:.3f} of one scheduler's use"
