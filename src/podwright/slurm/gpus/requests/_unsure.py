"""Jobs and steps of which Slurm was seen to do something else than the model: they get no answer.

Each is a way of laying tasks over nodes that are not equal.
"""

from __future__ import annotations

from podwright.slurm.gpus.requests._counts import HeldNode, Wants
from podwright.slurm.gpus.requests._request import SlurmRequest
from podwright.slurm.gpus.requests._request_details import RequestDetails
from podwright.slurm.gpus.requests._values import SlurmCluster, SlurmPartition
from podwright.slurm.site.releases import Release


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
    early = not release.compares_uncut_nodes
    tasks, low, high = request.tasks or 0, request.min_nodes, request.max_nodes
    full = len(held or ()) > 1 and all(sum(one.cores) == one.shape.cores for one in held or ())
    if lightly and not early and request.per_node and tasks and low is None and full:
        return "GPUs of each node for tasks over the least loaded nodes"
    least = max((one.min_nodes for one in partitions), default=0)
    if release.refuses_fewer_tasks_than_nodes and high and 0 < tasks < least and least > high:
        return "fewer tasks and nodes than the partition takes"
    return ""


def unsure_whole(request: SlurmRequest, held: list[HeldNode]) -> str:
    """What of a job of whole nodes is not modelled, empty where all of it is."""
    bare = request.cpus_per_gpu and not request.asks_for_gpus
    if bare and not all(one.gpus for one in held):
        return "--cpus-per-gpu in a job of whole nodes of which some have no GPUs"
    return ""


def unsure_tasks(wants: Wants, held: list[HeldNode]) -> str:
    """What of the tasks in whole nodes is not modelled: Slurm counts the CPUs of threads that the
    job leaves idle into its first nodes, and steps take these for true."""
    threads = wants.threads_per_core
    idle = [one.shape.cpus_per_core != threads for one in held]
    more = (wants.tasks or 0) > len(held) or wants.tasks_per_node or wants.cpus_per_task
    if threads and more and idle != sorted(idle, reverse=True):
        return "several tasks of whole, unequal nodes with fewer threads of a core"
    return ""


def unsure_step(request: SlurmRequest, held: list[HeldNode], release: Release) -> str:
    """What of this step is not modelled, empty where all of it is."""
    short = any(one.cpus < (request.cpus_per_gpu or 0) for one in held)
    if request.tasks_per_gpu and short and len(held) > (request.tasks or len(held)):
        return "--ntasks-per-gpu over more nodes than tasks, with fewer CPUs than --cpus-per-gpu"
    if request.shares and request.asked and request.bind:
        return "--gpu-bind with GPUs and shares of GPUs"
    none = request.bind.removeprefix("verbose,") == "none"
    if none and request.shares and not release.bind_none_shows_all:
        return "--gpu-bind=none with shares of GPUs, at which some tasks crash"
    bound = request.other.get("hint") == "memory_bound"
    late = release.counts_step_tasks_late
    if len(held) < 2:
        return ""
    if bound and request.per_job and request.per_node and not late:
        return "--hint=memory_bound with --gpus and --gpus-per-node"
    return ""
