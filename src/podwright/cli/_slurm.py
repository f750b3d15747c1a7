"""`podwright slurm …`: the sub-commands that concern Slurm, one small file each.

`podwright` calls `add_parsers` with its own sub-parsers, and `main` with what was parsed.
"""

from __future__ import annotations

import argparse
from typing import Any

from podwright.cli import (
    _slurm_adopt,
    _slurm_binding,
    _slurm_check,
    _slurm_configure,
    _slurm_explain,
    _slurm_fabric,
    _slurm_lint,
    _slurm_serve,
    _slurm_template,
)

_VERBS = (
    _slurm_adopt,
    _slurm_explain,
    _slurm_lint,
    _slurm_binding,
    _slurm_template,
    _slurm_fabric,
    _slurm_configure,
    _slurm_serve,
    _slurm_check,
)


def add_parsers(subparsers: Any) -> None:
    """Add `slurm` and its verbs to the sub-parsers of `podwright`."""
    parser = subparsers.add_parser("slurm", help="requests, scripts and logs of jobs under Slurm")
    verbs = parser.add_subparsers(metavar="VERB", dest="slurm_verb", required=True)
    for module in _VERBS:
        module.add_parser(verbs)


def main(arguments: argparse.Namespace) -> int:
    """Run the verb that was parsed. Returns the exit code."""
    code: int = arguments.run_slurm(arguments)
    return code
