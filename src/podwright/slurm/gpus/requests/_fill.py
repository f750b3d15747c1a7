"""What sbatch, salloc and srun make of their options before anything is sent.

The three commands fill in a task count differently, and releases since 23.02 leave more of it to
slurmctld. An srun inside a job goes through the same steps, with the job's environment as options.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.slurm.gpus.requests._request import SlurmRequest
from podwright.slurm.gpus.requests._request_details import RequestDetails
from podwright.slurm.site.releases import Release


@dataclass
class CommandCounts:
    """Counts as a command holds them: `tasks` is 1 where `said` is false, `max_nodes` 0 is none."""

    tasks: int = 1
    said: bool = False  # by the user or by a rule below
    min_nodes: int = 1
    max_nodes: int = 0
    nodes_said: bool = False
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    sockets_per_node: int | None = None
    counted: bool = False  # `tasks` came with --ntasks, not from a rule
    named: tuple[str, ...] = ()
    names_counted: bool = False  # the named nodes say how many, not --nodes alone
    queued: bool = False  # batch jobs start from the queue, not while they are submitted

    @property
    def fixed(self) -> bool:
        """Whether the count of nodes is no range."""
        return self.max_nodes in (0, self.min_nodes)


def fill(request: SlurmRequest, release: Release, said: RequestDetails) -> CommandCounts:
    """The options of a command that asks for a job."""
    options = CommandCounts(
        tasks=request.tasks or 1,
        said=request.tasks is not None,
        min_nodes=request.min_nodes or 1,
        max_nodes=request.max_nodes or 0,
        nodes_said=request.min_nodes is not None,
        tasks_per_node=request.tasks_per_node,
        cpus_per_task=request.cpus_per_task,
        sockets_per_node=request.sockets_per_node,
        counted=request.tasks is not None,
        queued=request.command == "sbatch",
    )
    alone = request.command == "srun"
    _names(options, said, release, cut=alone and release.srun_cuts_nodelist)
    if alone:
        fill_srun(options, release, said)
    else:
        _fill_job(options, request.command, said, release)
    return options


def _names(o: CommandCounts, said: RequestDetails, release: Release, *, cut: bool) -> None:
    """--nodelist counts nodes; where it is a pool, only if --nodes does not. cut: to --nodes."""
    o.named = said.named[: o.max_nodes] if cut and o.max_nodes else said.named
    if not said.named or (release.nodelist_is_pool and o.nodes_said):
        return
    count = len(o.named)
    o.min_nodes = max(count, o.min_nodes) if o.nodes_said else count
    o.nodes_said = o.names_counted = True


def fill_srun(o: CommandCounts, release: Release, said: RequestDetails | None = None) -> None:
    """As srun fills in. said: of an srun on its own; one in a job has nodes and tasks from there,
    and nothing else."""
    each, later, in_job = o.tasks_per_node, release.counts_tasks_at_server, said is None
    counted = o.nodes_said or (said is not None and said.whole_info)
    if counted and o.fixed and not o.said and not (later and each):
        full = said is not None and said.sockets and said.cores and said.threads
        o.tasks = o.min_nodes * (1 if full else each or 1)
        o.said = each is not None
        if said is not None and full:
            _more(o, said)
    elif o.nodes_said and o.said:
        o.max_nodes = min(o.max_nodes, o.tasks)
        fewer = o.tasks < o.min_nodes
        if fewer:
            o.min_nodes = o.max_nodes = o.tasks
        if fewer and o.names_counted:
            o.named = tuple(sorted(o.named, key=in_order)[: o.tasks])
        if later:
            _settle(o, forget_tasks=in_job and fewer, in_job=in_job)
        elif each and each != o.tasks // o.min_nodes:
            o.tasks_per_node = None
    if o.tasks_per_node and not o.said:
        o.tasks, o.said = o.min_nodes * o.tasks_per_node, True


def _settle(o: CommandCounts, *, forget_tasks: bool, in_job: bool) -> None:
    if not o.tasks_per_node:
        return
    if forget_tasks:
        o.tasks, o.said, o.counted = 1, False, False
    elif in_job and o.max_nodes and o.tasks > o.max_nodes * o.tasks_per_node:
        o.tasks_per_node = None


def in_order(name: str) -> tuple[str, int]:
    """n2 before n10."""
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0)


def _more(o: CommandCounts, said: RequestDetails) -> None:
    """Tasks of the sockets, cores and threads that are asked for of each node."""
    for count in (said.sockets, said.cores, said.threads):
        if count:
            o.tasks, o.said = o.tasks * count, True


def _fill_job(o: CommandCounts, command: str, said: RequestDetails, release: Release) -> None:
    each, later = o.tasks_per_node, release.counts_tasks_at_server
    if not later and each and not o.said and (command == "salloc" or o.fixed):
        o.tasks, o.said = o.min_nodes * each, True
    counted = o.nodes_said or said.whole_info
    if counted and o.fixed and not o.said and not (later and each):
        o.tasks = max(o.min_nodes, 1)
        _more(o, said)
    elif o.nodes_said and o.said:
        o.max_nodes = min(o.max_nodes, o.tasks)
        if o.tasks < o.min_nodes:
            o.min_nodes = o.max_nodes = o.tasks
            if not release.nodelist_is_pool:
                o.named = tuple(sorted(o.named, key=in_order)[: o.tasks])
