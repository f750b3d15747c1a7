"""What is counted on the way: a job as slurmctld has it, a step of it as srun asks for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from podwright.slurm.gpus.requests._fill import CommandCounts
from podwright.slurm.gpus.requests._request import SHARED, Gpus
from podwright.slurm.gpus.requests._values import NodeHardware


@dataclass
class Ask:
    """GPUs of one type, or of any, by everything that can count them; 0 is "not said".

    Defaults are those of the partition that is tested. Two counts of slurmctld still have those of
    partitions that were tested before; None: of the same.
    """

    kind: str
    per_job: int = 0
    per_node: int = 0
    per_socket: int = 0
    per_task: int = 0
    cpus_per_gpu: int = 0
    tasks_per_gpu: int = 0
    total: int = 0
    name: str = "gpu"
    memory_per_gpu: int = 0
    default_cpus: int = 0
    default_memory: int = 0
    first_default_cpus: int | None = None  # of the first, in gres_list_req_accum
    last_default_memory: int | None = None  # of the last, as _verify_node_state finds it

    @property
    def counted_cpus(self) -> int:
        """CPUs that each GPU brings to the least CPUs of a node and of the job."""
        if self.cpus_per_gpu or self.first_default_cpus is None:
            return self.cpus_per_gpu or self.default_cpus
        return self.first_default_cpus

    @property
    def verified_memory(self) -> int:
        """The memory of a GPU by which nodes are looked at first; where there is any, the job has
        no default by node or CPU any more."""
        if self.memory_per_gpu or self.last_default_memory is None:
            return self.memory_per_gpu or self.default_memory
        return self.last_default_memory

    @property
    def shared(self) -> bool:
        """Whether it counts shares of a GPU: of one only, as a rule."""
        return self.name in SHARED

    def copy(self) -> Ask:
        """Another one, to be changed."""
        return replace(self)

    @property
    def counts(self) -> bool:
        """Whether it asks for GPUs at all, and not just says something about them."""
        return bool(self.per_job or self.per_node or self.per_socket or self.per_task)


@dataclass
class Wants:
    """A job as slurmctld has it; None is "not said"."""

    options: CommandCounts
    tasks: int | None
    min_nodes: int | None
    max_nodes: int | None
    tasks_per_node: int | None
    tasks_per_socket: int | None
    sockets_per_node: int | None
    cpus_per_task: int | None
    min_cpus: int
    tasks_per_gpu: int | None
    tasks_per_core: int | None = None  # 0: as many as will go
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    mincpus: int = 1
    memory: tuple[int, bool] | None = None  # bytes, and whether each CPU
    overcommit: bool = False
    use_min_nodes: bool = False
    asks: list[Ask] = field(default_factory=list)
    named: tuple[str, ...] = ()  # nodes that must take part
    pool: tuple[str, ...] = ()  # nodes to choose from, where more are named than are asked for
    sent_tasks: int | None = None  # as the command knows them when the job has started
    sent_tasks_per_node: int | None = None
    sent_nodes: int | None = None
    gpus_place_tasks: int = 0  # tasks of a node, where GPUs of a node and of a task say how many

    @property
    def cpus(self) -> int:
        """CPUs of one task."""
        return self.cpus_per_task or 1

    @property
    def cpus_said(self) -> bool:
        """Whether anything but a default says how many CPUs a task has."""
        return self.cpus_per_task is not None

    @property
    def least_on_node(self) -> int:
        """CPUs that a node must have at least."""
        least = max(self.mincpus, self.cpus)
        if self.tasks_per_node and (self.tasks or 0) > 1 and not self.overcommit:
            return max(least, self.cpus * self.tasks_per_node)
        return least

    @property
    def cpus_per_gpu(self) -> int:
        """What --cpus-per-gpu says, 0 where it does not."""
        return max((ask.cpus_per_gpu for ask in self.asks), default=0)

    @property
    def gpus_per_job(self) -> bool:
        """Whether GPUs are counted over all nodes."""
        return any(ask.per_job for ask in self.asks)


@dataclass(frozen=True)
class HeldNode:
    """One node of a job: cores by socket, GPUs by number."""

    cores: tuple[int, ...]
    gpus: tuple[int, ...]
    shape: NodeHardware
    name: str = ""
    shares: tuple[tuple[int, int], ...] = ()
    memory: int = 0
    job_cpus: int | None = None  # 0 on a node that no task was laid on, though it holds cores

    @property
    def cpus(self) -> int:
        """All CPUs of the job on this node."""
        return sum(self.cores) if self.job_cpus is None else self.job_cpus


@dataclass
class Step:
    """What srun asks for; `asked` are its own counts of GPUs."""

    tasks: int | None
    min_nodes: int
    max_nodes: int
    cpus: int
    tasks_per_node: int | None
    cpus_per_task: int | None
    exact: bool
    asked: tuple[tuple[str, Gpus], ...]
    cyclic: bool = False  # tasks go over the nodes in turn
    sized: bool = True  # it asks for memory of its own: its job or the site says how much
    tasks_per_core: int = 0  # --ntasks-per-core, where slurmctld counts the cores of a step by it
    blocked: bool = False  # slurmctld takes some of its CPUs for those of other steps


@dataclass
class Share:
    """GPUs of one type for a step, by everything that can count them."""

    kind: str
    job: int = 0
    node: int = 0
    socket: int = 0
    task: int = 0
    tasks_per_gpu: int = 0
    cpus_per_gpu: int = 0  # since 23.02
    found: int = 0


@dataclass(frozen=True)
class Placed:
    """The tasks and the GPUs of a step on one node of the job."""

    node: int
    tasks: int
    gpus: tuple[int, ...]
    cyclic: bool = False
    cpus: int = 1  # of a task, as srun or its GPUs say
    cores: int | None = None  # of the step here; None: all of the job
    recounts: bool = False  # the step counts cores beside its GPUs twice
    floors: bool = False  # and rounds down those of a task
