"""A site as far as an answer shows it, and the answers that explain-request gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from podwright.slurm.twin import GrantedNode, Task

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


@dataclass(frozen=True)
class SlurmCluster:
    """A site.

    nodes: each name with the index of its hardware in `shapes`. down: nodes that take no job.
    not_known: fields that an answer needs and Slurm does not show. cautions: what may change an
    answer, as sentences without full stops. unplaced: nodes with GPUs near several sockets for
    which no gres.conf gives the socket of each.
    """

    shapes: tuple[NodeHardware, ...]
    nodes: tuple[tuple[str, int], ...]
    down: frozenset[str] = frozenset()
    not_known: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    unplaced: frozenset[str] = frozenset()

    def shape_of(self, node_name: str) -> NodeHardware:
        """Return the hardware of a node."""
        return self.shapes[dict(self.nodes)[node_name]]


@dataclass(frozen=True)
class Grant:
    """Slurm starts the job. nodes: in the order of ranks, with the hardware of each by its name.
    tasks: with the numbers by which programs see their GPUs. notes: sentences without full stops.
    """

    nodes: tuple[GrantedNode, ...]
    tasks: tuple[Task, ...]
    hardware: Mapping[str, NodeHardware] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def total_gpus(self) -> int:
        """All GPUs of the job."""
        return sum(len(node.gpus) for node in self.nodes)

    def tasks_on(self, node_name: str) -> tuple[Task, ...]:
        """The tasks on one node, in the order of their local ranks."""
        return tuple(task for task in self.tasks if task.node == node_name)


@dataclass(frozen=True)
class CountedJob:
    """A job by its counts alone. What it gets of these, and whether it starts, is not known.

    nodes: their number; if `fixed` is false, the smallest, and Slurm may give more nodes, each with
    its GPUs and tasks. tasks: of a plain srun in the job. gpus, shares: of the whole job. starts:
    when `sbatch --test-only` expects it to start, empty if that was not asked.
    """

    nodes: int
    tasks: int
    gpus: int
    fixed: bool = True
    shares: int = 0
    starts: str = ""


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
