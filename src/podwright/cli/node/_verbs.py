"""`podwright node …`: the verbs about one node, which check whether it is fit for jobs, and
fast.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

#: Each verb, and the module that adds it.
_VERBS = {"health": "_health", "bench": "_bench"}


def add_parser(subparsers: Any, words: Sequence[str] = ()) -> None:
    """Add `node` and its verbs; if `words` begin with a verb, only that one."""
    parser = subparsers.add_parser(
        "node", help="check whether a GPU node is healthy, and as fast as others"
    )
    verbs = parser.add_subparsers(
        metavar="VERB", dest="node_verb", required=True, prog="podwright node"
    )
    verb = words[0] if words else ""
    for name in (_VERBS[verb],) if verb in _VERBS else _VERBS.values():
        importlib.import_module(f"podwright.cli.node.{name}").add_parser(verbs)


def main(arguments: argparse.Namespace) -> int:
    """Run the verb that was parsed. Returns the exit code."""
    code: int = arguments.run_node(arguments)
    return code
