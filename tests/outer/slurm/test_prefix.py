"""`podwright slurm build` where Slurm lies in a folder of its own, beside the distribution's."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.outer.lab import Release
from tests.outer.lab import release as find_release
from tests.outer.slurm.native import PODWRIGHT

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


def _version(into: Path, path: str) -> tuple[int, int]:
    """For which Slurm the plugin is, as slurmd reads it, where PATH begins with this."""
    done = subprocess.run(
        [*PODWRIGHT, "slurm", "build", "--into", str(into)],
        env={**os.environ, "PATH": f"{path}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plugin = into / "spank_podwright.so"
    names = subprocess.run(["nm", "-D", plugin], capture_output=True, text=True, check=True).stdout
    found = re.search(r"^([0-9a-f]+) R plugin_version$", names, re.MULTILINE)
    assert found, names
    # What is read only lies in the file where it will lie in memory.
    (number,) = struct.unpack_from("<I", plugin.read_bytes(), int(found[1], 16))
    return number >> 16, number >> 8 & 0xFF


def test_the_slurm_on_path_is_built_for(tmp_path: Path) -> None:
    """Real headers of two releases on one machine: laid out as `make install` does."""
    newest, own = find_release("newest"), Release("oldest", None)
    assert newest.root
    usr, prefix = newest.root / "usr", tmp_path / "opt" / "slurm"
    shutil.copytree(usr / "include" / "slurm", prefix / "include" / "slurm")
    (prefix / "lib" / "slurm").mkdir(parents=True)
    (prefix / "bin").mkdir()
    shutil.copy(usr / "bin" / "scontrol", prefix / "bin")
    assert _version(tmp_path / "one", f"{prefix}/bin:") == newest.version
    assert _version(tmp_path / "other", "") == own.version
    assert newest.version != own.version
