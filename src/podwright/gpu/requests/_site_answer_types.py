"""A site as requests are counted on it, and the answers that explain-request gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Stage = Literal["submit", "waits", "step", "hangs", "unknown"]


@dataclass(frozen=True)
class NodeHardware:
    """Equal nodes.

    memory: bytes that jobs can have; 0: Slurm does not count them, or the number is not known.
    types: the number of GPUs of each type on a node; empty: the GPUs have no type, or it is not
    known. confined: ConstrainDevices is set, so programs count their GPUs from 0 and see no others.
    affinity: Slurm binds tasks to CPUs (task/affinity). reserved: CPUs that no job gets
    (CoreSpecCount).
    """

    nodes: int = 4
    sockets: int = 2
    cores_per_socket: int = 32
    gpus: int = 8
    types: tuple[tuple[str, int], ...] = ()
    confined: bool = True
    affinity: bool = False
    threads: int = 1
    memory: int = 0
    reserved: int = 0

    @property
    def cores(self) -> int:
        """The cores of one node."""
        return self.sockets * self.cores_per_socket

    def gpus_of(self, gpu_type: str = "") -> int:
        """Return a node's number of GPUs of this type; of all types if none is named."""
        if not gpu_type or not self.types:
            return self.gpus
        return sum(gpu_count for type_name, gpu_count in self.types if type_name == gpu_type)


@dataclass(frozen=True)
class SlurmPartition:
    """A partition's limits. max_nodes: None without a limit. max_time: minutes, None without a
    limit.

    accepts: whether jobs may be submitted to it. starts: whether its jobs start.
    """

    name: str = ""
    nodes: frozenset[str] = frozenset()
    max_nodes: int | None = None
    max_time: int | None = None
    accepts: bool = True
    starts: bool = True


@dataclass(frozen=True)
class SlurmCluster:
    """A site.

    nodes: each name with the index of its hardware in `shapes`. down: nodes that take no job.
    default: the partition of a job that names none. enforces_limits: EnforcePartLimits refuses jobs
    beyond a partition's limits, which otherwise wait. not_known: required fields that Slurm does
    not show. cautions: what may change an answer, as sentences without full stops. unplaced: nodes
    with GPUs near several sockets for which no gres.conf gives the socket of each.
    """

    shapes: tuple[NodeHardware, ...]
    nodes: tuple[tuple[str, int], ...]
    partitions: tuple[SlurmPartition, ...] = (SlurmPartition(),)
    default: str = ""
    down: frozenset[str] = frozenset()
    enforces_limits: bool = False
    not_known: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    unplaced: frozenset[str] = frozenset()

    def shape_of(self, node_name: str) -> NodeHardware:
        """Return the hardware of a node."""
        return self.shapes[dict(self.nodes)[node_name]]


@dataclass(frozen=True)
class NodeGrant:
    """What a job has on one node. gpus and cpus: by number, as scontrol counts them.

    shares: the number of each GPU's shards or MPS shares, by GPU. memory: bytes.
    """

    name: str
    gpus: tuple[int, ...]
    tasks: int
    cpus: tuple[int, ...] = ()
    shares: Mapping[int, int] = field(default_factory=dict)
    memory: int = 0
    shape: NodeHardware = NodeHardware()


@dataclass(frozen=True)
class TaskView:
    """The view of one task. node: its index in the grant. sees: GPUs by their number on the node.

    variable: CUDA_VISIBLE_DEVICES, None if it is unset. cpus: those to which it is bound, by
    number; none if tasks are not bound.
    """

    rank: int
    node: int
    local_rank: int
    sees: tuple[int, ...]
    variable: str | None
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Grant:
    """Slurm starts the job. nodes: in the order of ranks. notes: sentences without full stops."""

    nodes: tuple[NodeGrant, ...]
    tasks: tuple[TaskView, ...]
    notes: tuple[str, ...] = ()

    @property
    def total_gpus(self) -> int:
        """All GPUs of the job."""
        return sum(len(node.gpus) for node in self.nodes)


@dataclass(frozen=True)
class CountedJob:
    """A job by its counts alone. Which nodes, GPUs and CPUs it gets is not known.

    nodes: their number; if `fixed` is false, the smallest, and Slurm may give more nodes, each with
    its GPUs and tasks. tasks: of a plain srun in the job. gpus: of the whole job. gpus_per_node and
    tasks_per_node: None if Slurm decides. seen_by_task: how many GPUs a task sees, None if the
    placement decides. binding: the rule for that. starts: when `sbatch --test-only` expects it to
    start, empty if that was not asked.
    """

    nodes: int
    tasks: int
    gpus: int
    fixed: bool = True
    gpus_per_node: int | None = None
    tasks_per_node: int | None = None
    seen_by_task: int | None = None
    binding: str = ""
    shares: int = 0
    starts: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SlurmRefusal:
    """Why a job does not run.

    stage: submit (refused at once), waits (accepted, and not started `until`), step (the job starts
    and its srun fails), hangs (it starts and its srun waits for ever), unknown (the answer is not
    known, for the reason `reason`).
    """

    stage: Stage
    reason: str
    would_work: str = ""
    until: str = ""

    def after(self, slurm_words: str) -> SlurmRefusal:
        """Return the same with Slurm's own words before its reason."""
        return replace(self, reason=f"{slurm_words}. {self.reason[:1].upper()}{self.reason[1:]}")
