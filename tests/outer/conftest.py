"""Fixtures of the outer ring. Nothing is skipped: what is missing is an error that says so."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.outer.lab import (
    HostsLab,
    LabError,
    Release,
    SlurmLab,
    moved_on,
    release,
    sweep_dead_labs,
)
from tests.outer.postgres import Postgres

_FOLDER = Path(__file__).parent
_RINGS = {"outer", "slurm", "twin", "kubernetes", "soak"}


#: Files of minutes, the longest first. A worker that got one of them last would end long after the
#: others.
_LONGEST = (
    "test_packages.py",
    "test_older_build.py",
    "test_hosts_killed.py",
    "test_start.py",
    "test_configure.py",
    "test_changed_licences.py",
    "test_site.py",
    "test_two_controllers.py",
    "test_present.py",
    "test_shared_pod.py",
    "test_any_site.py",
    "test_tutorial.py",
    "test_admin_page.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first. Refuse a test of this folder without the mark of a ring, since
    `make test` does not collect the folder.
    """
    order = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    for item in items:
        if _FOLDER in item.path.parents and not _RINGS.intersection(
            mark.name for mark in item.iter_markers()
        ):
            raise pytest.UsageError(f"{item.nodeid} has no mark of a ring: {sorted(_RINGS)}")


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
def middle() -> Release:
    """The release between: Slurm 24.11."""
    return release("middle")


@pytest.fixture(scope="session", params=["oldest", "middle", "newest"])
def every_release(request: pytest.FixtureRequest) -> Release:
    """All Slurms that the tests know, one after another: for what is short."""
    return release(request.param)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in moved_on():
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL cluster of the tests' own, for tests that leave it running."""
    with Postgres() as cluster:
        yield cluster
