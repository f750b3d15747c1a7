"""`podwright node …`: what concerns one node: is it fit for jobs, and fast?"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

#: Each verb, and the module that adds it.
_VERBS = {"health": "_node_health", "bench": "_node_bench"}


def add_parser(subparsers: Any, words: Sequence[str] = ()) -> None:
    """Add `node` and its verbs; only the verb that `words` begin with, where it is one."""
    parser = subparsers.add_parser(
        "node", help="is a GPU node fit for jobs, and as fast as others?"
    )
    verbs = parser.add_subparsers(
        metavar="VERB", dest="node_verb", required=True, prog="podwright node"
    )
    one = words[0] if words else ""
    for name in (_VERBS[one],) if one in _VERBS else _VERBS.values():
        importlib.import_module(f"podwright.cli.{name}").add_parser(verbs)


def main(arguments: argparse.Namespace) -> int:
    """Run the verb that was parsed. Returns the exit code."""
    code: int = arguments.run_node(arguments)
    return code
