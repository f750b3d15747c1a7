"""Jobs and steps of which Slurm was seen to do something else than the model: they get no answer.

Each is a way of laying tasks over nodes that are not equal.
"""

from __future__ import annotations

from podwright.slurm.gpus.requests._counts import HeldNode
from podwright.slurm.gpus.requests._request import SlurmRequest
from podwright.slurm.gpus.requests._request_details import RequestDetails
from podwright.slurm.gpus.requests._values import SlurmCluster, SlurmPartition
from podwright.slurm.site.releases import Release


def unsure_job(
    request: SlurmRequest,
    said: RequestDetails,
    site: SlurmCluster,
    partitions: list[SlurmPartition],
    release: Release,
) -> str:
    """What of this job is not modelled, empty where all of it is."""
    lightly = "CR_LLN" in site.select or any(one.least_loaded for one in partitions)
    by_gpus = request.tasks_per_gpu and request.per_job and request.min_nodes is None
    several = any(one.max_nodes > 1 and len(one.nodes) != 1 for one in partitions)
    if lightly and several and by_gpus and not release.tasks_per_gpu_is_range:
        return "--ntasks-per-gpu and --gpus over the least loaded nodes"
    return ""


def unsure_nodes(
    request: SlurmRequest,
    said: RequestDetails,
    site: SlurmCluster,
    partitions: list[SlurmPartition],
    release: Release,
    held: list[HeldNode] | None,
) -> str:
    """What of the choice of nodes is not modelled: it is not known whether the job starts.

    held: what the model gives, None where the job waits.
    """
    lightly = "CR_LLN" in site.select or any(one.least_loaded for one in partitions)
    bound = "enforce-binding" in said.flags and request.per_job
    if lightly and bound and len(held or ()) > 1 and not release.compares_uncut_nodes:
        return "--gpus bound to cores over the least loaded nodes"
    single = said.tasks_per_core == 1 or said.threads == 1
    default = site.cpus_per_gpu or any(one.cpus_per_gpu for one in partitions)
    brings = request.cpus_per_gpu or default
    uneven = len({len(one.gpus) for one in held or ()}) > 1 and request.per_job is not None
    early = not release.compares_uncut_nodes
    if early and single and brings and uneven and request.tasks_per_node:
        return "--gpus, CPUs of a GPU and --ntasks-per-node on one thread of a core"
    tasks, low, high = request.tasks or 0, request.min_nodes, request.max_nodes
    full = len(held or ()) > 1 and all(sum(one.cores) == one.shape.cores for one in held or ())
    if lightly and not early and request.per_node and tasks and low is None and full:
        return "GPUs of each node for tasks over the least loaded nodes"
    ranged = low != high
    if not early and request.tasks_per_gpu and request.per_node and ranged and tasks:
        return "--ntasks-per-gpu with GPUs of each node over a range of nodes"
    more = (request.tasks_per_node or 0) * max(len(said.named), low or 1) > tasks > 0
    if not early and more and said.named and low is None and held is None:
        return "--ntasks-per-node for more tasks than --ntasks on named nodes"
    if not early and more and said.overcommit and ranged:
        return "--overcommit with --ntasks-per-node over a range of nodes"
    if said.spread and said.plane and len(held or ()) > 1:
        return "--spread-job with --distribution=plane"
    if "*" in said.constraint and said.named and held is None:
        return "features with counts beside --nodelist"
    least = max((one.min_nodes for one in partitions), default=0)
    if release.refuses_fewer_tasks_than_nodes and high and 0 < tasks < least and least > high:
        return "fewer tasks and nodes than the partition takes"
    if said.spread and low is None and any(p.max_nodes < len(p.nodes) for p in partitions):
        return "--spread-job in a partition with MaxNodes"
    late = release.tasks_bound_nodes
    plain = not (tasks or request.cpus_per_task or said.named)
    wide = request.per_job and len(held or ()) > request.per_job.count
    if late and said.spread and plain and wide:
        return "--spread-job over more nodes than GPUs"
    if said.spread and tasks and len(held or ()) > tasks:
        return "--spread-job over more nodes than tasks"
    few = any((said.threads or one.shape.threads) < one.shape.threads for one in held or ())
    by_cpu = any(word.startswith("CR_CPU") for word in site.select)
    if early and few and by_cpu and len({one.shape.threads for one in held or ()}) > 1:
        return "fewer threads of unequal cores where CPUs are allocated, not cores (CR_CPU)"
    return ""


def unsure_whole(request: SlurmRequest, threads: int | None, held: list[HeldNode]) -> str:
    """What of a job of whole nodes is not modelled, empty where all of it is.

    threads: of a core, as the job says.
    """
    bare = request.cpus_per_gpu and not request.asks_for_gpus
    if bare and not all(one.gpus for one in held):
        return "--cpus-per-gpu in a job of whole nodes of which some have no GPUs"
    unequal = len({one.shape for one in held}) > 1
    few = threads and any(threads < one.shape.threads and one.memory for one in held)
    if few and unequal:
        return "memory of whole, unequal nodes with fewer threads of a core"
    return ""


def unsure_step(request: SlurmRequest, held: list[HeldNode], release: Release) -> str:
    """What of this step is not modelled, empty where all of it is."""
    if request.shares and request.asked and request.bind:
        return "--gpu-bind with GPUs and shares of GPUs"
    none = request.bind.removeprefix("verbose,") in ("none", "verbose")
    if none and request.shares and not release.bind_none_shows_all:
        return "--gpu-bind=none with shares of GPUs, at which some tasks crash"
    bound = request.other.get("hint") == "memory_bound"
    late = release.counts_step_tasks_late
    if len(held) < 2:
        return ""
    own = request.per_task.count * (request.tasks or 0) if request.per_task else 0
    mixed = any(len(set(one.shape.types)) > 1 for one in held)
    more = 0 < own < sum(len(one.gpus) for one in held)
    if not late and request.tasks_per_node and more and mixed:
        return "--gpus-per-task with --ntasks-per-node where the job holds more GPUs"
    if bound and request.per_job and request.per_node and not late:
        return "--hint=memory_bound with --gpus and --gpus-per-node"
    return ""
