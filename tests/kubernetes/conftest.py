"""Fixtures of the Kubernetes ring. Nothing is skipped: a missing program is an error that
names it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.kubernetes.lab import PATIENT, KubeLab, sweep
from tests.outer.lab import LabError, sweep_dead_labs


@pytest.fixture(scope="session")
def _clean_start() -> None:
    if os.geteuid() != 0:
        raise LabError("the Kubernetes tests need root: namespaces, control groups, daemons")
    sweep_dead_labs()
    sweep()


@pytest.fixture(scope="session")
def plane(_clean_start: None) -> Iterator[KubeLab]:
    """A control plane without nodes, for tests that leave all its daemons running."""
    with KubeLab(options=PATIENT) as lab:
        yield lab


@pytest.fixture(scope="session")
def cluster(_clean_start: None) -> Iterator[KubeLab]:
    """A control plane with two real nodes, for tests that leave them unchanged."""
    with KubeLab(nodes=2) as lab:
        yield lab


@pytest.fixture
def kube_lab(_clean_start: None) -> Iterator[Callable[..., KubeLab]]:
    """Makes started labs from the arguments of KubeLab. They end with the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(KubeLab(**options))
