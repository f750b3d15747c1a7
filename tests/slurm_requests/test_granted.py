"""Our rules against what real Slurm was seen to do, for some 1,500 requests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podwright.slurm.requests import Version
from tests.slurm_requests.outcome import expected

HERE = Path(__file__).parent / "granted"
RELEASES: dict[str, Version] = {"22.05.8": (22, 5), "24.11.5": (24, 11)}


def rows(name: str, parts: int) -> list[tuple[str, ...]]:
    lines = (HERE / name).read_text().splitlines()
    return [tuple(line.split(" | ", parts - 1)) for line in lines if not line.startswith("#")]


def ranked(outcome: str) -> str:
    """GPUs by their rank among those that the tasks of a node see.

    Which of equal GPUs is taken differs between releases; how many, and who shares, is the grant.
    """
    tasks = re.findall(r"(\d+)\[([\d,]*|unset)\]", outcome)
    if not tasks:
        return outcome
    seen: dict[str, set[int]] = {}
    for node, gpus in tasks:
        seen.setdefault(node, set()).update(int(g) for g in gpus.split(",") if g.isdigit())
    place = {node: {g: i for i, g in enumerate(sorted(some))} for node, some in seen.items()}
    words = [
        f"{n}[" + ",".join(str(place[n][int(g)]) if g.isdigit() else g for g in t.split(",")) + "]"
        for n, t in tasks
    ]
    return f"{outcome.partition(':')[0]}: {' '.join(words)}"


@pytest.mark.parametrize("release", RELEASES)
def test_rules_agree_with_slurm_but_for_the_listed_contradictions(release: str) -> None:
    cases = rows(f"{release}.txt", 3)
    listed = set(rows(f"{release}-unexplained.txt", 2))
    exact = release == "22.05.8"
    wrong = set()
    for command, options, outcome in cases:
        ours = expected(command, options, version=RELEASES[release])
        if (ours if exact else ranked(ours)) != (outcome if exact else ranked(outcome)):
            wrong.add((command, options))
    assert wrong == listed


def test_the_record_is_large_and_mostly_explained() -> None:
    for release in RELEASES:
        cases, listed = rows(f"{release}.txt", 3), rows(f"{release}-unexplained.txt", 2)
        granted = [case for case in cases if "nodes:" in case[2]]
        assert len(granted) >= 200
        assert len(listed) < len(cases) / 10


def test_every_way_to_ask_is_in_the_record() -> None:
    text = (HERE / "22.05.8.txt").read_text()
    for option in (
        *("--gres=", "--gpus=", "--gpus-per-node=", "--gpus-per-task=", "--gpus-per-socket="),
        *("--ntasks-per-gpu=", "--gpu-bind=", "--nodes=", "--ntasks=", "--ntasks-per-node="),
        "--cpus-per-task=",
    ):
        assert text.count(option) > 40
