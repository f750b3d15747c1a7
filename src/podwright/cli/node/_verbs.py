"""`podwright node …`: the verbs about one node: is it fit for jobs, and fast."""

from __future__ import annotations

from podwright.cli.shared._verb_definition import VerbGroup

VERBS = (
    VerbGroup(
        "podwright node",
        "check whether a GPU node is healthy, and as fast as others",
        modules={"health": "node._health", "bench": "node._bench"},
    ),
)
