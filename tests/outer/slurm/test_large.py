"""A large job behind small ones that never leave room for it: what Slurm does, and what we do.

No Slurm sets devices aside: all know `bf_licenses`, but what a block that is in
pieces hides comes back by a rule that Slurm does not have. Emptying a block does it.
"""

from __future__ import annotations

import random

import pytest

from tests.outer.lab import Release, poll
from tests.outer.slurm.native import SCHEDULER, NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm, pytest.mark.soak]


def started_with(lab: NativeLab, small: int, *options: str) -> int:
    """How many of the small jobs behind a large one still waited when that was over."""
    rng = random.Random(3)

    def submit() -> int:
        return lab.batch(f"sleep {rng.uniform(2, 6):.2f}", "--ipus=16", "-t1", "-o", "/dev/null")

    for _ in range(6):
        submit()
    large = lab.batch("true", *options, "-o", "/dev/null")
    behind = [submit() for _ in range(small)]
    poll("the large job", lambda: lab.job(large).over, seconds=300, every=0.2)
    assert lab.job(large).state == "COMPLETED"
    assert lab.job(large).fields["Restarts"] == "0"
    left = sum(lab.job(job).state == "PENDING" for job in behind)
    lab.run("scancel", *map(str, behind))
    lab.wait_free()
    return left


@pytest.mark.parametrize(
    ("more", "room"),
    [
        pytest.param("", "0", id="as Slurm is"),
        pytest.param(",bf_licenses", "0", id="bf_licenses"),
        pytest.param("", "5", id="a block is emptied"),
    ],
)
def test_a_large_job_starts_where_room_is_made_for_it(
    release: Release, more: str, room: str
) -> None:
    conf = {"SchedulerParameters": SCHEDULER + more}
    with NativeLab(
        nodes=2, cpus=64, release=release, conf=conf, configure=["--room-after", room]
    ) as lab:
        left = started_with(lab, 40, "--ipus=64", "-t1")
        assert lab.state()["figures"]["waited"] == 0
    if room == "0":
        assert left <= 1, "Slurm made room by itself: then we need not"
    else:
        assert left > 5


@pytest.mark.parametrize("room", ["0", "5"])
def test_a_heterogeneous_job_starts_where_room_is_made_for_it(release: Release, room: str) -> None:
    with NativeLab(nodes=2, cpus=64, release=release, configure=["--room-after", room]) as lab:
        parts = ["--ipus=32", "-n1", "-t1", ":", "--ipus=16", "-n1", "-t1"]
        left = started_with(lab, 40, *parts)
        assert lab.state()["figures"]["waited"] == 0
    if room == "0":
        assert left <= 1, "Slurm made room by itself: then we need not"
    else:
        assert left > 5
