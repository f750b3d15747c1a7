"""The documented ways on Debian's next Slurm: what differs there is how a GRES is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.outer.lab import ALICE, Release
from tests.outer.slurm.native import NativeLab
from tests.outer.slurm.ways import MappingLab, SharedLab, StaticLab, WayLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm, pytest.mark.soak]

SHOW = "echo $IPUOF_VIPU_API_PARTITION_ID $PODWRIGHT_ALLOCATION gcd $IPUOF_VIPU_API_GCD_ID"


def said(lab: NativeLab, *options: str) -> str:
    """What a batch job and its step say, and srun by itself."""
    job = lab.batch(f"{SHOW}\nsrun sh -c '{SHOW}'\n", *options)
    assert lab.wait_over(job)[job].state == "COMPLETED", lab.output(job)
    done = lab.run("srun", *options, "sh", "-c", SHOW, user=ALICE)
    assert done.returncode == 0, done.stderr
    return lab.output(job) + done.stdout


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (StaticLab, ["--gres=vipu:4"], ["s4-1 gcd", "s4-1 gcd 0", "s4-1 gcd 0"]),
        (SharedLab, ["--ipus=4"], ["all gcd", "all gcd 0", "all gcd 0"]),
        (MappingLab, ["-N1"], ["c1 gcd", "c1 gcd", "c2 gcd"]),
    ],
)
def test_jobs_find_what_they_hold_and_leave_nothing(
    make: Callable[..., WayLab], options: list[str], words: list[str], middle: Release
) -> None:
    with make(nodes=2, cpus=16, release=middle) as lab:
        assert [" ".join(line.split()) for line in said(lab, *options).splitlines()] == words
        lab.wait_free()


def test_jobs_of_graphcores_guide_run_unchanged(middle: Release) -> None:
    mode = ["--mode", "plugin"]
    with NativeLab(nodes=2, cpus=16, configure=mode, release=middle) as lab:
        lines = said(lab, "--ipus=2", "-n1", "--gres=vipu:pod64").splitlines()
        assert [line.split() for line in lines] == [
            ["slurm_1", "gcd"],
            ["slurm_1", "gcd", "0"],
            ["slurm_2", "gcd", "0"],
        ]
