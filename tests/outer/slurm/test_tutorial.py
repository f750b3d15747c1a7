"""docs/tutorial.md as printed, on a machine of its own: each line typed, each answer there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tools.release import ROOT

from tests.outer.lab import Release
from tests.outer.machine import Machine
from tests.pages import blocks

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git keeps of this checkout."""
    folder = tmp_path_factory.mktemp("checkout") / "src"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in map(os.fsdecode, listed.stdout.rstrip(b"\0").split(b"\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.mark.parametrize(
    "release", ["newest", pytest.param("oldest", marks=pytest.mark.soak)], indirect=True
)
def test_every_line_of_the_tutorial(release: Release, checkout: Path, tmp_path: Path) -> None:
    with Machine(release, tmp_path, checkout) as machine:
        for block in blocks(ROOT / "docs" / "tutorial.md"):
            machine.type(block)
