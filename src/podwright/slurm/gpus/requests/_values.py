"""What a request meets and what it gets: nodes of one shape, and the grant or the refusal."""

from __future__ import annotations

from dataclasses import dataclass, field

EVERY_SOCKET = -1


@dataclass(frozen=True)
class NodeHardware:
    """The nodes that a request is laid over: equal and idle.

    `beside` is the socket of each GPU by number, EVERY_SOCKET where gres.conf names no cores for
    it, or those of all sockets; empty, the GPUs sit evenly on the sockets, in the order of their
    numbers. `names_cores`: for which GPUs it names any; empty where that makes none first. `types`
    is the type of each GPU by number; empty, all are of the first of `kinds`. `confined` says
    whether the site confines devices (ConstrainDevices=yes in cgroup.conf): then programs number
    the GPUs from zero, and see no others. `affinity`: tasks are bound to cores (task/affinity).

    `threads` are those of a core, `cpus` of a node as Slurm counts them (0: all threads). `memory`
    and `disk` are in bytes, `spec_memory` (MemSpecLimit) is what jobs never get beside `memory`.
    `shards` is how many shards each GPU is shared in, by number; `mps` likewise. `links[a][b]`
    counts the links between two GPUs (gres.conf's Links=). `reserved` are cores that no job gets,
    by their number in the node. `features` and `weight` as slurm.conf has them.
    """

    nodes: int = 4
    sockets: int = 2
    cores_per_socket: int = 32
    gpus: int = 8
    kinds: tuple[str, ...] = ()
    confined: bool = True
    affinity: bool = False
    beside: tuple[int, ...] = ()
    names_cores: tuple[bool, ...] = ()
    types: tuple[str, ...] = ()
    threads: int = 1
    cpus: int = 0
    memory: int = 1 << 60
    spec_memory: int = 0
    disk: int = 0
    weight: int = 1
    features: frozenset[str] = frozenset()
    shards: tuple[int, ...] = ()
    mps: tuple[int, ...] = ()
    links: tuple[tuple[int, ...], ...] = ()
    reserved: frozenset[int] = frozenset()
    other_gres: tuple[tuple[str, int], ...] = ()
    cpu_bind: str = ""  # CpuBind= of its line

    @property
    def cpus_per_core(self) -> int:
        """CPUs that Slurm counts for a core: its threads, or 1 where CPUs= says so."""
        return 1 if self.cpus == self.cores else self.threads

    @property
    def all_cpus(self) -> int:
        """CPUs of a node."""
        return self.cpus or self.cores * self.threads

    @property
    def cores(self) -> int:
        """Cores of one node."""
        return self.sockets * self.cores_per_socket

    def socket_of(self, gpu: int) -> int:
        """The socket beside which a GPU sits, or EVERY_SOCKET."""
        if self.sockets == 1:
            return EVERY_SOCKET  # Slurm makes no difference then
        if self.beside:
            return self.beside[gpu]
        share, more = divmod(self.gpus, self.sockets)
        ahead = more * (share + 1)
        return gpu // (share + 1) if gpu < ahead else more + (gpu - ahead) // share

    def has_cores(self, gpu: int) -> bool:
        """Does gres.conf name cores for a GPU, be they all?"""
        return self.names_cores[gpu] if self.names_cores else self.socket_of(gpu) != EVERY_SOCKET

    def units_of(self, name: str, kind: str = "") -> dict[int, int]:
        """Units of a GRES by number: 1 of each GPU (of a type), or the shards that it holds."""
        if name == "gpu":
            return dict.fromkeys(self.gpus_of(kind), 1)
        shares = {"shard": self.shards, "mps": self.mps}.get(name, ())
        return {gpu: n for gpu, n in enumerate(shares) if n and gpu in self.gpus_of(kind)}

    def gpus_of(self, kind: str = "") -> list[int]:
        """The numbers of the GPUs of this type; of all where none is named."""
        if not kind:
            return list(range(self.gpus))
        if not self.types:
            return list(range(self.gpus)) if kind in self.kinds or not self.kinds else []
        return [gpu for gpu in range(self.gpus) if self.types[gpu] == kind]


UNLIMITED = 1 << 30


@dataclass(frozen=True)
class SlurmPartition:
    """A partition's limits and defaults; memory is in bytes, times are in minutes.

    `memory` and `most_memory` are (bytes, whether each CPU), 0 where nothing is said. `share` is
    OverSubscribe: 0 EXCLUSIVE, 1 NO, 2 YES, 3 FORCE.
    """

    name: str = ""
    nodes: frozenset[str] = frozenset()
    min_nodes: int = 0
    max_nodes: int = UNLIMITED
    max_cpus_per_node: int = UNLIMITED
    max_cpus_per_socket: int = UNLIMITED
    memory: tuple[int, bool] = (0, False)
    most_memory: tuple[int, bool] = (0, False)
    max_time: int = UNLIMITED
    default_time: int | None = None
    share: int = 1
    least_loaded: bool = False
    cpus_per_gpu: int = 0
    memory_per_gpu: int = 0
    up: bool = True
    accepts: bool = True  # jobs may be submitted to it: neither DRAIN nor INACTIVE
    priority: int = 1
    unmodelled: str = ""
    topology: str = ""  # the name of one of several; empty: the cluster's
    cpu_bind: str = ""  # CpuBind= of its line


