"""A node that is well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.gpus.health.node import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)
