"""Writes a summary of each job at its end: an Epilog notes the job, starts a writer and returns at
once. The writer waits for Slurm's accounting. The site's own Epilog runs as before, and its exit
code counts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podwright.gpu.configure._edit_conf_lines import OWN_LINE_SUFFIX
from podwright.gpu.configure._health_gate_script import SCRIPT_PATH_VARIABLE, first
from podwright.slurm.site.edit import settings
from podwright.slurm.site.files import read

_SCRIPT_HEADER = (
    f"# Summaries of jobs, by podwright slurm configure --gpus --summary{OWN_LINE_SUFFIX}\n"
)
#: It runs on the first node of a job that had GPUs. It is detached before the script ends, because
#: Slurm then kills the script's process group. Slurm 22.05 calls the list of nodes SLURM_NODELIST.
_NOTE_JOB_SCRIPT = """\
nodes=${SLURM_JOB_NODELIST:-$SLURM_NODELIST}
[ "$(scontrol show hostnames "$nodes" | head -n 1)" = "$SLURMD_NODENAME" ] || exit
mkdir -p -m 700 "$1" && : >"$1/$SLURM_JOB_ID" || exit
"""


class Summary(NamedTuple):
    """path: of the script. podwright: the command on the nodes. where: `comment`, `output` or
    `both`.

    folder: on each node, private to root, for the numbers of jobs that have ended.
    """

    path: str
    podwright: str
    where: str = "comment"
    folder: str = "/run/podwright/ended"

    @property
    def script(self) -> Path:
        """The path to which the script is written."""
        return Path(self.path)


def settings_of(summary: Summary) -> dict[str, str]:
    """The settings that slurm.conf needs for summaries."""
    return {"Epilog": summary.path}


def script(summary: Summary, conf_path: Path, site_epilog: str) -> str:
    """Return the text of the script. site_epilog: the site's own Epilog; empty if there is none."""
    writer_command = shlex.join(
        [summary.podwright, "slurm", "efficiency", f"--write={summary.where}"]
    )
    shell_command = f'{_NOTE_JOB_SCRIPT}exec {writer_command} --ended="$1"'
    background_command = f"( {shell_command} ) </dev/null >/dev/null 2>&1 &"
    script_lines = [
        "#!/bin/sh\n",
        _SCRIPT_HEADER,
        f"PATH={SCRIPT_PATH_VARIABLE}\n",
        f"SLURM_CONF={shlex.quote(str(conf_path))}\n",
    ]
    script_lines += [
        "export PATH SLURM_CONF\n",
        'if [ -n "${SLURM_JOB_GPUS-}" ]; then\n',
        f"setsid sh -c {shlex.quote(background_command)} - {shlex.quote(summary.folder)} || "
        ":\nfi\n",
        first(site_epilog, "exit"),
    ]
    return "".join([*script_lines, "exit 0\n"])


def notes(site_settings: Mapping[str, str]) -> list[str]:
    """Notes about summaries for the administrator."""
    note_lines = []
    if "slurmdbd" not in site_settings.get("accountingstoragetype", ""):
        note_lines.append("summaries need AccountingStorageType=accounting_storage/slurmdbd")
    if "runinjob" in site_settings.get("prologflags", "").lower():
        note_lines.append(
            "PrologFlags has RunInJob: Slurm ends with the job what its Epilog started, so there "
            "will be no summaries; run podwright slurm efficiency JOB --comment from cron"
        )
    return note_lines


def known(conf_path: Path) -> list[Path]:
    """The summary scripts of ours that this slurm.conf names."""
    if not conf_path.exists():
        return []
    script_path = Path(settings(read(conf_path)).get("epilog", ""))
    return [script_path] if script_path.is_file() and _SCRIPT_HEADER in read(script_path) else []
