"""check-binding on real Slurm: a job runs, and every task says which GPU it was given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.outer.gpu.truth import gpu_lab
from tests.outer.lab import SlurmLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    with gpu_lab() as lab:
        described = f"gpus = 4\nnuma_nodes = 2\ncpus = {os.cpu_count()}\n"
        lab.write("gpus.toml", described)
        yield lab


def check(lab: SlurmLab, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "podwright.cli.podwright", "slurm", "check-binding", *options],
        env={**lab.environment(), "PODWRIGHT_STANDIN_NVML": f"{lab.folder}/gpus.toml"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def tasks(lab: SlurmLab, *options: str) -> list[Any]:
    done = check(lab, "--json", *options)
    assert done.returncode in (0, 1), done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def test_tasks_of_two_nodes_have_their_own(lab: SlurmLab) -> None:
    found = tasks(lab, "--gpus-per-task=1", "-N2", "--ntasks-per-node=2", "--output=x")
    assert [(t["rank"], t["node"]) for t in found] == [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")]
    # Slurm lays the two tasks of a node over its two sockets.
    assert [[gpu["number"] for gpu in t["gpus"]] for t in found] == [[0], [2], [0], [2]]
    assert {t["verdict"]["own"] for t in found} == {"distinct"}
    assert not any(t["verdict"]["bad"] for t in found)


def test_shared_gpus_are_shown_and_no_fault_where_they_were_asked(lab: SlurmLab) -> None:
    done = check(lab, "--gres=gpu:2", "--ntasks=2", "--nodes=1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split(" | ")[0] == "Task"
    assert lines[2].count("shared, unbound, as asked") == 1
    assert lines[-1] == "Of 2 tasks 2 share GPUs with others: as asked."


def test_a_task_that_sees_another_number_is_a_fault(lab: SlurmLab) -> None:
    """22.05 unsets the variable for a type in --gpus-per-task: tasks see all of the node."""
    done = check(lab, "--gpus-per-task=a100:1", "--ntasks=2")
    assert done.returncode == 1
    assert "asked for 1" in done.stdout
    assert "2 of 2 tasks did not get what was asked." in done.stdout


def test_what_slurm_refuses_is_said_in_its_words(lab: SlurmLab) -> None:
    done = check(lab, "--gpus-per-node=9")
    assert done.returncode not in (0, 1)
    assert "Requested node configuration is not available" in done.stderr
    assert "explain-request" in done.stderr
    assert lab.run("squeue", "-h").stdout == ""
