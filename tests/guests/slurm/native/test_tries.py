"""A job whose prolog fails: the failures are counted durably, and the last attempt holds the
job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from podwright.errors import InvalidRequest
from podwright.guests.slurm.service import HookJob, RetryLimit
from podwright.guests.slurm.service._squeue_jobs import _SQUEUE_COLUMN_WIDTHS
from podwright.slurm.site.commands import CommandResult, FakeSlurm


class OneJob:
    """squeue and scontrol of job 7. leader: of the heterogeneous job to which it belongs."""

    def __init__(self, comment: str = "", leader: int = 0) -> None:
        self.comment, self.leader, self.uid = comment, leader, "5"
        self.held: list[str] = []
        self.is_held = asyncio.Event()

    def __call__(self, argv: Sequence[str]) -> CommandResult | str:
        if argv[0] == "squeue":
            words = ["7", "PENDING", "0", str(self.leader), "1", "None", "", "1:00", *[""] * 7]
            words[9:11] = self.comment, self.uid
            return (
                "".join(
                    w.ljust(n) for w, n in zip(words, _SQUEUE_COLUMN_WIDTHS.values(), strict=True)
                )
                + "\n"
            )
        if argv[1] == "hold":
            self.held.append(argv[2])
            self.is_held.set()
        else:
            self.comment = argv[-1].partition("=")[2]
        return ""


@pytest.mark.parametrize(
    ("job", "head", "asked", "held"),
    [
        (OneJob(), "", HookJob(job=7), "7"),
        (OneJob(), "", HookJob(job=7, array_job=5, array_task=2), "5_2"),
        (
            OneJob("ipus=8 gcds=1 pod=pod64; waits for 8 devices", 6),
            "ipus=8 gcds=1 pod=pod64; ",
            HookJob(job=7, het_job=6, het_offset=1),
            "6",
        ),
    ],
)
async def test_the_third_failure_holds_it_and_says_why(
    job: OneJob, head: str, asked: HookJob, held: str
) -> None:
    for count in (1, 2, 3):
        # Another service each time: what counts stands in Slurm.
        tries = RetryLimit(FakeSlurm(job), 3)
        said = await tries.refusal(asked, InvalidRequest("the site's prolog ended with 3"))
        assert f"try {count} of 3 failed: the site's prolog ended with 3" in str(said)
        assert job.comment.startswith(f"{head}try {count} of 3 failed")
        assert job.held == []
    async with asyncio.timeout(120):
        await job.is_held.wait()
    assert job.held == [held]


async def test_the_next_job_with_its_number_is_not_held() -> None:
    """slurmctld was killed, and has forgotten the job before it was back in the queue."""
    job = OneJob()
    tries = RetryLimit(FakeSlurm(job), 3)
    await tries.refusal(HookJob(job=7, uid=5), InvalidRequest("no"), final=True)
    job.uid = "9"
    await asyncio.gather(*tries._holding)
    assert job.held == []


async def test_of_a_job_that_slurmctld_does_not_know_nothing_is_said() -> None:
    slurm = FakeSlurm(lambda argv: "")
    tries = RetryLimit(slurm, 3)
    said = await tries.refusal(HookJob(job=7), InvalidRequest("no"), final=True)
    assert "no" in str(said)
    assert [argv[0] for argv in slurm.commands] == ["squeue"]
    assert not tries._holding
