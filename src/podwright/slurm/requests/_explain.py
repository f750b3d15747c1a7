"""The decision: a request and a shape of nodes in, what Slurm gives (or refuses) out.

A model of what Slurm 22.05.8 and 24.11.5 do, written from their sources and held against both.
Where the two differ, releases from 23.02 on are taken to do as 24.11 does.
"""

from __future__ import annotations

import re

from podwright.slurm.requests._bind import tasks_of
from podwright.slurm.requests._choose import choose
from podwright.slurm.requests._counts import Held, Wants
from podwright.slurm.requests._notes import notes
from podwright.slurm.requests._options import OLDEST, Version
from podwright.slurm.requests._pick import pick
from podwright.slurm.requests._request import Request
from podwright.slurm.requests._spread import spread
from podwright.slurm.requests._step import run_step
from podwright.slurm.requests._values import Grant, NodeGrant, Refusal, Shape
from podwright.slurm.requests._wants import wants_of

MENDED: Version = (23, 2)
TASKS_ALONE: tuple[Version, Version] = ((22, 5), (23, 11))  # srun ignores its job's -c

_BIND = re.compile(
    r"(verbose,)?(none|closest|single:[1-9]\d*|per_task:[1-9]\d*"
    r"|map_gpu:[\dx*,a-fA-F]+|mask_gpu:[\dxa-fA-F*,]+)$"
)


def explain(request: Request, shape: Shape, version: Version = OLDEST) -> Grant | Refusal:
    """What an idle cluster of this shape gives for this request.

    For sbatch and salloc the tasks are those of a plain `srun program` inside the job.
    """
    newer = version >= MENDED
    wants = _wanted(request, newer=newer)
    if isinstance(wants, Refusal):
        return wants
    if not request.asks_for_gpus:
        return Refusal("nothing", "none of these options asks for any", "Add --gpus-per-node=N")
    if not any(ask.counts for ask in wants.asks):
        each = request.tasks_per_gpu or 1
        return Refusal(
            "step",
            f"{wants.tasks} tasks at {each} per GPU come to no whole GPU: the job gets none, and "
            "its srun asks for one",
            f"--ntasks={each}",
        )
    missing = [a.kind for a in wants.asks if a.kind and shape.kinds and a.kind not in shape.kinds]
    if missing:
        return Refusal(
            "submit",
            f"no node has GPUs of type {missing[0]}",
            "Types here: " + ", ".join(shape.kinds),
        )
    refused = None if newer else _never(wants, shape)
    if refused:
        return refused
    refused = _whole_node(wants, request, shape)
    if refused:
        return refused
    rooms = choose(wants, shape, newer=newer)
    if rooms is None:
        return Refusal("submit", "no idle set of these nodes can hold it", _smaller(wants, shape))
    laid = spread(wants, rooms, newer=newer)
    picked = pick(wants, laid, newer=newer) if laid else None
    if not laid or not picked:
        return Refusal("waits", "its tasks and GPUs never fit together", _smaller(wants, shape))
    held = [
        Held(tuple(node.cores), tuple(sorted(set().union(*gpus))))
        for node, gpus in zip(laid, picked, strict=True)
    ]
    if request.exclusive:
        whole = (shape.cores_per_socket,) * shape.sockets
        held = [Held(whole, tuple(range(shape.gpus))) for _ in held]
    alone = TASKS_ALONE[0] <= version < TASKS_ALONE[1]
    placed = run_step(request, wants, shape, held, newer=newer, alone=alone)
    if isinstance(placed, Refusal):
        return placed
    tasks = {one.node: one.tasks for one in placed}
    nodes = tuple(NodeGrant(one.gpus, tasks.get(n, 0), one.cores) for n, one in enumerate(held))
    cpus = 1 if alone and request.command != "srun" else request.cpus_per_task or 1
    views = tasks_of(request, shape, held, placed, cpus, newer=newer)
    return Grant(nodes, tuple(views), tuple(notes(request, shape, laid, held, placed, views)))


def _wanted(request: Request, *, newer: bool) -> Wants | Refusal:
    return _conflict(request) or wants_of(request, newer=newer)


def refusal(request: Request) -> Refusal | None:
    """Why Slurm refuses these options on any nodes whatever; None where it may not."""
    wants = _wanted(request, newer=False)
    return wants if isinstance(wants, Refusal) else None


def _conflict(request: Request) -> Refusal | None:
    if request.bind and request.bind != "verbose" and not _BIND.match(request.bind):
        return Refusal(
            "submit",
            f"--gpu-bind={request.bind} is none of the ways to bind",
            "Write closest, single:N, per_task:N, map_gpu:… , mask_gpu:… or none",
        )
    if request.tasks_per_gpu:
        for name, given in (
            ("gpus-per-task", request.per_task),
            ("gpus-per-socket", request.per_socket),
            ("ntasks-per-node", request.tasks_per_node),
        ):
            if given:
                return Refusal(
                    "submit",
                    f"--ntasks-per-gpu and --{name} exclude each other",
                    f"Keep one of them; --ntasks-per-gpu with --gpus, or --{name} alone",
                )
    return None


def _never(w: Wants, shape: Shape) -> Refusal | None:
    """What waits for ever: slurmctld looks at these two counts before it looks for nodes."""
    low = w.min_nodes or 1
    if low > shape.nodes:
        return Refusal(
            "waits",
            f"{low} nodes are asked for, there are {shape.nodes}",
            f"--nodes={shape.nodes}",
        )
    if w.min_cpus > shape.cores * shape.nodes:
        return Refusal(
            "waits", f"{w.min_cpus} cores are asked for, there are {shape.cores * shape.nodes}"
        )
    return None


def _whole_node(w: Wants, request: Request, shape: Shape) -> Refusal | None:
    """With --exclusive a job holds all GPUs of its nodes, and --cpus-per-gpu counts them all."""
    cores = w.cpus_per_gpu * shape.gpus
    if not (request.exclusive and request.asked) or cores <= shape.cores:
        return None
    return Refusal(
        "submit",
        f"with --exclusive the {shape.gpus} GPUs of a node want {w.cpus_per_gpu} cores each, and "
        f"it has {shape.cores}",
        f"--cpus-per-gpu={max(shape.cores // shape.gpus, 1)}, or --cpus-per-task",
    )


def _smaller(w: Wants, shape: Shape) -> str:
    for ask in w.asks:
        here = len(shape.gpus_of(ask.kind))
        if max(ask.per_node, ask.per_task) > here:
            return f"At most {here} per node; more nodes give more"
    if w.tasks_per_gpu and not w.options.nodes_said:
        return "With --ntasks-per-gpu say --nodes=N: without it all tasks must fit one node"
    return f"A node here has {shape.cores} cores and {shape.gpus} GPUs"
