"""How the documentation is built; its reference of commands comes from the commands themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sphinx.application import Sphinx

import podwright

project = "Podwright"
author = "The Podwright developers"
copyright = "The Podwright developers"
release = version = podwright.__version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Podwright"
exclude_patterns = ["_build", "**/NOTE-*"]
#: Pages that this file writes, with the commands and sub-commands that they show.
COMMANDS = {
    "vipu": [
        "",
        "create partition",
        "list partitions",
        "get partition",
        "reset partition",
        "remove partition",
    ],
    "vipu-admin": ["", "create agent", "create cluster", "create allocation", "create user"],
    "vipu-agent": [""],
    "vipu-server": [""],
    "poprun": [""],
    "podwright": [""],
    "gc-info": [""],
    "gc-monitor": [""],
}


def _help(command: str, words: str) -> str:
    """What `--help` prints; raises CalledProcessError for a command that has none."""
    return subprocess.run(
        [Path(sys.executable).parent / command, *words.split(), "--help"],
        env={**os.environ, "COLUMNS": "96", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def _write_reference(app: Sphinx) -> None:
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    for command, uses in COMMANDS.items():
        parts = [f"# {command}\n"]
        for words in uses:
            if words:
                parts.append(f"## {command} {words}\n")
            parts.append(f"```text\n{_help(command, words)}```\n")
        page = folder / f"{command}.md"
        text = "\n".join(parts)
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", _write_reference)
