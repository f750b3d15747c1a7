"""The GPUs beside a task's cores: our rules against what real Slurm did."""

from __future__ import annotations

import pytest

from tests.slurm.gpus.requests.bound import BOUND, SEEN
from tests.slurm.gpus.requests.outcome import expected


@pytest.mark.parametrize(("command", "options", "older", "newer"), SEEN)
def test_the_gpus_of_bound_tasks(command: str, options: str, older: str, newer: str) -> None:
    assert expected(command, options, BOUND, version=(22, 5)) == older
    assert expected(command, options, BOUND, version=(24, 11)) == newer
