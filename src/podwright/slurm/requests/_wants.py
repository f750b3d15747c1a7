"""What the scheduler is handed: the request after sbatch, salloc or srun filled it in.

The three commands fill in a task count differently, and Slurm then brings counts of GPUs,
tasks and nodes into line or refuses. The order of the checks is Slurm's own (22.05), so that
the first thing named here is the first thing that Slurm names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from podwright.slurm.requests._request import Request
from podwright.slurm.requests._values import Refusal


@dataclass
class Wants:
    """Counts as the scheduler sees them; 0 is "not said", `tasks` None likewise."""

    tasks: int | None
    step_tasks: int
    min_nodes: int
    max_nodes: int | None
    tasks_per_node: int
    cpus_per_task: int
    cpus_said: bool
    cpus: int
    sockets_per_node: int
    per_job: int
    per_node: int
    per_socket: int
    per_task: int
    tasks_per_gpu: int
    cpus_per_gpu: int


_BIND = re.compile(
    r"(verbose,)?(none|closest|single:[1-9]\d*|per_task:[1-9]\d*"
    r"|map_gpu:[\dx*,a-f]+|mask_gpu:[\dxa-fA-F*,]+)$"
)


def _bind_is_known(bind: str) -> bool:
    return bool(_BIND.match(bind)) or bind == "verbose"


def _conflict(request: Request) -> Refusal | None:
    if request.bind and not _bind_is_known(request.bind):
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


def _newer(request: Request) -> Refusal | None:
    """What Slurm refuses since it counts tasks from GPUs more strictly (24.11.5)."""
    each, node = request.per_task, request.per_node
    nodes = request.min_nodes if request.min_nodes == request.max_nodes else None
    unsaid = not (request.per_job or request.tasks or request.min_nodes)
    if each and unsaid and request.command != "srun":
        return Refusal(
            "submit",
            "--gpus-per-task needs to know how many tasks",
            "Add --ntasks=N, or --nodes with --ntasks-per-node",
        )
    if each and node and nodes and node.count % each.count == 0:
        fit = node.count // each.count
        asked = request.tasks_per_node or fit
        nodes = min(nodes, request.tasks or nodes)
        if asked != fit or (request.tasks or nodes * (request.tasks_per_node or 1)) != fit * nodes:
            return Refusal(
                "submit",
                f"{node.count} GPUs per node at {each.count} per task are {fit} tasks on each of "
                f"{nodes} nodes, and other tasks are asked for",
                f"--ntasks-per-node={fit}",
            )
    return None


def wants_of(request: Request, *, newer: bool = False) -> Wants | Refusal:
    """The request in the scheduler's terms, or why it never gets there. newer: since 23.02."""
    refused = _conflict(request) or (_newer(request) if newer else None)
    if refused:
        return refused
    nodes_said = request.min_nodes is not None
    low, high = request.min_nodes or 1, request.max_nodes
    tasks, said = request.tasks or 1, request.tasks is not None
    per_node = request.tasks_per_node or 0
    fixed = high is None or low == high
    if (
        request.command != "srun"
        and per_node
        and not said
        and (request.command == "salloc" or fixed)
    ):
        tasks, said = low * per_node, True
    if nodes_said and fixed and not said:
        tasks = low
        if request.sockets_per_node and request.command != "srun":
            tasks, said = tasks * request.sockets_per_node, True
        elif per_node and request.command == "srun":
            tasks, said = tasks * per_node, True
    elif nodes_said and said:
        if high is not None and tasks < high:
            high = tasks
        if tasks < low:
            low = high = tasks
        if request.command == "srun" and per_node and per_node != tasks // low:
            per_node = 0
    if per_node and not said:
        tasks, said = low * per_node, True
    wants = Wants(
        tasks=tasks if said else None,
        step_tasks=tasks,
        min_nodes=low if nodes_said else 0,
        max_nodes=high if nodes_said else None,
        tasks_per_node=per_node,
        cpus_per_task=request.cpus_per_task or 1,
        cpus_said=request.cpus_per_task is not None,
        cpus=tasks * (request.cpus_per_task or 1),
        sockets_per_node=request.sockets_per_node or 0,
        per_job=request.per_job.count if request.per_job else 0,
        per_node=request.per_node.count if request.per_node else 0,
        per_socket=request.per_socket.count if request.per_socket else 0,
        per_task=request.per_task.count if request.per_task else 0,
        tasks_per_gpu=request.tasks_per_gpu or 0,
        cpus_per_gpu=request.cpus_per_gpu or 0,
    )
    return _bring_into_line(wants) or wants


def _bring_into_line(w: Wants) -> Refusal | None:
    """Make counts agree as Slurm does, in its order; a Refusal where they cannot."""
    if (
        (w.per_task or w.tasks_per_gpu)
        and w.tasks is None
        and w.min_nodes
        and (w.min_nodes == w.max_nodes)
    ):
        if w.tasks_per_gpu:
            w.tasks = w.min_nodes * w.tasks_per_gpu
        elif w.tasks_per_node:
            w.tasks = w.min_nodes * w.tasks_per_node
        elif not w.cpus_said:
            w.tasks = w.min_nodes
    refused = _tasks_of_gpus(w)
    if refused:
        return refused
    if w.per_job and max(w.per_node, w.per_task, w.per_socket) > w.per_job:
        return Refusal(
            "submit",
            f"--gpus={w.per_job} counts the whole job, and is less than what one node, socket "
            "or task shall have",
            f"--gpus={max(w.per_node, w.per_task, w.per_socket) * max(w.min_nodes, 1)}, "
            "or leave --gpus out",
        )
    if w.per_node and max(w.per_task, w.per_socket) > w.per_node:
        return Refusal(
            "submit",
            "one task or socket shall have more GPUs than its whole node",
            f"--gpus-per-node={max(w.per_task, w.per_socket)} or more",
        )
    if w.per_socket and not w.sockets_per_node:
        return Refusal(
            "submit",
            "--gpus-per-socket needs --sockets-per-node",
            "Add --sockets-per-node=N, or ask with --gpus-per-node",
        )
    if w.cpus_per_gpu and w.cpus_said:
        return Refusal("submit", "--cpus-per-gpu and --cpus-per-task exclude each other")
    return _multiples(w)


