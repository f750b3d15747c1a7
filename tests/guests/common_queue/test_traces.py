"""Recorded jobs of real sites as the jobs of several guests, through the server's own queue.

`PODWRIGHT_TRACES` names a folder of CSV files with the columns submit_s, runtime_s, devices,
walltime_s and user, which may be empty. They are not a part of the project.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from tests.guests.common_queue.histories import as_one, broken_promises
from tests.guests.common_queue.simulated_pod import Job, SimulatedPod

GUESTS = ("slurm", "kubernetes a", "people")
DEVICES = 256
JOBS = 1_000_000  #: of all repeats of a trace
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


def guests_of(
    path: Path, repeats: int, guests: tuple[str, ...] = GUESTS
) -> tuple[dict[str, list[Job]], float]:
    """The jobs by guest, where each user has one, and when the last is submitted. The times between
    submissions are stretched to LOAD."""
    jobs = recorded(path)
    span = max(submit for submit, *_ in jobs) + 1.0
    work = sum(seconds * devices for _, seconds, devices, *_ in jobs)
    factor = work / (span * DEVICES * LOAD)
    by_guest: dict[str, list[Job]] = {guest: [] for guest in guests}
    for repeat in range(repeats):
        for number, (submit, seconds, devices, limit, user) in enumerate(jobs):
            guest = guests[sum(map(ord, user or str(number))) % len(guests)]
            moment = (repeat * span + submit) * factor
            name = f"{guest}-{repeat}.{number}"
            by_guest[guest].append(Job(name, devices, seconds, moment, limit=limit))
    return by_guest, repeats * span * factor


def check_trace(path: Path, repeats: int) -> tuple[int, float]:
    """Play a trace. Returns the number of jobs and the use beside one scheduler's."""
    by_guest, last = guests_of(path, repeats)
    shared = SimulatedPod(DEVICES, by_guest, room_s=300.0)
    alone = SimulatedPod(DEVICES, as_one(list(by_guest.values())), room_s=300.0)
    used = []
    for pod in (shared, alone):
        pod.run(last)
        used.append(pod.used)
        if pod is shared:
            pod.run_on(float("inf"))
            assert not broken_promises(pod), broken_promises(pod)[:5]
    return shared.ended_jobs, used[0] / used[1]


@pytest.mark.soak
@pytest.mark.skipif("PODWRIGHT_TRACES" not in os.environ, reason="PODWRIGHT_TRACES names no folder")
def test_promises_are_kept_with_recorded_jobs() -> None:
    for path in sorted(Path(os.environ["PODWRIGHT_TRACES"]).glob("*.csv")):
        jobs, share = check_trace(path, max(1, JOBS // len(recorded(path))))
        assert jobs
        assert share >= 0.97, f"{path.name}: {share:.3f} of one scheduler's use"
