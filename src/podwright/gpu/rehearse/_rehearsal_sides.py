"""Today's and tomorrow's side of a rehearsal: a site's files, and the Slurm that reads them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from podwright.errors import Unavailable
from podwright.gpu.rehearse._rehearse import Side
from podwright.gpu.requests import read_site_files
from podwright.slurm.site.blocking_commands import ask_slurm
from podwright.slurm.site.releases import release_of
from podwright.slurm.twin import find_slurm, present_copied


def find_sides(
    *,
    slurm_conf: str | None,
    today_conf: str | None,
    slurm_prefix: str | None,
    today_prefix: str | None,
    state_folder: str | None,
) -> tuple[Side, Side]:
    """Return today's and tomorrow's side, as the options of `podwright slurm rehearse` name them.

    Raises Unavailable when a Slurm is not on this machine.
    """
    old_conf = Path(today_conf or _local_slurm_conf())
    old_files = read_site_files(old_conf)
    old_slurm = find_slurm(path=today_prefix or "")
    if old_slurm is None:
        raise Unavailable(
            f"there is no slurmctld {_prefix_text(today_prefix)}, so Slurm cannot be asked",
            would_work="Install slurmctld (Debian: slurmctld; SchedMD, EPEL: slurm-slurmctld), "
            "or name its prefix with --slurm-today",
        )
    new_slurm = find_slurm(path=slurm_prefix) if slurm_prefix else old_slurm
    if new_slurm is None:
        raise Unavailable(
            f"there is no slurmctld {_prefix_text(slurm_prefix)}",
            would_work="--slurm names a prefix with sbin/slurmctld, or an unpacked system",
        )
    new_conf, new_files = old_conf, old_files
    if slurm_conf:
        new_conf = Path(slurm_conf)
        new_files = read_site_files(new_conf, old_files)
    cluster_state = present_copied(Path(state_folder)) if state_folder else None
    return (
        Side(str(old_conf), old_files, old_slurm, cluster_state),
        Side(str(new_conf), new_files, new_slurm, cluster_state),
    )


def _prefix_text(prefix: str | None) -> str:
    return f"below {prefix}" if prefix else "on this machine"


def _local_slurm_conf() -> str:
    if os.environ.get("SLURM_CONF"):
        return os.environ["SLURM_CONF"]
    conf_match = re.search(
        r"^SLURM_CONF\s*=\s*(/\S+)", ask_slurm(["scontrol", "show", "config"]), re.M
    )
    return conf_match[1] if conf_match else "/etc/slurm/slurm.conf"


def cautions(before: Side, after: Side) -> list[str]:
    """Return why a twin's answer can differ from the cluster's."""
    text = f"{before.files.slurm_conf}\n{after.files.slurm_conf}".lower()
    if "corespec" not in text and "cpuspeclist" not in text:
        return []
    return [
        f"a twin of Slurm {side.slurm.release} may hand out cores that CoreSpecCount reserves, "
        "so that CPUs and nodes can differ from the cluster's"
        for side in (before, after)
        if not release_of(side.slurm.version).twin_keeps_reserved_cores
    ][:1]
