"""One cluster with native mode for all tests that leave it as they found it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.outer.lab import newer_slurm
from tests.outer.slurm.native import NativeLab


@pytest.fixture(scope="module", params=["22.05", pytest.param("24.11", marks=pytest.mark.soak)])
def release(request: pytest.FixtureRequest) -> Any:
    """Of which Slurm the module's cluster is: None, or the folder of the newer one."""
    root: Path | None = None if request.param == "22.05" else newer_slurm()
    return root


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[NativeLab]:
    with NativeLab(nodes=4, cpus=64) as lab:
        yield lab


@pytest.fixture
def lab(shared_lab: NativeLab) -> Iterator[NativeLab]:
    """The cluster, empty; what a test leaves behind is ended, and must leave nothing."""
    yield shared_lab
    left = [str(job.id) for job in shared_lab.jobs().values() if not job.over]
    if left:
        shared_lab.run("scancel", *left)
    shared_lab.wait("an empty cluster", lambda jobs: all(job.over for job in jobs.values()))
    shared_lab.wait_free()
