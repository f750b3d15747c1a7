"""Outcomes as one line, as the record of real Slurm has them.

`2 nodes: 0[0,1] 1[0,1]` lists each task in the order of ranks as node[CUDA_VISIBLE_DEVICES];
otherwise it is the stage at which Slurm refuses.
"""

from __future__ import annotations

import shlex

from podwright.slurm.requests import OLDEST, Refusal, Shape, Version, explain, parse_request
from podwright.wire import PodwrightError

SHAPE = Shape(nodes=4, sockets=2, cores_per_socket=4, gpus=4, kinds=("a100",), confined=False)


def line(nodes: int, tasks: list[tuple[int, str]]) -> str:
    """An outcome as one line."""
    return f"{nodes} nodes: " + " ".join(f"{node}[{text}]" for node, text in tasks)


def expected(command: str, options: str, shape: Shape = SHAPE, *, version: Version = OLDEST) -> str:
    """What our rules say."""
    try:
        answer = explain(parse_request(shlex.split(options), command), shape, version)
    except PodwrightError:
        return "submit"
    if isinstance(answer, Refusal):
        return answer.stage
    used = {task.node for task in answer.tasks}
    texts = [(t.node, "unset" if t.variable is None else t.variable) for t in answer.tasks]
    return line(len(used), texts)
