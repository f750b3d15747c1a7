"""How the documentation is built; its reference of commands comes from the commands themselves."""

from __future__ import annotations

import os
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


def _write_reference(app: Sphinx) -> None:
    from tools.calls_page import calls_page
    from tools.pictures import house
    from tools.reference import reference_page

    from podwright.cli.about._command_parsers import COMMANDS

    os.environ["COLUMNS"] = "96"
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    for command in COMMANDS:
        _write(folder / f"{command}.md", reference_page(command))
    _write(Path(app.srcdir) / "pictures" / "house.svg", house())
    _write(folder / "roles.md", ROLES + calls_page())


def _write(page: Path, text: str) -> None:
    if not page.exists() or page.read_text() != text:
        page.write_text(text)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", _write_reference)
