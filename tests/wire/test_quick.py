"""The quick import of msgspec: what it left out is there afterwards, and it is no condition."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import podwright._quick

_FILE = podwright._quick.__file__


def _said(script: str, folder: Path) -> str:
    command = [sys.executable, "-c", script, str(_FILE)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_it_left_out_can_be_imported_afterwards(tmp_path: Path) -> None:
    script = (
        "import runpy, sys; runpy.run_path(sys.argv[1])\n"
        "assert 'uuid' not in sys.modules and 'decimal' not in sys.modules\n"
        "import uuid, decimal, msgspec.inspect\n"
        "print(uuid.UUID(int=1), decimal.Decimal(1), msgspec.json.encode([1]))"
    )
    assert _said(script, tmp_path) == "00000000-0000-0000-0000-000000000001 1 b'[1]'\n"


def test_a_msgspec_that_wants_more_gets_it(tmp_path: Path) -> None:
    package = tmp_path / "msgspec"
    package.mkdir()
    (package / "part.py").write_text("")
    (package / "__init__.py").write_text("import msgspec.part, uuid\nNAMED = uuid.NAMESPACE_DNS\n")
    script = (
        "import runpy, sys; runpy.run_path(sys.argv[1])\n"
        "assert 'msgspec.part' not in sys.modules\n"
        "import msgspec; print(msgspec.NAMED)"
    )
    assert _said(script, tmp_path) == "6ba7b810-9dad-11d1-80b4-00c04fd430c8\n"
