"""Checks that the counts of GPUs, tasks and nodes agree, and derives those that are not given.

The rules are those that the commands and slurmctld check before they look at any node, in Slurm's
order, so that the first reason here is Slurm's first (gres_job_state_validate and the functions
around it). Lint and the answer by counts use them; neither needs a Slurm.
"""

from __future__ import annotations

import re

from podwright.gpu.requests._job_counts import (
    GpuCounts,
    JobCounts,
    complete_at_server,
    sent_counts,
)
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._request_details import read_details
from podwright.gpu.requests._units import plural
from podwright.gpu.requests._values import SlurmRefusal

_BINDINGS = re.compile(
    r"(verbose,)?(none|closest|single:\d+|per_task:\d+"
    r"|map(_gpu)?:[\dx*,a-f]+|mask(_gpu)?:[\dxa-f*,]+)$"
)


def refusal(request: SlurmRequest) -> SlurmRefusal | None:
    """Return why Slurm refuses these options on any nodes; None if it may accept them."""
    counts = job_counts(request)
    return counts if isinstance(counts, SlurmRefusal) else None


def job_counts(request: SlurmRequest) -> JobCounts | SlurmRefusal:
    """Return the counts of the job, or why no release of Slurm accepts them."""
    conflict = _conflicts(request)
    if conflict:
        return conflict
    counts = sent_counts(request, read_details(request.given))
    refused = _make_consistent(counts, request, server=False)
    if refused:
        return refused
    complete_at_server(counts)
    return _make_consistent(counts, request, server=True) or counts


