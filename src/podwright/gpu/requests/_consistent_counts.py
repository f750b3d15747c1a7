"""Checks that the counts of GPUs, tasks and nodes agree, and derives those that are not given.

The rules are those that the commands and slurmctld check before they look at any node, in Slurm's
order, so that the first reason here is Slurm's first (gres_job_state_validate and the functions
around it). Lint and the counts of a job use them; neither needs a Slurm.
"""

from __future__ import annotations

import re

from podwright.gpu.requests._job_counts import (
    GpuCounts,
    JobCounts,
    complete_at_server,
    sent_counts,
)
from podwright.gpu.requests._request import SlurmRequest, parse_gres
from podwright.gpu.requests._request_details import read_details
from podwright.gpu.requests._site_answer_types import SlurmRefusal
from podwright.gpu.requests._units import plural
from podwright.slurm.site.releases import SlurmVersion, release_of

_BINDING_PATTERN = re.compile(
    r"(verbose,)?(none|closest|single:\d+|per_task:\d+"
    r"|map(_gpu)?:[\dx*,a-f]+|mask(_gpu)?:[\dxa-f*,]+)$"
)


def refusal(request: SlurmRequest, version: SlurmVersion | None = None) -> SlurmRefusal | None:
    """Return why Slurm refuses these options on any nodes; None if it may accept them. version:
    None for what every release refuses."""
    counts_or_refusal = job_counts(request, version)
    return counts_or_refusal if isinstance(counts_or_refusal, SlurmRefusal) else None


def job_counts(
    request: SlurmRequest, version: SlurmVersion | None = None
) -> JobCounts | SlurmRefusal:
    """Return the counts of the job, or why this release of Slurm does not accept them. version:
    None for what every release refuses."""
    conflict_refusal = _find_conflict(request) or _two_counts_of_a_node(request, version)
    if conflict_refusal:
        return conflict_refusal
    counts = sent_counts(request, read_details(request.given))
    inconsistency = _make_consistent(counts, request, at_server=False)
    if inconsistency:
        return inconsistency
    complete_at_server(counts)
    return _make_consistent(counts, request, at_server=True) or counts


def _find_conflict(request: SlurmRequest) -> SlurmRefusal | None:
    """Find a misspelt --gpu-bind, and counts that exclude --ntasks-per-gpu."""
    if request.bind and not _BINDING_PATTERN.match(request.bind):
        return SlurmRefusal(
            "submit",
            f"--gpu-bind={request.bind} is none of the ways to bind",
            "Write closest, single:N, per_task:N, map_gpu:… , mask_gpu:… or none",
        )
    if request.tasks_per_gpu:
        for option_name, given_count in (
            ("gpus-per-task", request.per_task),
            ("gpus-per-socket", request.per_socket),
            ("ntasks-per-node", request.tasks_per_node),
        ):
            if given_count:
                return SlurmRefusal(
                    "submit",
                    f"--ntasks-per-gpu and --{option_name} exclude each other",
                    f"Keep one of them; --ntasks-per-gpu with --gpus, or --{option_name} alone",
                )
    return None


def _two_counts_of_a_node(
    request: SlurmRequest, version: SlurmVersion | None
) -> SlurmRefusal | None:
    """Find --gres=gpu beside --gpus-per-node. A step has the latter from its job's environment."""
    if version is None or not release_of(version).refuses_gres_beside_gpus_per_node:
        return None
    gres = request.option("gres")
    if not (gres and parse_gres(gres.value) and request.option("gpus-per-node")):
        return None
    return SlurmRefusal(
        "submit",
        "--gpus-per-node and --gres=gpu exclude each other",
        "Keep --gpus-per-node alone",
    )


