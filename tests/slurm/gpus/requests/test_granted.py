"""Our rules against what real Slurm was seen to do, for some thousand requests on each release."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from podwright.slurm.site.releases import Version
from tests.slurm.gpus.requests.outcome import expected
from tests.slurm.gpus.requests.shapes import LAYOUTS

HERE = Path(__file__).parent / "granted"
RELEASES: dict[str, Version] = {"22.05.8": (22, 5), "24.11.5": (24, 11)}


class Seen(NamedTuple):
    """One request and its outcome: on which nodes, by which command, with which options."""

    layout: str
    command: str
    options: str
    outcome: str


def record(release: str) -> list[Seen]:
    """What this release of Slurm did."""
    lines = (HERE / f"{release}.txt").read_text().splitlines()
    return [Seen(*line.split(" | ", 3)) for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("release", RELEASES)
def test_rules_say_what_slurm_did(release: str) -> None:
    shapes = {name: layout.shape() for name, layout in LAYOUTS.items()}
    wrong = {}
    for case in record(release):
        ours = expected(case.command, case.options, shapes[case.layout], version=RELEASES[release])
        if ours != case.outcome:
            wrong[case] = ours
    assert wrong == {}


@pytest.mark.parametrize("release", RELEASES)
def test_the_record_has_every_layout_command_and_outcome(release: str) -> None:
    cases = record(release)
    assert {case.layout for case in cases} == set(LAYOUTS)
    assert {case.command for case in cases} == {"srun", "salloc", "sbatch"}
    assert sum("nodes:" in case.outcome for case in cases) >= 600
    assert {case.outcome for case in cases} >= {"submit", "step", "waits"}
    assert len({case[:3] for case in cases}) == len(cases)


@pytest.mark.parametrize("release", RELEASES)
def test_every_way_to_ask_is_in_the_record(release: str) -> None:
    text = (HERE / f"{release}.txt").read_text()
    for option in (
        *("--gres=", "--gpus=", "--gpus-per-node=", "--gpus-per-task=", "--gpus-per-socket="),
        *("--ntasks-per-gpu=", "--gpu-bind=", "--nodes=", "--ntasks=", "--ntasks-per-node="),
        *("--cpus-per-task=", "--cpus-per-gpu="),
    ):
        assert text.count(option) > 40
