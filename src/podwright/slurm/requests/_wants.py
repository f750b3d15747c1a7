"""What the scheduler is handed: counts of tasks, nodes and GPUs, brought into line or refused.

Both the command and slurmctld run these checks, one after the other, each on what the one before
made of the counts. Their order is Slurm's own, so that the first thing named here is the first
thing that Slurm names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.slurm.requests._agree import agree
from podwright.slurm.requests._fill import Options, fill
from podwright.slurm.requests._request import Request
from podwright.slurm.requests._values import Refusal


@dataclass
class Ask:
    """GPUs of one type, or of any, by everything that can count them; 0 is "not said"."""

    kind: str
    per_job: int = 0
    per_node: int = 0
    per_socket: int = 0
    per_task: int = 0
    cpus_per_gpu: int = 0
    tasks_per_gpu: int = 0
    total: int = 0

    @property
    def counts(self) -> bool:
        """Whether it asks for GPUs at all, and not just says something about them."""
        return bool(self.per_job or self.per_node or self.per_socket or self.per_task)


@dataclass
class Wants:
    """A job as slurmctld has it; None is "not said"."""

    options: Options
    tasks: int | None
    min_nodes: int | None
    max_nodes: int | None
    tasks_per_node: int | None
    tasks_per_socket: int | None
    sockets_per_node: int | None
    cpus_per_task: int | None
    min_cpus: int
    tasks_per_gpu: int | None
    asks: list[Ask] = field(default_factory=list)
    sent_tasks: int | None = None  # as the command knows them when the job has started
    sent_tasks_per_node: int | None = None

    @property
    def cpus(self) -> int:
        """CPUs of one task."""
        return self.cpus_per_task or 1

    @property
    def least_on_node(self) -> int:
        """CPUs that a node must have at least."""
        if self.tasks_per_node and (self.tasks or 0) > 1:
            return self.cpus * self.tasks_per_node
        return self.cpus

    @property
    def cpus_per_gpu(self) -> int:
        """What --cpus-per-gpu says, 0 where it does not."""
        return max((ask.cpus_per_gpu for ask in self.asks), default=0)

    @property
    def gpus_per_job(self) -> bool:
        """Whether GPUs are counted over all nodes."""
        return any(ask.per_job for ask in self.asks)


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
