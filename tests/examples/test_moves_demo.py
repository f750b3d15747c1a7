"""`make demo DEMO=moves`: three launches finish, one of them on other devices than it began on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "moves.py"


@pytest.mark.soak
def test_the_demo_of_moves_shows_what_it_says() -> None:
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as folder:
        ran = subprocess.run(
            [sys.executable, str(DEMO)],
            env={**os.environ, "TMPDIR": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "asks this launch to move" in ran.stdout
        assert ran.stdout.count("test accuracy 0.9") == 3
        assert os.listdir(folder) == []
