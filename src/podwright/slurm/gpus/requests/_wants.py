"""What the scheduler is handed: counts of tasks, nodes and GPUs, brought into line or refused.

Both the command and slurmctld run these checks, one after the other, each on what the one before
made of the counts. Their order is Slurm's own, so that the first thing named here is the first
thing that Slurm names.
"""

from __future__ import annotations

from podwright.slurm.gpus.requests._consistent_counts import make_consistent
from podwright.slurm.gpus.requests._counts import Wants
from podwright.slurm.gpus.requests._fill import CommandCounts, fill
from podwright.slurm.gpus.requests._request import SlurmRequest
from podwright.slurm.gpus.requests._request_details import RequestDetails, read_said
from podwright.slurm.gpus.requests._values import SlurmRefusal
from podwright.slurm.site.releases import Release


def wants_of(
    request: SlurmRequest,
    release: Release,
    *,
    said: RequestDetails | None = None,
    least_nodes: int = 0,
    nodes: tuple[str, ...] = (),
) -> Wants | SlurmRefusal:
    """The request in the scheduler's terms, or why it never gets there.

    least_nodes: MinNodes of the partition, which raises what is asked for; nodes: all of the site.
    """
    said = said or read_said(request.given, release)
    wants = _sent(fill(request, release, said), request, said, release)
    refused = make_consistent(wants, request, release, server=False)
    if refused:
        return refused
    wants.sent_tasks, wants.sent_tasks_per_node = wants.tasks, wants.tasks_per_node
    o = wants.options
    if release.counts_tasks_at_server and request.min_nodes is None and not o.tasks_per_node:
        wants.gpus_place_tasks = wants.tasks_per_node or 0
    wants.sent_nodes = wants.min_nodes or (1 if release.counts_tasks_at_server else None)
    _name_nodes(wants, nodes if said.contiguous else (), release)
    _complete(wants, least_nodes, release)
    refused = make_consistent(wants, request, release, server=True)
    if wants.tasks_per_gpu and request.tasks is None and not release.counts_tasks_at_server:
        wants.sent_tasks = wants.tasks  # also of the nodes that MinNodes of a partition adds
    return refused or wants


def _sent(o: CommandCounts, request: SlurmRequest, said: RequestDetails, release: Release) -> Wants:
    """The message of a command."""
    tasks, min_nodes = o.tasks, o.min_nodes if o.nodes_said else None
    if release.counts_tasks_at_server and o.tasks_per_node:
        if not o.said and o.fixed:
            tasks = o.min_nodes * o.tasks_per_node
        elif o.said and not o.nodes_said:
            min_nodes = -(-o.tasks // o.tasks_per_node)
    min_cpus = tasks * (o.cpus_per_task or 1)
    if said.overcommit:
        min_cpus = max(o.min_nodes, 1)
    memory: tuple[int, bool] | None = None
    if said.memory is not None:
        memory = (said.memory, False)
    elif said.memory_per_cpu is not None:
        memory = (said.memory_per_cpu, said.memory_per_cpu > 0)
    mincpus = said.mincpus or 1
    return Wants(
        options=o,
        tasks=o.tasks if o.said else None,
        min_nodes=min_nodes,
        max_nodes=(o.max_nodes or None) if o.nodes_said else None,
        tasks_per_node=o.tasks_per_node,
        tasks_per_socket=said.tasks_per_socket,
        sockets_per_node=said.sockets,
        cpus_per_task=o.cpus_per_task,
        min_cpus=min_cpus,
        tasks_per_gpu=request.tasks_per_gpu,
        tasks_per_core=said.tasks_per_core,
        cores_per_socket=said.cores,
        threads_per_core=said.threads,
        mincpus=max(mincpus, o.cpus_per_task or 1),
        memory=memory,
        overcommit=said.overcommit,
        use_min_nodes=said.use_min_nodes,
    )


def _name_nodes(w: Wants, nodes: tuple[str, ...], release: Release) -> None:
    """Nodes that are named, in the order of all, and with --contiguous all between them."""
    w.named = w.options.named
    at = [n for n, name in enumerate(nodes) if name in w.named]
    if at and set(w.named) <= set(nodes):
        w.named = nodes[at[0] : at[-1] + 1]
    if release.nodelist_is_pool and len(w.named) > (w.min_nodes or len(w.options.named)):
        w.named, w.pool = (), w.named


def _complete(w: Wants, least: int, release: Release) -> None:
    """What slurmctld fills in before it checks."""
    if least > 1 and (
        w.min_nodes is None or (w.min_nodes < least and not 0 < (w.max_nodes or 0) < least)
    ):
        w.min_nodes = least
    if release.counts_tasks_at_server and w.min_nodes is None:
        w.min_nodes = 1
    if w.tasks is None and w.min_nodes is not None:
        if release.counts_tasks_at_server and w.tasks_per_gpu:
            w.tasks = w.min_nodes * w.tasks_per_gpu
        elif w.tasks_per_node:
            w.tasks = w.min_nodes * w.tasks_per_node
    if w.tasks is not None and w.tasks > w.min_cpus and not w.overcommit:
        w.min_cpus = w.tasks * w.cpus
    named = len(w.named)
    if named and not release.nodelist_is_pool:
        w.min_nodes = max(w.min_nodes or 1, named)
        w.min_cpus = max(w.min_cpus, named)
    w.min_nodes = w.min_nodes or 1
    w.max_nodes = w.max_nodes or 0
