"""A job whose prolog fails: the failures are counted durably, and the last attempt holds the
job.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from podwright.errors import InvalidRequest
from podwright.guests.slurm.service import HookJob, RetryLimit
from podwright.testing import FakeJob, FakeSlurm

WAITING = FakeJob("PENDING", user_id="5")


def of_job(job: FakeJob) -> FakeSlurm:
    """Return a Slurm whose job 7 this is."""
    slurm = FakeSlurm()
    slurm.jobs = {6: FakeJob("PENDING", het_job=6), 7: job}
    return slurm


@pytest.mark.parametrize(
    ("job", "head", "asked", "held"),
    [
        (WAITING, "", HookJob(job=7), "7"),
        (
            replace(WAITING, array_job="5", array_task="2"),
            "",
            HookJob(job=7, array_job=5, array_task=2),
            "5_2",
        ),
        (
            replace(WAITING, comment="ipus=8 gcds=1 pod=pod64; waits for 8 devices", het_job=6),
            "ipus=8 gcds=1 pod=pod64; ",
            HookJob(job=7, het_job=6, het_offset=1),
            "6",
        ),
    ],
)
async def test_the_third_failure_holds_it_and_says_why(
    job: FakeJob, head: str, asked: HookJob, held: str
) -> None:
    slurm = of_job(replace(job))
    for count in (1, 2, 3):
        # Another service each time: what counts stands in Slurm.
        tries = RetryLimit(slurm, 3)
        said = await tries.refusal(asked, InvalidRequest("the site's prolog ended with 3"))
        assert f"try {count} of 3 failed: the site's prolog ended with 3" in str(said)
        assert slurm.jobs[7].comment.startswith(f"{head}try {count} of 3 failed")
        assert slurm.said("scontrol", "hold") == []
    async with asyncio.timeout(120):
        await slurm.wait_for("scontrol", "hold")
    assert slurm.said("scontrol", "hold") == [("scontrol", "hold", held)]


async def test_the_next_job_with_its_number_is_not_held() -> None:
    """slurmctld was killed, and has forgotten the job before it was back in the queue."""
    slurm = of_job(replace(WAITING))
    tries = RetryLimit(slurm, 3)
    await tries.refusal(HookJob(job=7, uid=5), InvalidRequest("no"), final=True)
    slurm.jobs[7].user_id = "9"
    await asyncio.gather(*tries._holding)
    assert slurm.said("scontrol", "hold") == []


async def test_of_a_job_that_slurmctld_does_not_know_nothing_is_said() -> None:
    slurm = FakeSlurm()
    tries = RetryLimit(slurm, 3)
    said = await tries.refusal(HookJob(job=7), InvalidRequest("no"), final=True)
    assert "no" in str(said)
    assert [argv[0] for argv in slurm.commands] == ["squeue"]
    assert not tries._holding
