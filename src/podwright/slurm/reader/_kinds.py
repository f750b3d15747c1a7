"""Recognises which of Slurm's outputs a text is, so that users can give files of any name."""

from __future__ import annotations

import re
from typing import Final

_KINDS: Final = (
    ("config", re.compile(r"^SLURM_VERSION\s*=", re.M)),
    # Lines of slurm.conf begin with the same field, and go on with others.
    ("nodes", re.compile(r"\s*NodeName=\S+\s+(?:Arch|CoresPerSocket)=")),
    ("partitions", re.compile(r"\s*PartitionName=\S+\s+AllowGroups=")),
    ("topology", re.compile(r"\s*(?:SwitchName|BlockName)=\S+\s+(?:Level|BlockIndex)=")),
)


def kind_of_output(text: str) -> str:
    """Return `config`, `nodes`, `partitions` or `topology`, or "" for anything else."""
    for kind, shape in _KINDS:
        if shape.search(text) if kind == "config" else shape.match(text):
            return kind
    return ""
