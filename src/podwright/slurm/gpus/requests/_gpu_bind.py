"""Which of a node's granted GPUs each task sees: --gpu-bind, and what stands in for it.

Without --gpu-bind every task sees all GPUs that its job has on the node, except that
--gpus-per-task binds as `per_task`, and --ntasks-per-gpu as `single`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from podwright.slurm.gpus.requests._counts import HeldNode, Placed
from podwright.slurm.gpus.requests._cpu_bind import CpuBinding
from podwright.slurm.gpus.requests._nearest_gpus import gpus_near, per_task, single
from podwright.slurm.gpus.requests._request import SlurmRequest
from podwright.slurm.gpus.requests._task_cores import Cpus, every_cpu, task_cpus
from podwright.slurm.gpus.requests._units import is_number
from podwright.slurm.gpus.requests._values import NodeHardware, SlurmRefusal, TaskView
from podwright.slurm.site.releases import Release


def binding(request: SlurmRequest) -> tuple[str, str]:
    """(way, argument) of the binding in force: way is all, none, closest, single …"""
    bind = request.bind.removeprefix("verbose,")
    if bind:
        way, _, argument = bind.partition(":")
        return {"map": "map_gpu", "mask": "mask_gpu"}.get(way, way), argument
    if request.tasks_per_gpu:
        return "single", str(request.tasks_per_gpu)
    if request.per_task:
        if request.per_task.kind:
            return "typed", request.per_task.kind
        return "per_task", str(request.per_task.count)
    return "all", ""


def _view(
    request: SlurmRequest,
    shape: NodeHardware,
    tasks: list[Cpus],
    place: Placed,
    rank: int,
    local: int,
    release: Release,
) -> TaskView:
    """What one task sees: GPU numbers of its node, and its CUDA_VISIBLE_DEVICES.

    Some releases unset the variable for --gpu-bind=none, and for a type in --gpus-per-task. All do
    for shares: the plugin of GPUs unsets it, and gres/gpu:… is no binding of shares (gres.c,
    gres_g_task_set_env).
    """
    way, argument = binding(request)
    unnamed = request.shares and not request.asked and way != "all"
    if way == "none" and release.bind_none_shows_all and not unnamed:
        way = "all"
    if way == "typed" and request.per_task:
        first = re.match(r"[1-9]\d*", argument)  # 22.05 reads the count at the front
        whole = release.binds_typed_gpus_per_task
        if whole or first:
            way = "per_task"
            argument = str(request.per_task.count) if whole or not first else first[0]
    if place.tasks == 1 and not release.binds_single_task:
        way = "all"  # Slurm bound nothing for a task that is alone on its node
    gpus = list(place.gpus)
    if not gpus:
        return TaskView(rank, place.node, local, (), None)
    if (unnamed and way != "all") or way in ("none", "typed"):
        sees = gpus if shape.confined else list(range(shape.gpus))
        return TaskView(rank, place.node, local, tuple(sees), None)
    sharing = "allow-task-sharing" in request.other.get("gres-flags", "")
    if sharing and binding(request)[0] != "all":
        # Its GPUs are counted from 0 before they are bound, and none is closed (gres.c, 25.05)
        own = replace(shape, confined=False)
        names = _bound(way, argument, list(range(len(gpus))), own, tasks, local, release)
        sees = [gpus[name] for name in names] if shape.confined else names
    else:
        sees = _bound(way, argument, gpus, shape, tasks, local, release)
        names = list(range(len(sees))) if shape.confined else sees
    return TaskView(rank, place.node, local, tuple(sees), ",".join(map(str, names)))


def _bound(
    way: str,
    argument: str,
    held: list[int],
    shape: NodeHardware,
    tasks: list[Cpus],
    local: int,
    release: Release,
) -> list[int]:
    near = gpus_near(held, tasks[local], shape)
    if way == "closest":
        return near or held[:1]
    if way == "single" and release.binds_by_free_cores:
        return single(held, tasks, int(argument), shape, local)
    if way == "single":
        near = near or held[:1]
        return [near[(local // int(argument)) % len(near)]]
    if way == "per_task" and release.binds_by_free_cores:
        return per_task(held, tasks, int(argument), shape, local) or held[:1]
    if way == "per_task":
        count = int(argument)
        return held[local * count : (local + 1) * count] or held[:1]
    if way in ("map_gpu", "mask_gpu"):
        return _listed(way, argument, held, shape, local) or held[:1]
    return held


def _listed(way: str, argument: str, held: list[int], shape: NodeHardware, local: int) -> list[int]:
    """The entry of this task in a map or a mask; the list is used again from its start."""
    entries: list[int] = []
    for item in argument.split(","):
        value, _, times = item.partition("*")
        entries += [_number(value)] * (int(times) if is_number(times) and int(times) else 1)
    entry = entries[local % len(entries)]
    wanted = [entry] if way == "map_gpu" else [g for g in range(64) if entry >> g & 1]
    if way == "mask_gpu" and entry >= 1 << shape.gpus:
        return []
    if shape.confined:  # counted within the grant
        return [held[w] for w in wanted if w < len(held)]
    return [g for g in wanted if g in held]


def tasks_of(
    request: SlurmRequest,
    held: list[HeldNode],
    placed: list[Placed],
    binding: CpuBinding,
    release: Release,
) -> list[TaskView] | SlurmRefusal:
    """All tasks in the order of ranks, block by block or in turn."""
    views: list[TaskView] = []
    bind = "enforce-binding" in request.other.get("gres-flags", "")
    for place in placed:
        node = held[place.node]
        tasks: list[Cpus] | None = [frozenset()] * place.tasks
        if node.shape.affinity:
            tasks = task_cpus(node, place, binding, bind=bind)
        if tasks is None:
            return SlurmRefusal("step", "task/affinity finds no CPUs for the tasks of a node")
        near = [cpus or every_cpu(node.shape) for cpus in tasks]
        for local, cpus in enumerate(tasks):
            view = _view(request, node.shape, near, place, len(views), local, release)
            views.append(replace(view, cpus=tuple(sorted(cpus))))
    each = request.plane or int(any(place.cyclic for place in placed))
    if each:
        views.sort(key=lambda task: (task.local_rank // each, task.node, task.local_rank))
        views = [replace(task, rank=rank) for rank, task in enumerate(views)]
    return views


def _number(text: str) -> int:
    """As C reads it: 0x is hexadecimal, 0 octal, and what is no digit ends it."""
    found = re.match(r"0x[\da-fA-F]+|\d+", text)
    if not found:
        return 0
    word = found[0]
    return int(word, 16) if word.startswith("0x") else int(word, 8 if word[0] == "0" else 10)