def _tasks_of_gpus(w: Wants) -> Refusal | None:
    """--ntasks-per-gpu: tasks from GPUs where GPUs are said, else GPUs from tasks."""
    if not w.tasks_per_gpu:
        return None
    if w.per_job or w.per_node:
        total = max(w.per_job, w.per_node * (w.min_nodes or 1))
        w.tasks = total * w.tasks_per_gpu
    elif w.tasks:
        w.per_job = w.tasks // w.tasks_per_gpu
        if w.per_job == 0:
            return Refusal(
                "submit",
                f"{w.tasks} tasks at {w.tasks_per_gpu} per GPU come to no whole GPU",
                f"--ntasks={w.tasks_per_gpu}",
            )
    else:
        return Refusal(
            "submit",
            "--ntasks-per-gpu says how tasks share GPUs, but neither GPUs nor tasks are counted",
            "Add --gpus=N (tasks follow) or --ntasks=N (GPUs follow)",
        )
    if w.tasks is not None and w.tasks % w.tasks_per_gpu:
        return Refusal(
            "submit",
            f"--ntasks={w.tasks} is no multiple of --ntasks-per-gpu={w.tasks_per_gpu}",
            f"--ntasks={-(-w.tasks // w.tasks_per_gpu) * w.tasks_per_gpu}",
        )
    return None


def _multiples(w: Wants) -> Refusal | None:
    low, high = w.min_nodes or None, w.max_nodes
    if w.per_job and w.per_node:
        if w.per_job % w.per_node:
            return Refusal(
                "submit",
                f"--gpus={w.per_job} is no multiple of the {w.per_node} GPUs per node",
                f"--gpus={-(-w.per_job // w.per_node) * w.per_node}, or leave one of them out",
            )
        nodes = w.per_job // w.per_node
        if (low and nodes < low) or (high and nodes > high):
            return Refusal(
                "submit",
                f"--gpus={w.per_job} at {w.per_node} per node are {nodes} nodes, but --nodes "
                f"asks for {low}",
                f"--nodes={nodes}, or --gpus={w.per_node * (low or 1)}",
            )
        w.min_nodes = w.max_nodes = nodes
    if w.per_node and w.per_socket:
        if w.per_node % w.per_socket:
            return Refusal("submit", "GPUs per node are no multiple of GPUs per socket")
        if w.per_node // w.per_socket != w.sockets_per_node:
            return Refusal(
                "submit",
                f"{w.per_node} GPUs per node at {w.per_socket} per socket are "
                f"{w.per_node // w.per_socket} sockets, not {w.sockets_per_node}",
                f"--sockets-per-node={w.per_node // w.per_socket}",
            )
    if w.per_task:
        refused = _per_task(w)
        if refused:
            return refused
    if w.per_job:
        if w.min_nodes and w.per_job < w.min_nodes:
            return Refusal(
                "submit",
                f"{w.per_job} GPUs cannot be spread over {w.min_nodes} nodes: each gets one "
                "at least",
                f"--nodes={w.per_job}, or --gpus={w.min_nodes} or more",
            )
        if w.max_nodes and w.per_job < w.max_nodes:
            w.max_nodes = w.per_job
    return None


def _per_task(w: Wants) -> Refusal | None:
    if w.per_job:
        if w.per_job % w.per_task:
            return Refusal(
                "submit",
                f"--gpus={w.per_job} is no multiple of --gpus-per-task={w.per_task}",
                f"--gpus={-(-w.per_job // w.per_task) * w.per_task}",
            )
        tasks = w.per_job // w.per_task
        if w.tasks is None:
            w.tasks = tasks
        elif w.tasks != tasks:
            return Refusal(
                "submit",
                f"--gpus={w.per_job} at {w.per_task} per task are {tasks} tasks, not {w.tasks}",
                f"--ntasks={tasks}, or --gpus={w.tasks * w.per_task}",
            )
    elif w.tasks is not None:
        w.per_job = w.tasks * w.per_task
    else:
        return Refusal(
            "submit",
            "--gpus-per-task needs to know how many tasks",
            "Add --ntasks=N, or --nodes with --ntasks-per-node",
        )
    if w.per_node:
        if w.per_node % w.per_task:
            return Refusal(
                "submit",
                f"{w.per_node} GPUs per node are no multiple of --gpus-per-task={w.per_task}",
            )
        tasks = w.per_node // w.per_task
        if not w.tasks_per_node:
            w.tasks_per_node = tasks
        elif w.tasks_per_node != tasks:
            return Refusal(
                "submit",
                f"{w.per_node} GPUs per node at {w.per_task} per task are {tasks} tasks a node, "
                f"not {w.tasks_per_node}",
                f"--ntasks-per-node={tasks}",
            )
    if w.per_socket and w.per_socket % w.per_task:
        return Refusal("submit", "GPUs per socket are no multiple of --gpus-per-task")
    if w.cpus_per_gpu:
        w.cpus_per_task = w.cpus_per_gpu * w.per_task
    return None
