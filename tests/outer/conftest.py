"""Fixtures of the outer ring. Nothing is skipped: what is missing is an error that says so."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.outer.lab import HostsLab, LabError, SlurmLab, newer_slurm, sweep_dead_labs
from tests.outer.postgres import Postgres


@pytest.fixture(scope="session", autouse=True)
def _clean_start() -> None:
    if os.geteuid() != 0:
        raise LabError("the outer tests need root: namespaces, other users, daemons")
    sweep_dead_labs()


@pytest.fixture
def slurm_lab() -> Iterator[Callable[..., SlurmLab]]:
    """Makes started labs with the arguments of SlurmLab; they end with the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(SlurmLab(**options))


@pytest.fixture
def hosts_lab() -> Iterator[Callable[..., HostsLab]]:
    """Makes started networks of hosts; they end with the test."""
    with ExitStack() as stack:
        yield lambda *names: stack.enter_context(HostsLab(names))


@pytest.fixture(scope="session")
def slurm_24() -> Path:
    """The folder of Debian's next release with Slurm 24.11."""
    return newer_slurm()


@pytest.fixture(scope="session", params=["22.05", "24.11"])
def slurm_release(request: pytest.FixtureRequest) -> Any:
    """Both Slurms that the tests know: pass it as SlurmLab(release=...)."""
    return None if request.param == "22.05" else newer_slurm()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL cluster of the tests' own, for tests that leave it running."""
    with Postgres() as cluster:
        yield cluster
