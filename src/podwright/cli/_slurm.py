"""`podwright slurm …`: the sub-commands that concern Slurm, one small file each.

`podwright` calls `add_parser` with its own sub-parsers, and `main` with what was parsed.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

#: Each verb, and the module that adds it.
_VERBS = {
    "adopt": "_slurm_adopt",
    "explain-request": "_slurm_explain",
    "lint": "_slurm_lint",
    "check-binding": "_slurm_binding",
    "template": "_slurm_template",
    "check-fabric": "_slurm_fabric",
    "efficiency": "_slurm_efficiency",
    "sample": "_slurm_efficiency",
    "configure": "_slurm_configure",
    "build": "_slurm_configure",
    "serve": "_slurm_serve",
    "serve-lint": "_slurm_submission",
    "check": "_slurm_check",
}


def add_parser(subparsers: Any, words: Sequence[str] = ()) -> None:
    """Add `slurm` and its verbs; only the verb that `words` begin with, where it is one."""
    parser = subparsers.add_parser("slurm", help="requests, scripts and logs of jobs under Slurm")
    verbs = parser.add_subparsers(
        metavar="VERB", dest="slurm_verb", required=True, prog="podwright slurm"
    )
    one = words[0] if words else ""
    for name in (_VERBS[one],) if one in _VERBS else dict.fromkeys(_VERBS.values()):
        importlib.import_module(f"podwright.cli.{name}").add_parser(verbs)


def main(arguments: argparse.Namespace) -> int:
    """Run the verb that was parsed. Returns the exit code."""
    code: int = arguments.run_slurm(arguments)
    return code
