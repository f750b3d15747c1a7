"""Samples the GPUs of each job step: a TaskProlog starts the sampler beside the first task of each
node and returns at once. The site's own TaskProlog runs first, and its output still counts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podwright.gpu.configure._edit_conf_lines import OWN_LINE_SUFFIX
from podwright.slurm.site.conf_lines import settings
from podwright.slurm.site.files import read

_SCRIPT_HEADER = (
    f"# Samples of GPUs, by podwright slurm configure --gpus --efficiency{OWN_LINE_SUFFIX}\n"
)


class Sampling(NamedTuple):
    """path: of the script. podwright: the command on the nodes. interval: seconds between two
    samples."""

    path: str
    podwright: str
    interval: float = 10.0

    @property
    def script(self) -> Path:
        """The path to which the script is written."""
        return Path(self.path)


def settings_of(sampling: Sampling) -> dict[str, str]:
    """The settings that slurm.conf needs for sampling."""
    return {"TaskProlog": sampling.path}


def script(sampling: Sampling, site_settings: Mapping[str, str]) -> str:
    """The text of the script. It runs as the user, in the task's environment. Slurm reads its
    output line by line; the output of the sampler goes nowhere."""
    site_program = site_settings.get("taskprolog", "")
    script_lines = ["#!/bin/sh\n", _SCRIPT_HEADER]
    if site_program:
        script_lines.append(f'{shlex.quote(site_program)} "$@" || exit\n')
    quoted_program = shlex.quote(sampling.podwright)
    sampler_command = f"{quoted_program} slurm sample --every={sampling.interval:g} --below="
    script_lines += [
        '[ "${SLURM_LOCALID:-0}" = 0 ] || exit 0\n',
        '[ -n "${SLURM_JOB_GPUS-}${SLURM_STEP_GPUS-}${CUDA_VISIBLE_DEVICES-}" ] || exit 0\n',
        ': "${PODWRIGHT_SAMPLES:=$PWD/slurm-$SLURM_JOB_ID.gpus}"\n',
        'export PODWRIGHT_SAMPLES\necho "export PODWRIGHT_SAMPLES=$PODWRIGHT_SAMPLES"\n',
        # The sampler needs its own session: Slurm kills the script's process group at its end.
        f"setsid sh -c {shlex.quote(sampler_command + '$1 </dev/null >/dev/null 2>&1 &')} - "
        "$PPID\n",
        "exit 0\n",
    ]
    return "".join(script_lines)


def known(conf_path: Path) -> list[Path]:
    """The sampling scripts of ours that this slurm.conf names."""
    if not conf_path.exists():
        return []
    script_path = Path(settings(read(conf_path)).get("taskprolog", ""))
    return [script_path] if script_path.is_file() and _SCRIPT_HEADER in read(script_path) else []
