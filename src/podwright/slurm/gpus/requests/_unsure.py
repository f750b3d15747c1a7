"""Jobs and steps of which Slurm was seen to do something else than the model: they get no answer.

Each is a way of laying tasks over nodes that are not equal.
"""

from __future__ import annotations

from podwright.slurm.gpus.requests._counts import Held
from podwright.slurm.gpus.requests._request import Request
from podwright.slurm.gpus.requests._request_details import Said
from podwright.slurm.gpus.requests._values import Partition
from podwright.slurm.site.releases import Release


def unsure_job(request: Request, said: Said, partitions: list[Partition], release: Release) -> str:
    """What of this job is not modelled, empty where all of it is."""
    if said.overcommit and request.tasks_per_gpu and release.counts_tasks_at_server:
        return "--overcommit with --ntasks-per-gpu"
    mixed = any(way == "node" for way, _, _ in request.shares) and request.by_gres
    if mixed and request.kind() and request.cpus_per_gpu:
        return "GPUs of a type beside shares of GPUs"
    sized = request.memory_per_gpu or said.memory is not None or said.memory_per_cpu is not None
    counts = request.asks_for_gpus and not sized
    if counts and len({one.memory_per_gpu for one in partitions}) > 1:
        return "partitions with different defaults of memory of a GPU"
    if request.per_task and len({one.cpus_per_gpu for one in partitions}) > 1:
        return "--gpus-per-task in partitions with different defaults of CPUs of a GPU"
    return ""


def unsure_step(request: Request, held: list[Held], release: Release) -> str:
    """What of this step is not modelled, empty where all of it is."""
    if request.shares and request.bind:
        return "--gpu-bind with shares of GPUs"
    if request.option("gpu-bind") and "gpu" in request.other.get("tres-bind", ""):
        return "--gpu-bind beside --tres-bind"
    bound = request.other.get("hint") == "memory_bound"
    late = release.counts_step_tasks_late
    if late and bound and request.cpus_per_task and not request.tasks:
        return "--hint=memory_bound with --cpus-per-task and no --ntasks"
    per_core = request.other.get("ntasks-per-core", "1") != "1" and request.cpus_per_gpu
    whole = request.other.get("extra-node-info", "").count(":") == 2
    if release.gpus_bound_tasks and request.per_task and (per_core or whole):
        return "--gpus-per-task with threads of cores"
    if len(held) < 2:
        return ""
    if len({one.shape for one in held}) == 1 and held[0].shape.threads == 1:
        return ""
    gpus = len({len(one.gpus) for one in held}) > 1
    cpus = len({one.cpus for one in held}) > 1
    if request.tasks_per_gpu and gpus:
        return "--ntasks-per-gpu over nodes with unequal counts of GPUs"
    first = request.other.get("distribution", "").partition(":")[0]
    if first.startswith("plane") and cpus:
        return "--distribution=plane over nodes with unequal counts of CPUs"
    if bound and cpus:
        return "--hint=memory_bound over nodes with unequal counts of CPUs"
    ranged = request.max_nodes is not None and request.max_nodes != request.min_nodes
    busy = not release.steps_need_room and cpus and request.tasks and ranged
    if busy and not request.asks_for_gpus:
        return "tasks over a range of nodes with unequal counts of CPUs"
    late = release.counts_step_tasks_late
    if not late and request.per_task and request.cpus_per_task and gpus:
        return "--gpus-per-task and --cpus-per-task over nodes with unequal counts of GPUs"
    return ""
