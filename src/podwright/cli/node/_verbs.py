"""`podwright node …`: the verbs about one node: is it fit for jobs, and are its GPUs free."""

from __future__ import annotations

from podwright.cli.shared._verb_definition import VerbGroup

VERBS = (
    VerbGroup(
        "podwright node",
        "check whether a GPU node is healthy, and its GPUs free",
        modules={"health": "node._health", "clean": "node._clean"},
    ),
)