def _conflicts(request: SlurmRequest) -> SlurmRefusal | None:
    """Find a misspelt --gpu-bind, and counts that exclude --ntasks-per-gpu."""
    if request.bind and not _BINDINGS.match(request.bind):
        return SlurmRefusal(
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
                return SlurmRefusal(
                    "submit",
                    f"--ntasks-per-gpu and --{name} exclude each other",
                    f"Keep one of them; --ntasks-per-gpu with --gpus, or --{name} alone",
                )
    return None


def _make_consistent(
    counts: JobCounts, request: SlurmRequest, *, server: bool
) -> SlurmRefusal | None:
    """Completes the counts, or returns why they contradict each other. server: slurmctld checks,
    and no longer the command."""
    nodes = counts.min_nodes
    if (
        (request.per_task or counts.tasks_per_gpu)
        and counts.tasks is None
        and nodes
        and nodes == counts.max_nodes
    ):
        if counts.tasks_per_gpu:
            counts.tasks = nodes * counts.tasks_per_gpu
        elif counts.tasks_per_node:
            counts.tasks = nodes * counts.tasks_per_node
        elif not counts.cpus_per_task:
            counts.tasks = nodes
    counts.gpus = _counted_gpus(counts, request)
    # With --cpus-per-gpu and a type of GPUs, Slurm was observed to lose this error.
    lost = request.cpus_per_gpu and request.kind()
    if {"gpu"} < {gpus.name for gpus in counts.gpus} and not lost:
        return SlurmRefusal(
            "submit", "GPUs and shares of GPUs exclude each other", "Ask for one of them"
        )
    refused = _tasks_of_gpus(counts)
    if refused:
        return refused
    whole_gpus = [gpus for gpus in counts.gpus if gpus.name == "gpu"]
    if request.memory_per_gpu and not any(gpus.counts for gpus in whole_gpus):
        return SlurmRefusal("submit", "--mem-per-gpu is given, and no GPU is asked for")
    for gpus in counts.gpus:
        refused = _agree(counts, gpus, server=server)
        if refused:
            return refused
    return _merge(counts)


def _counted_gpus(counts: JobCounts, request: SlurmRequest) -> list[GpuCounts]:
    by_kind: dict[str, GpuCounts] = {}
    if request.cpus_per_gpu:
        by_kind[""] = GpuCounts("", cpus_per_gpu=request.cpus_per_gpu)
    for unit, requested in request.gpu_options:
        gpus = by_kind.setdefault(requested.kind, GpuCounts(requested.kind))
        setattr(gpus, f"per_{unit}", requested.count)
    if request.memory_per_gpu:
        by_kind.setdefault("", GpuCounts("")).memory_per_gpu = request.memory_per_gpu
    for unit, name, requested in request.shares:
        gpus = by_kind.setdefault(f"{name}:{requested.kind}", GpuCounts(requested.kind, name))
        setattr(gpus, f"per_{unit}", requested.count)
    nodes, sockets = counts.min_nodes, counts.sockets_per_node
    for gpus in by_kind.values():
        gpus.tasks_per_gpu = counts.tasks_per_gpu or 0
        on_sockets = gpus.per_socket
        if nodes and sockets:
            on_sockets *= nodes * sockets
        elif counts.tasks and counts.tasks_per_socket:
            on_sockets *= -(-counts.tasks // counts.tasks_per_socket)
        of_tasks = gpus.per_task * (counts.tasks or 1)
        gpus.total = max(gpus.per_job, gpus.per_node * (nodes or 1), on_sockets, of_tasks)
    return list(by_kind.values())


def _tasks_of_gpus(counts: JobCounts) -> SlurmRefusal | None:
    """Apply --ntasks-per-gpu: tasks follow from counted GPUs, otherwise GPUs follow from tasks."""
    if not counts.tasks_per_gpu:
        return None
    if any(gpus.counts for gpus in counts.gpus):
        counts.tasks = sum(gpus.total for gpus in counts.gpus) * counts.tasks_per_gpu
    elif counts.tasks:
        total = counts.tasks // counts.tasks_per_gpu
        if total:
            gpus = counts.gpus[0] if counts.gpus else GpuCounts("")
            gpus.per_job = gpus.total = total
            gpus.tasks_per_gpu = counts.tasks_per_gpu
            counts.gpus = [gpus]
    else:
        return SlurmRefusal(
            "submit",
            "--ntasks-per-gpu says how tasks share GPUs, but neither GPUs nor tasks are counted",
            "Add --gpus=N (tasks follow) or --ntasks=N (GPUs follow)",
        )
    return None


def _merge(counts: JobCounts) -> SlurmRefusal | None:
    """Merge counts. GPUs of a type and of any type exclude each other; a count of any type holds
    for each.
    """
    whole_gpus = [gpus for gpus in counts.gpus if gpus.name == "gpu"]
    typed = [gpus for gpus in whole_gpus if gpus.kind]
    if not typed or len(typed) == len(whole_gpus):
        return None
    (any_kind,) = (gpus for gpus in whole_gpus if not gpus.kind)
    if any_kind.counts:
        return SlurmRefusal(
            "submit",
            f"some GPUs are asked for as {typed[0].kind}, and others of any type",
            f"Name the type {typed[0].kind} with each count, or with none",
        )
    for gpus in typed:
        gpus.cpus_per_gpu = gpus.cpus_per_gpu or any_kind.cpus_per_gpu
        gpus.memory_per_gpu = gpus.memory_per_gpu or any_kind.memory_per_gpu
    counts.gpus = [gpus for gpus in counts.gpus if gpus is not any_kind]
    return None


def _agree(counts: JobCounts, gpus: GpuCounts, *, server: bool) -> SlurmRefusal | None:
    largest = max(gpus.per_node, gpus.per_task, gpus.per_socket)
    if gpus.per_job and largest > gpus.per_job:
        return SlurmRefusal(
            "submit",
            f"--gpus={gpus.per_job} counts the whole job, and is less than what one node, socket "
            "or task shall have",
            f"--gpus={largest * (counts.min_nodes or 1)}, or leave --gpus out",
        )
    if gpus.per_node and max(gpus.per_task, gpus.per_socket) > gpus.per_node:
        return SlurmRefusal(
            "submit",
            "one task or socket shall have more GPUs than its whole node",
            f"--gpus-per-node={max(gpus.per_task, gpus.per_socket)} or more",
        )
    if gpus.per_socket and not counts.sockets_per_node:
        return SlurmRefusal(
            "submit",
            "--gpus-per-socket needs --sockets-per-node",
            "Add --sockets-per-node=N, or ask with --gpus-per-node",
        )
    if gpus.cpus_per_gpu and counts.cpus_per_task and not server:
        return SlurmRefusal("submit", "--cpus-per-gpu and --cpus-per-task exclude each other")
    return (
        _nodes_agree(counts, gpus)
        or _sockets_agree(counts, gpus)
        or _tasks_agree(counts, gpus)
        or _enough(counts, gpus)
    )


def _nodes_agree(counts: JobCounts, gpus: GpuCounts) -> SlurmRefusal | None:
    if not (gpus.per_job and gpus.per_node):
        return None
    if gpus.per_job % gpus.per_node:
        return SlurmRefusal(
            "submit",
            f"--gpus={gpus.per_job} is not a multiple of the {gpus.per_node} GPUs per node",
            f"--gpus={-(-gpus.per_job // gpus.per_node) * gpus.per_node}, or leave one of them out",
        )
    nodes = gpus.per_job // gpus.per_node
    low, high = counts.min_nodes, counts.max_nodes
    if (low and nodes < low) or (high is not None and nodes > high):
        return SlurmRefusal(
            "submit",
            f"--gpus={gpus.per_job} at {gpus.per_node} per node are {plural(nodes, 'node')}, but "
            f"--nodes asks for {low}",
            f"--nodes={nodes}, or --gpus={gpus.per_node * (low or 1)}",
        )
    counts.min_nodes = counts.max_nodes = nodes
    return None


def _sockets_agree(counts: JobCounts, gpus: GpuCounts) -> SlurmRefusal | None:
    if not (gpus.per_node and gpus.per_socket):
        return None
    if gpus.per_node % gpus.per_socket:
        return SlurmRefusal("submit", "GPUs per node are not a multiple of GPUs per socket")
    sockets = gpus.per_node // gpus.per_socket
    if sockets != counts.sockets_per_node:
        return SlurmRefusal(
            "submit",
            f"{gpus.per_node} GPUs per node at {gpus.per_socket} per socket are {sockets} sockets, "
            f"not {counts.sockets_per_node}",
            f"--sockets-per-node={sockets}",
        )
    return None


def _tasks_agree(counts: JobCounts, gpus: GpuCounts) -> SlurmRefusal | None:
    if gpus.tasks_per_gpu and counts.tasks is not None and counts.tasks % gpus.tasks_per_gpu:
        return SlurmRefusal(
            "submit",
            f"--ntasks={counts.tasks} is not a multiple of --ntasks-per-gpu={gpus.tasks_per_gpu}",
            f"--ntasks={-(-counts.tasks // gpus.tasks_per_gpu) * gpus.tasks_per_gpu}",
        )
    if not gpus.per_task:
        return None
    if gpus.per_job:
        if gpus.per_job % gpus.per_task:
            return SlurmRefusal(
                "submit",
                f"--gpus={gpus.per_job} is not a multiple of --gpus-per-task={gpus.per_task}",
                f"--gpus={-(-gpus.per_job // gpus.per_task) * gpus.per_task}",
            )
        tasks = gpus.per_job // gpus.per_task
        if counts.tasks is None:
            counts.tasks = tasks
        elif counts.tasks != tasks:
            return SlurmRefusal(
                "submit",
                f"--gpus={gpus.per_job} at {gpus.per_task} per task are {tasks} tasks, not "
                f"{counts.tasks}",
                f"--ntasks={tasks}, or --gpus={counts.tasks * gpus.per_task}",
            )
    elif counts.tasks is not None:
        gpus.per_job = counts.tasks * gpus.per_task
    else:
        return SlurmRefusal(
            "submit",
            "--gpus-per-task needs to know how many tasks",
            "Add --ntasks=N, or --nodes with --ntasks-per-node",
        )
    if gpus.per_node:
        if gpus.per_node % gpus.per_task:
            return SlurmRefusal(
                "submit",
                f"{gpus.per_node} GPUs per node are not a multiple of "
                f"--gpus-per-task={gpus.per_task}",
            )
        each = gpus.per_node // gpus.per_task
        counts.tasks_per_node = counts.tasks_per_node or each
        if counts.tasks_per_node != each:
            return SlurmRefusal(
                "submit",
                f"{gpus.per_node} GPUs per node at {gpus.per_task} per task are {each} tasks a "
                f"node, not {counts.tasks_per_node}",
                f"--ntasks-per-node={each}",
            )
    if gpus.per_socket:
        if gpus.per_socket % gpus.per_task:
            return SlurmRefusal("submit", "GPUs per socket are not a multiple of --gpus-per-task")
        counts.tasks_per_socket = counts.tasks_per_socket or gpus.per_socket // gpus.per_task
    return None


def _enough(counts: JobCounts, gpus: GpuCounts) -> SlurmRefusal | None:
    if gpus.cpus_per_gpu and gpus.per_task:
        cpus = gpus.cpus_per_gpu * gpus.per_task
        counts.cpus_per_task = counts.cpus_per_task or cpus
        if counts.cpus_per_task != cpus:
            return SlurmRefusal("submit", "--cpus-per-gpu contradicts the cores of a task")
    if not gpus.per_job:
        return None
    if counts.min_nodes and gpus.per_job < counts.min_nodes:
        return SlurmRefusal(
            "submit",
            f"{gpus.per_job} GPUs cannot be spread over {counts.min_nodes} nodes: each gets one at "
            "least",
            f"--nodes={gpus.per_job}, or --gpus={counts.min_nodes} or more",
        )
    if counts.max_nodes and gpus.per_job < counts.max_nodes:
        counts.max_nodes = gpus.per_job
    return None
