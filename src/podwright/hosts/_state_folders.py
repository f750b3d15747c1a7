"""The folders in which serving commands keep files that must outlive them."""

from __future__ import annotations

import os
from pathlib import Path

from podwright.ground.durable_files import user_folder
from podwright.ground.endpoints import system_path

_SYSTEM_STATE_FOLDER = Path(system_path("/var/lib/podwright"))


def own_key(*, system: bool) -> Path:
    """Return the key file that a server and the agents on its machine share when none is named.

    system: that of the machine's server and its agents; else that of this account.
    """
    named_key = os.environ.get("PODWRIGHT_AGENT_KEY", "")
    return Path(named_key) if named_key else state_folder(system=system) / "agent.key"


def state_folder(*, system: bool) -> Path:
    """Return the machine's folder, or this account's (XDG base directories).

    Root's account is like any other: only `--system` means the machine.
    """
    if system:
        return _SYSTEM_STATE_FOLDER
    return Path(user_folder("state")) / "podwright"
