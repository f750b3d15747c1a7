"""What a request meets and what it gets: nodes of one shape, and the grant or the refusal."""

from __future__ import annotations

from dataclasses import dataclass, field

EVERY_SOCKET = -1


@dataclass(frozen=True)
class Shape:
    """The nodes that a request is laid over: equal and idle.

    `beside` is the socket of each GPU by number, EVERY_SOCKET where gres.conf names no cores for
    it; empty, the GPUs sit evenly on the sockets, in the order of their numbers. `types` is the
    type of each GPU by number; empty, all are of the first of `kinds`. `confined` says whether
    the site confines devices (ConstrainDevices=yes in cgroup.conf): then programs number the GPUs
    from zero, and see no others. `affinity`: tasks are bound to cores (task/affinity).
    """

    nodes: int = 4
    sockets: int = 2
    cores_per_socket: int = 32
    gpus: int = 8
    kinds: tuple[str, ...] = ()
    confined: bool = True
    affinity: bool = False
    beside: tuple[int, ...] = ()
    types: tuple[str, ...] = ()

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

    def gpus_of(self, kind: str = "") -> list[int]:
        """The numbers of the GPUs of this type; of all where none is named."""
        if not kind or not self.types:
            return list(range(self.gpus))
        return [gpu for gpu in range(self.gpus) if self.types[gpu] == kind]


@dataclass(frozen=True)
class NodeGrant:
    """What one node gives: the GPUs by number, cores by socket, tasks."""

    gpus: tuple[int, ...]
    tasks: int
    cores: tuple[int, ...]


@dataclass(frozen=True)
class TaskView:
    """What one task gets. `sees` are GPU numbers of its node; `variable` is the text of
    CUDA_VISIBLE_DEVICES, None where Slurm leaves it unset."""

    rank: int
    node: int
    local_rank: int
    sees: tuple[int, ...]
    variable: str | None


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
class Refusal:
    """What Slurm does instead. `stage`: submit (refused at once), waits (accepted, never
    starts), step (the job starts, its srun fails), hangs (it starts, its srun waits for ever),
    nothing (no GPUs are asked for)."""

    stage: str
    reason: str
    would_work: str = ""
