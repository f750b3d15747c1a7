"""The colours of tables, on terminals that have them and whose users want them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

_BOLD, _GREEN, _YELLOW, _RED, _DIM = "1", "32", "33", "31", "2"
#: The states in tables, and the colour by which each shows trouble.
_COLOUR_BY_STATE = {
    **dict.fromkeys(("ACTIVE", "UP", "OK", "ok", "HELD", "COMPLETED", "pass"), _GREEN),
    **dict.fromkeys(
        ("PENDING", "CREATING", "RESETTING", "REMOVING", "FENCING", "DRAINED", "DRAINING"), _YELLOW
    ),
    **dict.fromkeys(("WAITING", "WARNING", "warning", "unknown"), _YELLOW),
    **dict.fromkeys(("ERROR", "FAILED", "DOWN", "PROBLEM", "problem", "NO", "fail"), _RED),
    **dict.fromkeys(("IDLE", "REMOVED", "-"), _DIM),
}


def colours(environ: Mapping[str, str] | None = None, stream: TextIO | None = None) -> bool:
    """Return whether standard output is a terminal whose user wants colours (no-color.org)."""
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR") or environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        return (stream or sys.stdout).isatty()
    except ValueError:  # the stream is closed
        return False


def heading(heading_text: str) -> str:
    """Return a table's header in bold."""
    return f"\x1b[{_BOLD}m{heading_text}\x1b[0m"


def state(cell: str) -> str:
    """Return a padded cell, in colour if it is a state."""
    code = _COLOUR_BY_STATE.get(cell.strip())
    return f"\x1b[{code}m{cell}\x1b[0m" if code else cell
