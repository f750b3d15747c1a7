"""A node of eight GPUs: the library's stand-in, and a kernel's /sys that agrees with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.hosts.gpus import Library, open_libraries
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE
from tests.machines.node import HGX, make_sys


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """The file that describes the node; a test may write another."""
    path = tmp_path / "node.toml"
    path.write_text(HGX)
    return path


@pytest.fixture
def nvml(described: Path) -> Iterator[Library]:
    """The stand-in, below pynvml."""
    (library,), notes = open_libraries({STANDIN_VARIABLE: str(described)})
    assert notes == []
    yield library
    library.close()


@pytest.fixture
def sys_root(tmp_path: Path) -> str:
    """A root folder with the node's /sys and /proc in it."""
    return make_sys(tmp_path / "root")
