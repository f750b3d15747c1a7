"""Which of a node's granted GPUs each task sees: --gpu-bind, and what stands in for it.

Without --gpu-bind every task sees all GPUs that its job has on the node, except that
--gpus-per-task binds as `per_task`, and --ntasks-per-gpu as `single`.
"""

from __future__ import annotations

from podwright.slurm.requests._request import Request
from podwright.slurm.requests._values import NodeGrant, Shape, TaskView


def binding(request: Request) -> tuple[str, str]:
    """(way, argument) of the binding in force: way is all, none, closest, single …"""
    bind = request.bind.removeprefix("verbose,")
    if bind and bind != "verbose":
        way, _, argument = bind.partition(":")
        return way, argument
    if request.bind == "verbose":
        return "none", ""
    if request.tasks_per_gpu:
        return "single", str(request.tasks_per_gpu)
    if request.per_task:
        if request.per_task.kind:
            return "typed", request.per_task.kind  # Slurm 22.05 reads no count from it
        return "per_task", str(request.per_task.count)
    return "all", ""


def view(
    request: Request,
    shape: Shape,
    node: NodeGrant,
    index: int,
    rank: int,
    local: int,
    mended: bool = False,
) -> TaskView:
    """What one task sees: GPU numbers of its node, and its CUDA_VISIBLE_DEVICES.

    Before 23.02 (`mended` false) Slurm unset the variable for --gpu-bind=none, and for a type
    in --gpus-per-task.
    """
    way, argument = binding(request)
    if mended and way == "none":
        way = "all"
    if mended and way == "typed" and request.per_task:
        way, argument = "per_task", str(request.per_task.count)
    if node.tasks == 1:
        way = "all"  # Slurm binds nothing for a task that is alone on its node
    held = list(node.gpus)
    if not held:
        return TaskView(rank, index, local, (), None)
    if way in ("none", "typed"):
        sees = held if shape.confined else list(range(shape.gpus))
        return TaskView(rank, index, local, tuple(sees), None)
    if way == "closest" and shape.affinity and request.other.get("cpu-bind") != "none":
        near = shape.gpus_on(_socket(node, shape, request.cpus_per_task or 1, local))
        sees = [gpu for gpu in held if gpu in near] or held[:1]
    else:
        sees = _bound(way, argument, held, shape, local)
    names = list(range(len(sees))) if shape.confined else sees
    return TaskView(rank, index, local, tuple(sees), ",".join(map(str, names)))


def _socket(node: NodeGrant, shape: Shape, cpus: int, local: int) -> int:
    """The socket of a task that is bound to cores: Slurm lays tasks over the sockets in turns.

    Measured with one core on each socket; with more, Slurm's own words (-m block:cyclic).
    """
    left = list(node.cores)
    socket = -1
    for _ in range(local + 1):
        for step in range(1, shape.sockets + 1):
            at = (socket + step) % shape.sockets
            if left[at] >= cpus:
                break
        else:
            at = (socket + 1) % shape.sockets
        socket = at
        left[socket] -= cpus
    return socket


def _bound(way: str, argument: str, held: list[int], shape: Shape, local: int) -> list[int]:
    if way == "single":
        return [held[(local // int(argument)) % len(held)]]
    if way == "per_task":
        count = int(argument)
        return held[local * count : (local + 1) * count] or held[:1]
    if way in ("map_gpu", "mask_gpu"):
        return _listed(way, argument, held, shape, local) or held[:1]
    return held  # all; closest where tasks are not bound to cores


def _listed(way: str, argument: str, held: list[int], shape: Shape, local: int) -> list[int]:
    """The entry of this task in a map or a mask; the list is used again from its start."""
    entries: list[int] = []
    for item in argument.split(","):
        value, _, times = item.partition("*")
        entries += [int(value, 0)] * (int(times) if times.isdigit() and int(times) else 1)
    entry = entries[local % len(entries)]
    wanted = [entry] if way == "map_gpu" else [g for g in range(64) if entry >> g & 1]
    if way == "mask_gpu" and entry >= 1 << shape.gpus:
        return []
    if shape.confined:  # counted within the grant
        return [held[w] for w in wanted if w < len(held)]
    return [g for g in wanted if g in held]


def tasks_of(
    request: Request, shape: Shape, nodes: list[NodeGrant], *, mended: bool = False
) -> list[TaskView]:
    """All tasks in the order of ranks, block by block."""
    views: list[TaskView] = []
    for index, node in enumerate(nodes):
        for local in range(node.tasks):
            views.append(view(request, shape, node, index, len(views), local, mended))
    return views
