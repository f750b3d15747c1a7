"""The counts of a request as Slurm's commands complete them: nodes, tasks, and GPUs of each type.

sbatch, salloc and srun derive counts that are not given from those that are, and slurmctld does so
once more. Both then check that the counts agree (`_consistent_counts`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.gpu.requests._request import SHARE_NAMES, SlurmRequest
from podwright.gpu.requests._request_details import RequestDetails


@dataclass
class GpuCounts:
    """GPUs of one type (or shards, or MPS shares), by everything that can count them; 0 is "not
    given". total: of the whole job."""

    kind: str
    name: str = "gpu"
    per_job: int = 0
    per_node: int = 0
    per_socket: int = 0
    per_task: int = 0
    cpus_per_gpu: int = 0
    memory_per_gpu: int = 0
    tasks_per_gpu: int = 0
    total: int = 0

    @property
    def counts(self) -> bool:
        """Return whether GPUs are counted, and not only described."""
        return bool(self.per_job or self.per_node or self.per_socket or self.per_task)

    @property
    def shared(self) -> bool:
        """Return whether shares of a GPU are counted."""
        return self.name in SHARE_NAMES


@dataclass
class JobCounts:
    """A job's counts; None is "not given"."""

    tasks: int | None
    min_nodes: int | None
    max_nodes: int | None
    tasks_per_node: int | None
    tasks_per_socket: int | None
    sockets_per_node: int | None
    cpus_per_task: int | None
    tasks_per_gpu: int | None
    gpus: list[GpuCounts] = field(default_factory=list)


def sent_counts(request: SlurmRequest, details: RequestDetails) -> JobCounts:
    """Return what the command sends to slurmctld."""
    counts = JobCounts(
        tasks=request.tasks,
        min_nodes=None if request.min_nodes is None else request.min_nodes or 1,
        max_nodes=request.max_nodes or None,
        tasks_per_node=request.tasks_per_node,
        tasks_per_socket=details.tasks_per_socket,
        sockets_per_node=details.sockets,
        cpus_per_task=request.cpus_per_task,
        tasks_per_gpu=request.tasks_per_gpu,
    )
    if counts.min_nodes is None and details.named:
        # Together with --nodes, newer releases choose among them.
        counts.min_nodes = len(details.named)
    lowest_nodes = counts.min_nodes or 1
    fixed_nodes = lowest_nodes if counts.max_nodes in (None, lowest_nodes) else 0  # 0: a range
    if request.command == "srun":
        _complete_srun(counts, details, fixed_nodes)
    else:
        _complete_job(counts, request.command, details, fixed_nodes)
    return counts


def complete_at_server(counts: JobCounts) -> None:
    """Return the counts that slurmctld completes before it checks them."""
    if counts.tasks is None and counts.min_nodes is not None and counts.tasks_per_node:
        counts.tasks = counts.min_nodes * counts.tasks_per_node
    counts.min_nodes = counts.min_nodes or 1


def _complete_srun(counts: JobCounts, details: RequestDetails, fixed_nodes: int) -> None:
    tasks_per_node = counts.tasks_per_node
    nodes_given = counts.min_nodes is not None or details.whole_info
    if nodes_given and fixed_nodes and counts.tasks is None:
        layout_given = details.sockets and details.cores and details.threads
        if layout_given:
            counts.tasks = fixed_nodes * _tasks_of_node(details)
        elif tasks_per_node:
            counts.tasks = fixed_nodes * tasks_per_node
    elif counts.min_nodes is not None and counts.tasks is not None:
        _drop_nodes_without_tasks(counts)
        if tasks_per_node and tasks_per_node != counts.tasks // counts.min_nodes:
            counts.tasks_per_node = None
    if tasks_per_node and counts.tasks is None:
        counts.tasks = (counts.min_nodes or 1) * tasks_per_node


def _complete_job(
    counts: JobCounts, command: str, details: RequestDetails, fixed_nodes: int
) -> None:
    tasks_per_node = counts.tasks_per_node
    if tasks_per_node and counts.tasks is None and (command == "salloc" or fixed_nodes):
        counts.tasks = (counts.min_nodes or 1) * tasks_per_node
    nodes_given = counts.min_nodes is not None or details.whole_info
    if nodes_given and fixed_nodes and counts.tasks is None:
        if details.sockets or details.cores or details.threads:
            counts.tasks = fixed_nodes * _tasks_of_node(details)
    else:
        _drop_nodes_without_tasks(counts)


def _tasks_of_node(details: RequestDetails) -> int:
    """Return a task for each socket, core and thread that is requested of a node."""
    product = 1
    for count in (details.sockets, details.cores, details.threads):
        product *= count or 1
    return product


def _drop_nodes_without_tasks(counts: JobCounts) -> None:
    """Limit nodes to the number of tasks, as a command does."""
    tasks, nodes = counts.tasks, counts.min_nodes
    if tasks is None or nodes is None:
        return
    if counts.max_nodes:
        counts.max_nodes = min(counts.max_nodes, tasks)
    if tasks < nodes:
        counts.min_nodes = counts.max_nodes = tasks