@dataclass(frozen=True)
class SlurmCluster:
    """A cluster: its nodes in Slurm's order, partitions, defaults and network.

    `nodes` are (name, kind) where kind counts in `shapes`; `down` are those that take no job.
    `leaves` are the switches at which nodes hang (topology/tree), `above` the switches of switches;
    `select` are the words of SelectTypeParameters. `unmodelled` names what is known to decide here
    and is not modelled: then no answer is given. On the nodes in `assumed` the GPUs are taken to
    stand in socket order, for no gres.conf says where they are. `own` is the site as jobs of a
    partition see it, where partitions have topologies of their own.
    """

    shapes: tuple[NodeHardware, ...]
    nodes: tuple[tuple[str, int], ...]
    partitions: tuple[SlurmPartition, ...] = (SlurmPartition(),)
    default: str = ""
    down: frozenset[str] = frozenset()
    select: frozenset[str] = frozenset({"CR_CORE"})
    memory: tuple[int, bool] = (0, False)
    most_memory: tuple[int, bool] = (0, False)
    cpus_per_gpu: int = 0
    memory_per_gpu: int = 0
    enforce: str = "NO"
    prefers: bool = True  # --prefer is tested when a job is submitted
    cpu_bind: str = ""  # TaskPluginParam
    core_spec_allowed: bool = False
    leaves: tuple[tuple[str, frozenset[str]], ...] = ()
    above: tuple[tuple[str, frozenset[str]], ...] = ()
    topology: str = "flat"
    unmodelled: tuple[str, ...] = ()
    assumed: frozenset[str] = frozenset()
    gres_types: frozenset[str] = frozenset()  # GresTypes; empty: not known
    hidden_shares: frozenset[str] = frozenset()  # whose CUDA_VISIBLE_DEVICES a plugin takes back
    cautions: tuple[str, ...] = ()  # what else may keep a job back, in sentences
    own: tuple[tuple[str, SlurmCluster], ...] = ()

    def of(self, partition: SlurmPartition) -> SlurmCluster:
        """The site as jobs of a partition see it."""
        return dict(self.own).get(partition.name, self)

    def cpus_of_gpu(self, partition: SlurmPartition) -> int:
        """DefCpuPerGPU."""
        return partition.cpus_per_gpu or self.cpus_per_gpu

    def memory_of_gpu(self, partition: SlurmPartition) -> int:
        """DefMemPerGPU."""
        return partition.memory_per_gpu or self.memory_per_gpu

    def shape_of(self, name: str) -> NodeHardware:
        """The kind of a node."""
        return self.shapes[dict(self.nodes)[name]]


def alone(shape: NodeHardware) -> SlurmCluster:
    """A site of `shape.nodes` equal nodes and one partition."""
    names = [f"n{number + 1}" for number in range(shape.nodes)]
    return SlurmCluster((shape,), tuple((name, 0) for name in names))


@dataclass(frozen=True)
class NodeGrant:
    """What one node gives: the GPUs by number, cores by socket, tasks; `cpus` are the CPUs by
    number, as scontrol counts them, `shards` (or other shared GRES) by GPU, memory in bytes."""

    gpus: tuple[int, ...]
    tasks: int
    cores: tuple[int, ...]
    name: str = ""
    cpus: tuple[int, ...] = ()
    shards: tuple[int, ...] = ()
    memory: int = 0
    shape: NodeHardware | None = None


@dataclass(frozen=True)
class TaskView:
    """What one task gets. `sees` are GPU numbers of its node; `variable` is the text of
    CUDA_VISIBLE_DEVICES, None where Slurm leaves it unset; `cpus` are the CPUs of its node by
    number that it is bound to, as scontrol counts them: none where tasks are not bound."""

    rank: int
    node: int
    local_rank: int
    sees: tuple[int, ...]
    variable: str | None
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Grant:
    """What Slurm gives: nodes (in the order of ranks), the tasks that start, and warnings."""

    nodes: tuple[NodeGrant, ...]
    tasks: tuple[TaskView, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def total_gpus(self) -> int:
        """All GPUs of the job."""
        return sum(len(node.gpus) for node in self.nodes)


@dataclass(frozen=True)
class SlurmRefusal:
    """What Slurm does instead. `stage`: submit (refused at once), waits (accepted, never starts,
    or not before `until`), step (the job starts, its srun fails), hangs (it starts, its srun waits
    for ever), nothing (no GPUs are asked for), unknown (this is not modelled: `reason` names
    what)."""

    stage: str
    reason: str
    would_work: str = ""
    until: str = ""
