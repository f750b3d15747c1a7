"""A job's summary at its end: an Epilog that notes the job and goes on at once. What it starts
waits for Slurm's accounting and writes. The site's own Epilog runs as before, and its code counts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podwright.slurm.gpus.configure._gates import PATH, first
from podwright.slurm.gpus.configure._lines import OURS
from podwright.slurm.site.edit import settings
from podwright.slurm.site.files import read

_OURS = f"# Summaries of jobs, by podwright slurm configure --gpus --summary{OURS}\n"
#: On the first node of a job that had GPUs. It is detached before the script ends: Slurm then
#: kills the script's process group. Slurm 22.05 calls the list of nodes SLURM_NODELIST.
_NOTE = """\
nodes=${SLURM_JOB_NODELIST:-$SLURM_NODELIST}
[ "$(scontrol show hostnames "$nodes" | head -n 1)" = "$SLURMD_NODENAME" ] || exit
mkdir -p -m 700 "$1" && : >"$1/$SLURM_JOB_ID" || exit
"""


class Summary(NamedTuple):
    """path: of the script. podwright: the command on the nodes. where: `comment`, `output` or
    `both`. folder: on each node, for the numbers of jobs that have ended; root's alone."""

    path: str
    podwright: str
    where: str = "comment"
    folder: str = "/run/podwright/ended"

    @property
    def script(self) -> Path:
        """Where it is written."""
        return Path(self.path)


def settings_of(summary: Summary) -> dict[str, str]:
    """What slurm.conf must say."""
    return {"Epilog": summary.path}


def script(summary: Summary, conf: Path, theirs: str) -> str:
    """The script. theirs: the Epilog that there is without it; empty where there is none."""
    own = shlex.join([summary.podwright, "slurm", "efficiency", f"--write={summary.where}"])
    behind = f'{_NOTE}exec {own} --ended="$1"'
    started = f"( {behind} ) </dev/null >/dev/null 2>&1 &"
    lines = ["#!/bin/sh\n", _OURS, f"PATH={PATH}\n", f"SLURM_CONF={shlex.quote(str(conf))}\n"]
    lines += [
        "export PATH SLURM_CONF\n",
        'if [ -n "${SLURM_JOB_GPUS-}" ]; then\n',
        f"setsid sh -c {shlex.quote(started)} - {shlex.quote(summary.folder)} || :\nfi\n",
        first(theirs, "exit"),
    ]
    return "".join([*lines, "exit 0\n"])


def notes(now: Mapping[str, str]) -> list[str]:
    """What an administrator should hear."""
    out = []
    if "slurmdbd" not in now.get("accountingstoragetype", ""):
        out.append("summaries need AccountingStorageType=accounting_storage/slurmdbd")
    if "runinjob" in now.get("prologflags", "").lower():
        out.append(
            "PrologFlags has RunInJob: Slurm ends with the job what its Epilog started, so there "
            "will be no summaries; run podwright slurm efficiency JOB --comment from cron"
        )
    return out


def known(conf: Path) -> list[Path]:
    """Scripts of ours that this slurm.conf names."""
    if not conf.exists():
        return []
    path = Path(settings(read(conf)).get("epilog", ""))
    return [path] if path.is_file() and _OURS in read(path) else []