def _make_consistent(
    counts: JobCounts, request: SlurmRequest, *, at_server: bool
) -> SlurmRefusal | None:
    """Completes the counts, or returns why they contradict each other. at_server: slurmctld checks,
    and no longer the command."""
    min_nodes = counts.min_nodes
    if (
        (request.per_task or counts.tasks_per_gpu)
        and counts.tasks is None
        and min_nodes
        and min_nodes == counts.max_nodes
    ):
        if counts.tasks_per_gpu:
            counts.tasks = min_nodes * counts.tasks_per_gpu
        elif counts.tasks_per_node:
            counts.tasks = min_nodes * counts.tasks_per_node
        elif not counts.cpus_per_task:
            counts.tasks = min_nodes
    counts.gpus = _counted_gpus(counts, request)
    # With --cpus-per-gpu and a type of GPUs, Slurm was observed to lose this error.
    error_lost = request.cpus_per_gpu and request.kind()
    if {"gpu"} < {gpu_counts.name for gpu_counts in counts.gpus} and not error_lost:
        return SlurmRefusal(
            "submit", "GPUs and shares of GPUs exclude each other", "Ask for one of them"
        )
    inconsistency = _apply_gpu_tasks(counts)
    if inconsistency:
        return inconsistency
    whole_gpu_counts = [gpu_counts for gpu_counts in counts.gpus if gpu_counts.name == "gpu"]
    if request.memory_per_gpu and not any(gpu_counts.counts for gpu_counts in whole_gpu_counts):
        return SlurmRefusal("submit", "--mem-per-gpu is given, and no GPU is asked for")
    for gpu_counts in counts.gpus:
        inconsistency = _check_gpu_counts(counts, gpu_counts, at_server=at_server)
        if inconsistency:
            return inconsistency
    return _merge_gpu_types(counts)


