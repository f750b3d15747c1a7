"""When a job that waits can have its devices at the latest."""

from __future__ import annotations

from podwright.slurm.pods.service import Listed
from podwright.slurm.pods.waiting._when import soonest
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
