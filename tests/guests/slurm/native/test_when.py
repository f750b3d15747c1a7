"""The latest time at which a waiting job can have its devices."""

from __future__ import annotations

import pytest

from podwright.guests.slurm.service import Listed, SlurmPod
from podwright.guests.slurm.service._missed_hook_sweep import next_jobs, sentence
from podwright.guests.slurm.service._pod_holdings import PodBook
from podwright.guests.slurm.service._queue_report import WaitingJob
from podwright.guests.slurm.waiting._block_free_time import soonest
from podwright.wire import DeviceInfo, DeviceRef


def pod(states: str) -> list[DeviceInfo]:
    """Eight devices: `.` free, `x` down, a digit: held by that job."""
    return [
        DeviceInfo(
            cluster="c",
            device=DeviceRef(domain=0, offset=at),
            state={".": "FREE", "x": "DOWN"}.get(what, "IN_USE"),
            partition=f"slurm_{what}" if what.isdigit() else "",
        )
        for at, what in enumerate(states)
    ]


def running(**ends: str) -> dict[int, Listed]:
    jobs = {int(name[1:]): end for name, end in ends.items()}
    return {job: Listed(job, "RUNNING", 0, 0, 1, "None", end, "", "") for job, end in jobs.items()}


def test_the_block_that_is_free_first_is_named() -> None:
    jobs = running(j1="2026-01-01T10", j2="2026-01-01T12", j3="2026-01-01T11", j4="N/A")
    assert soonest(pod("11223344"), 2, jobs) == ("2026-01-01T10", [1])
    assert soonest(pod("11223344"), 4, jobs) == ("2026-01-01T12", [1, 2])
    assert soonest(pod("1122334."), 4, jobs) == ("2026-01-01T12", [1, 2])
    assert soonest(pod("11223344"), 8, jobs) == ("N/A", [1, 2, 3, 4])
    assert soonest(pod("11..3344"), 2, jobs) == ("", [])


def test_where_machines_are_away_no_time_is_named() -> None:
    jobs = running(j1="2026-01-01T10", j3="2026-01-01T11")
    assert soonest(pod("11x.33.."), 4, jobs) == ("2026-01-01T11", [3])
    assert soonest(pod("11x.33.."), 8, jobs) == (None, [])


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "it waits for nodes"),
        ("Priority", "it waits for its turn, as jobs of higher priority wait before it"),
        ("BeginTime", "it waits for its time to begin"),
        ("Licenses", "Slurm starts it when it looks at the queue next"),
    ],
)
def test_a_job_whose_devices_are_free_says_what_it_waits_for(reason: str, words: str) -> None:
    book = PodBook(SlurmPod(type="pod16", cluster="pod16", devices=16, largest=16, domain=16))
    book.blocks = type(book.blocks)((1 << 16) - 1)  # all are free
    text = sentence(book, 4, 7, reason=reason)
    assert text == f"4 devices of pod16 are free for it: {words}"


def waiting(job: int, size: int, priority: int, reason: str = "Licenses") -> WaitingJob:
    row = Listed(job, "PENDING", 0, 0, priority, reason, "", f"ipu:{size}", "")
    return WaitingJob(row, "", f"waits for {size} devices", pod="pod64")


def test_next_is_the_first_job_that_waits_and_no_job_of_the_largest_size() -> None:
    jobs = [waiting(3, 64, 1), waiting(5, 16, 9), waiting(4, 4, 9)]
    jobs.append(waiting(2, 8, 99, reason="Dependency"))
    assert next_jobs(jobs) == {"pod64": "job 4: waits for 4 devices"}
    assert next_jobs([]) == {}