def _counted_gpus(counts: JobCounts, request: SlurmRequest) -> list[GpuCounts]:
    counts_by_kind: dict[str, GpuCounts] = {}
    if request.cpus_per_gpu:
        counts_by_kind[""] = GpuCounts("", cpus_per_gpu=request.cpus_per_gpu)
    for unit, requested_gpus in request.gpu_options:
        gpu_counts = counts_by_kind.setdefault(requested_gpus.kind, GpuCounts(requested_gpus.kind))
        setattr(gpu_counts, f"per_{unit}", requested_gpus.count)
    if request.memory_per_gpu:
        counts_by_kind.setdefault("", GpuCounts("")).memory_per_gpu = request.memory_per_gpu
    for unit, name, requested_gpus in request.shares:
        gpu_counts = counts_by_kind.setdefault(
            f"{name}:{requested_gpus.kind}", GpuCounts(requested_gpus.kind, name)
        )
        setattr(gpu_counts, f"per_{unit}", requested_gpus.count)
    min_nodes, sockets_per_node = counts.min_nodes, counts.sockets_per_node
    for gpu_counts in counts_by_kind.values():
        gpu_counts.tasks_per_gpu = counts.tasks_per_gpu or 0
        gpus_of_sockets = gpu_counts.per_socket
        if min_nodes and sockets_per_node:
            gpus_of_sockets *= min_nodes * sockets_per_node
        elif counts.tasks and counts.tasks_per_socket:
            gpus_of_sockets *= -(-counts.tasks // counts.tasks_per_socket)
        gpus_of_tasks = gpu_counts.per_task * (counts.tasks or 1)
        gpu_counts.total = max(
            gpu_counts.per_job,
            gpu_counts.per_node * (min_nodes or 1),
            gpus_of_sockets,
            gpus_of_tasks,
        )
    return list(counts_by_kind.values())


def _apply_gpu_tasks(counts: JobCounts) -> SlurmRefusal | None:
    """Apply --ntasks-per-gpu: tasks follow from counted GPUs, otherwise GPUs follow from tasks."""
    if not counts.tasks_per_gpu:
        return None
    if any(gpu_counts.counts for gpu_counts in counts.gpus):
        counts.tasks = sum(gpu_counts.total for gpu_counts in counts.gpus) * counts.tasks_per_gpu
    elif counts.tasks:
        gpu_total = counts.tasks // counts.tasks_per_gpu
        if gpu_total:
            gpu_counts = counts.gpus[0] if counts.gpus else GpuCounts("")
            gpu_counts.per_job = gpu_counts.total = gpu_total
            gpu_counts.tasks_per_gpu = counts.tasks_per_gpu
            counts.gpus = [gpu_counts]
    else:
        return SlurmRefusal(
            "submit",
            "--ntasks-per-gpu says how tasks share GPUs, but neither GPUs nor tasks are counted",
            "Add --gpus=N (tasks follow) or --ntasks=N (GPUs follow)",
        )
    return None


def _merge_gpu_types(counts: JobCounts) -> SlurmRefusal | None:
    """Merge counts. GPUs of a type and of any type exclude each other; a count of any type holds
    for each.
    """
    whole_gpu_counts = [gpu_counts for gpu_counts in counts.gpus if gpu_counts.name == "gpu"]
    typed_counts = [gpu_counts for gpu_counts in whole_gpu_counts if gpu_counts.kind]
    if not typed_counts or len(typed_counts) == len(whole_gpu_counts):
        return None
    (untyped_counts,) = (gpu_counts for gpu_counts in whole_gpu_counts if not gpu_counts.kind)
    if untyped_counts.counts:
        return SlurmRefusal(
            "submit",
            f"some GPUs are asked for as {typed_counts[0].kind}, and others of any type",
            f"Name the type {typed_counts[0].kind} with each count, or with none",
        )
    for gpu_counts in typed_counts:
        gpu_counts.cpus_per_gpu = gpu_counts.cpus_per_gpu or untyped_counts.cpus_per_gpu
        gpu_counts.memory_per_gpu = gpu_counts.memory_per_gpu or untyped_counts.memory_per_gpu
    counts.gpus = [gpu_counts for gpu_counts in counts.gpus if gpu_counts is not untyped_counts]
    return None


def _check_gpu_counts(
    counts: JobCounts, gpu_counts: GpuCounts, *, at_server: bool
) -> SlurmRefusal | None:
    largest_count = max(gpu_counts.per_node, gpu_counts.per_task, gpu_counts.per_socket)
    if gpu_counts.per_job and largest_count > gpu_counts.per_job:
        return SlurmRefusal(
            "submit",
            f"--gpus={gpu_counts.per_job} counts the whole job, and is less than what one node, "
            "socket or task shall have",
            f"--gpus={largest_count * (counts.min_nodes or 1)}, or leave --gpus out",
        )
    if (
        gpu_counts.per_node
        and max(gpu_counts.per_task, gpu_counts.per_socket) > gpu_counts.per_node
    ):
        return SlurmRefusal(
            "submit",
            "one task or socket shall have more GPUs than its whole node",
            f"--gpus-per-node={max(gpu_counts.per_task, gpu_counts.per_socket)} or more",
        )
    if gpu_counts.per_socket and not counts.sockets_per_node:
        return SlurmRefusal(
            "submit",
            "--gpus-per-socket needs --sockets-per-node",
            "Add --sockets-per-node=N, or ask with --gpus-per-node",
        )
    if gpu_counts.cpus_per_gpu and counts.cpus_per_task and not at_server:
        return SlurmRefusal("submit", "--cpus-per-gpu and --cpus-per-task exclude each other")
    return (
        _nodes_agree(counts, gpu_counts)
        or _sockets_agree(counts, gpu_counts)
        or _tasks_agree(counts, gpu_counts)
        or _enough_for_nodes(counts, gpu_counts)
    )


def _nodes_agree(counts: JobCounts, gpu_counts: GpuCounts) -> SlurmRefusal | None:
    if not (gpu_counts.per_job and gpu_counts.per_node):
        return None
    if gpu_counts.per_job % gpu_counts.per_node:
        return SlurmRefusal(
            "submit",
            f"--gpus={gpu_counts.per_job} is not a multiple of the {gpu_counts.per_node} GPUs per "
            "node",
            f"--gpus={-(-gpu_counts.per_job // gpu_counts.per_node) * gpu_counts.per_node}, or "
            "leave one of them out",
        )
    needed_nodes = gpu_counts.per_job // gpu_counts.per_node
    min_nodes, max_nodes = counts.min_nodes, counts.max_nodes
    if (min_nodes and needed_nodes < min_nodes) or (
        max_nodes is not None and needed_nodes > max_nodes
    ):
        return SlurmRefusal(
            "submit",
            f"--gpus={gpu_counts.per_job} at {gpu_counts.per_node} per node are "
            f"{plural(needed_nodes, 'node')}, but "
            f"--nodes asks for {min_nodes}",
            f"--nodes={needed_nodes}, or --gpus={gpu_counts.per_node * (min_nodes or 1)}",
        )
    counts.min_nodes = counts.max_nodes = needed_nodes
    return None


def _sockets_agree(counts: JobCounts, gpu_counts: GpuCounts) -> SlurmRefusal | None:
    if not (gpu_counts.per_node and gpu_counts.per_socket):
        return None
    if gpu_counts.per_node % gpu_counts.per_socket:
        return SlurmRefusal("submit", "GPUs per node are not a multiple of GPUs per socket")
    sockets = gpu_counts.per_node // gpu_counts.per_socket
    if sockets != counts.sockets_per_node:
        return SlurmRefusal(
            "submit",
            f"{gpu_counts.per_node} GPUs per node at {gpu_counts.per_socket} per socket are "
            f"{sockets} sockets, "
            f"not {counts.sockets_per_node}",
            f"--sockets-per-node={sockets}",
        )
    return None


def _tasks_agree(counts: JobCounts, gpu_counts: GpuCounts) -> SlurmRefusal | None:
    if (
        gpu_counts.tasks_per_gpu
        and counts.tasks is not None
        and counts.tasks % gpu_counts.tasks_per_gpu
    ):
        return SlurmRefusal(
            "submit",
            f"--ntasks={counts.tasks} is not a multiple of "
            f"--ntasks-per-gpu={gpu_counts.tasks_per_gpu}",
            f"--ntasks={-(-counts.tasks // gpu_counts.tasks_per_gpu) * gpu_counts.tasks_per_gpu}",
        )
    if not gpu_counts.per_task:
        return None
    if gpu_counts.per_job:
        if gpu_counts.per_job % gpu_counts.per_task:
            return SlurmRefusal(
                "submit",
                f"--gpus={gpu_counts.per_job} is not a multiple of "
                f"--gpus-per-task={gpu_counts.per_task}",
                f"--gpus={-(-gpu_counts.per_job // gpu_counts.per_task) * gpu_counts.per_task}",
            )
        needed_tasks = gpu_counts.per_job // gpu_counts.per_task
        if counts.tasks is None:
            counts.tasks = needed_tasks
        elif counts.tasks != needed_tasks:
            return SlurmRefusal(
                "submit",
                f"--gpus={gpu_counts.per_job} at {gpu_counts.per_task} per task are {needed_tasks} "
                f"tasks, not {counts.tasks}",
                f"--ntasks={needed_tasks}, or --gpus={counts.tasks * gpu_counts.per_task}",
            )
    elif counts.tasks is not None:
        gpu_counts.per_job = counts.tasks * gpu_counts.per_task
    else:
        return SlurmRefusal(
            "submit",
            "--gpus-per-task needs to know how many tasks",
            "Add --ntasks=N, or --nodes with --ntasks-per-node",
        )
    if gpu_counts.per_node:
        if gpu_counts.per_node % gpu_counts.per_task:
            return SlurmRefusal(
                "submit",
                f"{gpu_counts.per_node} GPUs per node are not a multiple of "
                f"--gpus-per-task={gpu_counts.per_task}",
            )
        tasks_per_node = gpu_counts.per_node // gpu_counts.per_task
        counts.tasks_per_node = counts.tasks_per_node or tasks_per_node
        if counts.tasks_per_node != tasks_per_node:
            return SlurmRefusal(
                "submit",
                f"{gpu_counts.per_node} GPUs per node at {gpu_counts.per_task} per task are "
                f"{tasks_per_node} tasks a "
                f"node, not {counts.tasks_per_node}",
                f"--ntasks-per-node={tasks_per_node}",
            )
    if gpu_counts.per_socket:
        if gpu_counts.per_socket % gpu_counts.per_task:
            return SlurmRefusal("submit", "GPUs per socket are not a multiple of --gpus-per-task")
        counts.tasks_per_socket = (
            counts.tasks_per_socket or gpu_counts.per_socket // gpu_counts.per_task
        )
    return None


def _enough_for_nodes(counts: JobCounts, gpu_counts: GpuCounts) -> SlurmRefusal | None:
    if gpu_counts.cpus_per_gpu and gpu_counts.per_task:
        task_cpus = gpu_counts.cpus_per_gpu * gpu_counts.per_task
        counts.cpus_per_task = counts.cpus_per_task or task_cpus
        if counts.cpus_per_task != task_cpus:
            return SlurmRefusal("submit", "--cpus-per-gpu contradicts the cores of a task")
    if not gpu_counts.per_job:
        return None
    if counts.min_nodes and gpu_counts.per_job < counts.min_nodes:
        return SlurmRefusal(
            "submit",
            f"{gpu_counts.per_job} GPUs cannot be spread over {counts.min_nodes} nodes: each gets "
            "one at least",
            f"--nodes={gpu_counts.per_job}, or --gpus={counts.min_nodes} or more",
        )
    if counts.max_nodes and gpu_counts.per_job < counts.max_nodes:
        counts.max_nodes = gpu_counts.per_job
    return None
