"""One cluster with native mode for all tests that leave it as they found it."""

from collections.abc import Iterator

import pytest

from tests.outer.lab import Release
from tests.outer.lab import release as find_release
from tests.outer.slurm.native import NativeLab


@pytest.fixture(
    scope="module",
    params=["oldest", pytest.param("middle", marks=pytest.mark.soak), "newest"],
)
def release(request: pytest.FixtureRequest) -> Release:
    """Of which Slurm the module's cluster is: the outermost always, the one between under soak."""
    return find_release(request.param)


@pytest.fixture(
    scope="session",
    params=["oldest", pytest.param("middle", marks=pytest.mark.soak), "newest"],
)
def shared_lab(request: pytest.FixtureRequest) -> Iterator[NativeLab]:
    with NativeLab(nodes=4, cpus=64, release=find_release(request.param)) as lab:
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
