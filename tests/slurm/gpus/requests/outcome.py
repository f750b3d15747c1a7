"""Outcomes as one line, as the record of real Slurm has them.

`2 nodes: 0[0,1] 1[0,1]` lists each task in the order of ranks as node[CUDA_VISIBLE_DEVICES], the
nodes counted in the order of their first tasks; otherwise it is the stage at which Slurm refuses.
"""

from __future__ import annotations

import shlex

from podwright.errors import PodwrightError
from podwright.slurm.gpus.requests import NodeHardware, SlurmRefusal, explain, parse_request
from podwright.slurm.site.releases import OLDEST, Version
from tests.slurm.gpus.requests.shapes import LAYOUTS

SHAPE = LAYOUTS["even"].shape()


def line(tasks: list[tuple[str, str]]) -> str:
    """An outcome as one line; tasks are (node, CUDA_VISIBLE_DEVICES) in the order of ranks."""
    nodes = list(dict.fromkeys(node for node, _ in tasks))
    return f"{len(nodes)} nodes: " + " ".join(
        f"{nodes.index(node)}[{seen}]" for node, seen in tasks
    )


def expected(
    command: str, options: str, shape: NodeHardware = SHAPE, *, version: Version = OLDEST
) -> str:
    """What our rules say."""
    try:
        answer = explain(parse_request(shlex.split(options), command), shape, version)
    except PodwrightError:
        return "submit"
    if isinstance(answer, SlurmRefusal):
        return answer.stage
    return line(
        [(str(t.node), "unset" if t.variable is None else t.variable) for t in answer.tasks]
    )
