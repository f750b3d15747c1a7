"""Prism, which judges requests and answers by an OpenAPI document: pinned, from npm, once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

#: NVIDIA's document of NMX-M's REST API (85.1), Apache-2.0; see LICENSE.opennmxm beside it.
SPECIFICATION = Path(__file__).with_name("opennmxm.yaml")


def prism_command() -> Path:
    """The command, installed into the environment that runs the tests where it is missing."""
    folder = Path(sys.prefix) / "prism"
    command = folder / "node_modules/.bin/prism"
    if not command.exists():
        fresh = folder.with_name("prism.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(Path(__file__).with_name(name), fresh)
        npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(npm, cwd=fresh, check=True, timeout=600)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    return command
