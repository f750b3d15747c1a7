"""`podwright node …`: the verb about one node: is it fit for jobs."""

from __future__ import annotations

from podwright.cli.shared._verb_definition import VerbGroup

VERBS = (
    VerbGroup(
        "podwright node",
        "check whether a GPU node is healthy",
        modules={"health": "node._health"},
    ),
)
