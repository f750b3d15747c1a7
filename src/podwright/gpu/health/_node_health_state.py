"""The state that a node keeps about its health: since when faults in
the kernel's log count, and the reason of its drain.

The state is in a folder that belongs to root. Its loss is harmless at any time: faults then count
from the start of the node again.
"""

from __future__ import annotations

from pathlib import Path

from podwright.ground.durable_files import write_whole
from podwright.ground.endpoints import system_path

FOLDER = Path(system_path("/var/lib/podwright/node-health"))
#: The same for `podwright node clean`, whose drains are its own.
CLEAN_FOLDER = Path(system_path("/var/lib/podwright/node-clean"))


def forget(state_folder: Path = FOLDER) -> str:
    """Stop counting the faults up to now. Returns the present time in words. Raises Unavailable."""
    from podwright.errors import Unavailable

    uptime_s = _uptime_s()
    try:
        state_folder.mkdir(parents=True, exist_ok=True)
        write_whole(state_folder / "forgotten", f"{_boot()} {uptime_s}\n", 0o644)
    except OSError as error:
        raise Unavailable(
            f"{error.filename}: {error.strerror}",
            operation="write down since when faults count",
            would_work="run it as root",
        ) from None
    return f"{uptime_s:.0f} s after the start of this node"


def forgotten(state_folder: Path = FOLDER) -> float:
    """Return since when faults count, in seconds after the start of this node."""
    try:
        boot_id, forgotten_uptime_s = (state_folder / "forgotten").read_text().split()
        return float(forgotten_uptime_s) if boot_id == _boot() else 0.0
    except (OSError, ValueError):
        return 0.0


def _uptime_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
