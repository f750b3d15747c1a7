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
sys.path.insert(0, str(Path(__file__).parent.parent))
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
autodoc_member_order = "bysource"
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Podwright"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
#: The button copies what is typed: neither prompts nor what a command printed.
copybutton_prompt_text = r"[$#] "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.highlight-text) > div.highlight pre"
#: The examples stand in the commands' pages.
exclude_patterns = ["_build", "examples", "**/NOTE-*"]
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
    "vipu-admin": [
        "",
        "create agent",
        "create cluster",
        "create allocation",
        "create user",
        "create certificate",
    ],
    "vipu-agent": [""],
    "vipu-server": [""],
    "poprun": [""],
    "podwright": ["", "config", "inventory", "slurm adopt"],
    "gc-info": [""],
    "gc-monitor": [""],
}
ROLES = """\
# Calls and roles

Which role may make which call, and on whose objects. *own*: what belongs to the caller, and to \
create; of lists, what is the caller's. *its jobs'*: in the name of a user id and a job, and what \
was made so. *anonymous*: a caller on TCP who shows nothing, where the server is not secure; a \
secure server answers none of those but `AnnounceAgent`. `IssueToken` is answered on the Unix \
socket alone. A reader changes nothing, not even what was made in the reader's name.

The table is the one that the tests hold the server to, over the Unix socket, loopback with a \
token, TLS with a key, TLS with a certificate, MUNGE, and as nobody.

"""


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
        example = (Path(app.srcdir) / "examples" / f"{command}.md").read_text()
        parts = [f"# {command}\n", f"## Example\n\n{example}", "## Options\n"]
        for words in uses:
            if words:
                parts.append(f"## {command} {words}\n")
            parts.append(f"```text\n{_help(command, words)}```\n")
        page = folder / f"{command}.md"
        _write(page, "\n".join(parts))
    from tools.calls_page import calls_page
    from tools.pictures import house

    _write(Path(app.srcdir) / "pictures" / "house.svg", house())
    _write(folder / "roles.md", ROLES + calls_page())


def _write(page: Path, text: str) -> None:
    if not page.exists() or page.read_text() != text:
        page.write_text(text)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", _write_reference)
