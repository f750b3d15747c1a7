"""Recognises which of Slurm's outputs a text is, so that users can give files of any name."""

from __future__ import annotations

import re
from typing import Final

_OUTPUT_KIND_PATTERNS: Final = (
    ("config", re.compile(r"^SLURM_VERSION\s*=", re.M)),
    # Lines of slurm.conf begin with the same field, and go on with others.
    ("nodes", re.compile(r"\s*NodeName=\S+\s+(?:Arch|CoresPerSocket)=")),
    ("partitions", re.compile(r"\s*PartitionName=\S+\s+AllowGroups=")),
    ("topology", re.compile(r"\s*(?:SwitchName|BlockName)=\S+\s+(?:Level|BlockIndex)=")),
)


def kind_of_output(slurm_output: str) -> str:
    """Return `config`, `nodes`, `partitions` or `topology`, or "" for anything else."""
    for output_kind, output_pattern in _OUTPUT_KIND_PATTERNS:
        if (
            output_pattern.search(slurm_output)
            if output_kind == "config"
            else output_pattern.match(slurm_output)
        ):
            return output_kind
    return ""
