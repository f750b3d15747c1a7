"""The state that a node keeps about its health: since when XIDs count, and the reason of its drain.

The state is in a folder that belongs to root. Its loss is harmless at any time: XIDs then count
from the start of the node again.
"""

from __future__ import annotations

import os
from pathlib import Path

from podwright.endpoints import system_path

FOLDER = Path(system_path("/var/lib/podwright/node-health"))


def replace(path: str | Path, text: str) -> None:
    """Replace a file atomically. Everybody may read it. Raises OSError."""
    import tempfile

    place = Path(path)
    number, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(number, "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise


def forget(folder: Path = FOLDER) -> str:
    """Stop counting the XIDs up to now. Returns the present time in words. Raises Unavailable."""
    from podwright.errors import Unavailable

    now = _uptime()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace(folder / "forgotten", f"{_boot()} {now}\n")
    except OSError as error:
        raise Unavailable(
            f"{error.filename}: {error.strerror}",
            operation="write down since when XIDs count",
            would_work="run it as root",
        ) from None
    return f"{now:.0f} s after the start of this node"


def forgotten(folder: Path = FOLDER) -> float:
    """Return since when XIDs count, in seconds after the start of this node."""
    try:
        boot, forgotten_at = (folder / "forgotten").read_text().split()
        return float(forgotten_at) if boot == _boot() else 0.0
    except (OSError, ValueError):
        return 0.0


def _uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
