"""`make demo DEMO=redfish`: devices are composed, trained on, attached, and given back."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "redfish.py"


def test_devices_of_two_hosts_are_composed_and_given_back() -> None:
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as folder:
        ran = subprocess.run(
            [sys.executable, str(DEMO)],
            env={**os.environ, "TMPDIR": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "podwright-two-hosts-host2: host2-Gpu0" in ran.stdout
        assert "test accuracy 0.9" in ran.stdout
        assert "podwright-there-another-host: another-host-Host, chassis1-Gpu0" in ran.stdout
        assert "The zones of the Redfish fabric:\n  none" in ran.stdout
        assert os.listdir(folder) == []
