"""Each step of a job samples its GPUs: a TaskProlog that starts the sampler beside a node's first
task and goes on at once. What the site has as its TaskProlog runs first, and its words count.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podwright.slurm.gpus.configure._lines import OURS
from podwright.slurm.site.edit import settings
from podwright.slurm.site.files import read

_OURS = f"# Samples of GPUs, by podwright slurm configure --gpus --efficiency{OURS}\n"


class Sampling(NamedTuple):
    """path: of the script. podwright: the command on the nodes. every: seconds."""

    path: str
    podwright: str
    every: float = 10.0

    @property
    def script(self) -> Path:
        """Where it is written."""
        return Path(self.path)


def settings_of(sampling: Sampling) -> dict[str, str]:
    """What slurm.conf must say."""
    return {"TaskProlog": sampling.path}


def script(sampling: Sampling, now: Mapping[str, str]) -> str:
    """The script. Its output is read by Slurm, line by line; the sampler's is not. It runs as the
    user, in the task's own environment."""
    theirs = now.get("taskprolog", "")
    lines = ["#!/bin/sh\n", _OURS]
    if theirs:
        lines.append(f'{shlex.quote(theirs)} "$@" || exit\n')
    command = f"{shlex.quote(sampling.podwright)} slurm sample --every={sampling.every:g} --below="
    lines += [
        '[ "${SLURM_LOCALID:-0}" = 0 ] || exit 0\n',
        '[ -n "${SLURM_JOB_GPUS-}${SLURM_STEP_GPUS-}${CUDA_VISIBLE_DEVICES-}" ] || exit 0\n',
        ': "${PODWRIGHT_SAMPLES:=$PWD/slurm-$SLURM_JOB_ID.gpus}"\n',
        'export PODWRIGHT_SAMPLES\necho "export PODWRIGHT_SAMPLES=$PODWRIGHT_SAMPLES"\n',
        # In a session of its own before this ends: Slurm then kills this one's process group.
        f"setsid sh -c {shlex.quote(command + '$1 </dev/null >/dev/null 2>&1 &')} - $PPID\n",
        "exit 0\n",
    ]
    return "".join(lines)


def known(conf: Path) -> list[Path]:
    """Scripts of ours that this slurm.conf names."""
    if not conf.exists():
        return []
    path = Path(settings(read(conf)).get("taskprolog", ""))
    return [path] if path.is_file() and _OURS in read(path) else []
