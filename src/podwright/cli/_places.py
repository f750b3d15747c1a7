"""Where commands that serve keep what must outlive them."""

from __future__ import annotations

import os
from pathlib import Path

_SYSTEM = Path("/var/lib/podwright")


def own_key(*, system: bool | None = None) -> Path:
    """The key that the server and the agents of this machine share, unless they are told another:
    a private file of their account's. system: of the system's server; by default, as root's is."""
    named = os.environ.get("PODWRIGHT_AGENT_KEY", "")
    system = os.geteuid() == 0 if system is None else system
    return Path(named) if named else state_folder(system=system) / "agent.key"


def state_folder(*, system: bool) -> Path:
    """The system's folder, or this user's (XDG base directories)."""
    if system:
        return _SYSTEM
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else Path.home() / ".local/state") / "podwright"
