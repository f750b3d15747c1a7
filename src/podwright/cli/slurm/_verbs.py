"""`podwright slurm …`: the sub-commands that concern Slurm, one small file each.

`podwright` calls `add_parser` with its own sub-parsers, and `main` with the parsed arguments.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

#: Each verb, and the module that adds it.
_VERBS = {
    "adopt": "_adopt",
    "explain-request": "_explain",
    "lint": "_lint",
    "rehearse": "_rehearse",
    "twin": "_twin",
    "check-binding": "_binding",
    "template": "_template",
    "check-fabric": "_fabric",
    "efficiency": "_efficiency",
    "sample": "_efficiency",
    "configure": "_configure",
    "build": "_configure",
    "serve": "_serve",
    "serve-lint": "_submission",
    "check": "_check",
    "recover": "_recover",
}


def add_parser(subparsers: Any, words: Sequence[str] = ()) -> None:
    """Add `slurm` and its verbs; if `words` begin with a verb, only that one."""
    parser = subparsers.add_parser("slurm", help="requests, scripts and logs of jobs under Slurm")
    verbs = parser.add_subparsers(
        metavar="VERB", dest="slurm_verb", required=True, prog="podwright slurm"
    )
    verb = words[0] if words else ""
    for name in (_VERBS[verb],) if verb in _VERBS else dict.fromkeys(_VERBS.values()):
        importlib.import_module(f"podwright.cli.slurm.{name}").add_parser(verbs)


def main(arguments: argparse.Namespace) -> int:
    """Run the verb that was parsed. Returns the exit code."""
    code: int = arguments.run_slurm(arguments)
    return code
