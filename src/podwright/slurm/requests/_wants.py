"""What the scheduler is handed: counts of tasks, nodes and GPUs, brought into line or refused.

Both the command and slurmctld run these checks, one after the other, each on what the one before
made of the counts. Their order is Slurm's own, so that the first thing named here is the first
thing that Slurm names.
"""

from __future__ import annotations

from podwright.slurm.requests._agree import agree
from podwright.slurm.requests._counts import Wants
from podwright.slurm.requests._fill import Options, fill
from podwright.slurm.requests._request import Request
from podwright.slurm.requests._values import Refusal


def wants_of(request: Request, *, newer: bool = False) -> Wants | Refusal:
    """The request in the scheduler's terms, or why it never gets there. newer: since 23.02."""
    wants = _sent(fill(request, newer=newer), request, newer=newer)
    refused = agree(wants, request, newer=newer, server=False)
    if refused:
        return refused
    wants.sent_tasks, wants.sent_tasks_per_node = wants.tasks, wants.tasks_per_node
    _complete(wants, newer=newer)
    return agree(wants, request, newer=newer, server=True) or wants


def _sent(o: Options, request: Request, *, newer: bool) -> Wants:
    """The message of a command."""
    tasks, min_nodes = o.tasks, o.min_nodes if o.nodes_said else None
    if newer and o.tasks_per_node:
        if not o.said and o.fixed:
            tasks = o.min_nodes * o.tasks_per_node
        elif o.said and not o.nodes_said:
            min_nodes = -(-o.tasks // o.tasks_per_node)
    return Wants(
        options=o,
        tasks=o.tasks if o.said else None,
        min_nodes=min_nodes,
        max_nodes=(o.max_nodes or None) if o.nodes_said else None,
        tasks_per_node=o.tasks_per_node,
        tasks_per_socket=None,
        sockets_per_node=o.sockets_per_node,
        cpus_per_task=o.cpus_per_task,
        min_cpus=tasks * (o.cpus_per_task or 1),
        tasks_per_gpu=request.tasks_per_gpu,
    )


def _complete(w: Wants, *, newer: bool) -> None:
    """What slurmctld fills in before it checks."""
    if newer and w.min_nodes is None:
        w.min_nodes = 1
    if w.tasks is None and w.min_nodes is not None:
        if newer and w.tasks_per_gpu:
            w.tasks = w.min_nodes * w.tasks_per_gpu
        elif w.tasks_per_node:
            w.tasks = w.min_nodes * w.tasks_per_node
    if w.tasks is not None and w.tasks > w.min_cpus:
        w.min_cpus = w.tasks * w.cpus
    w.min_nodes = w.min_nodes or 1
    w.max_nodes = w.max_nodes or 0
