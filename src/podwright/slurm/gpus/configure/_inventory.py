"""The GPU nodes of a site as values: what an administrator writes down, or a survey found.

One shape for both, so that a thousand equal nodes are four lines of TOML and a survey's JSON can
list them one by one. The format is ours.
"""

from __future__ import annotations

from typing import NamedTuple


class NodeGpu(NamedTuple):
    """One GPU of a node, or a part of one that acts as one. memory: bytes, 0 if not told.

    file: its device file; several, with commas between them, where all must be opened (MIG);
    empty where nobody knows it.

    cores: the cores beside it, counted socket by socket from 0, as Slurm counts them.
    links: how many links lead to each GPU of the node, -1 for itself; empty if all are alike.
    """

    type: str
    file: str
    memory: int = 0
    numa: int = 0
    cores: tuple[int, ...] = ()
    links: tuple[int, ...] = ()


class NodeNic(NamedTuple):
    """A network card that training goes over. device: as NCCL names it. interface: as IP does."""

    device: str
    interface: str = ""
    numa: int = 0
    rail: int = 0


class Kind(NamedTuple):
    """What equal nodes have in common. memory: bytes, 0 if Slurm's own figure is to stand.

    core_spec_count, mem_spec_limit: cores and bytes that jobs do not get, as Slurm calls them.
    shards, mps: how many of each a GPU is worth to jobs that share it, 0 for none.
    """

    gpus: tuple[NodeGpu, ...]
    sockets: int
    cores_per_socket: int
    threads_per_core: int = 1
    numa_nodes: int = 1
    memory: int = 0
    features: tuple[str, ...] = ()
    nics: tuple[NodeNic, ...] = ()
    core_spec_count: int = 0
    mem_spec_limit: int = 0
    shards: int = 0
    mps: int = 0

    @property
    def gres(self) -> str:
        """`gpu:h100:8`, as a node's line has it."""
        counts: dict[str, int] = {}
        for gpu in self.gpus:
            counts[gpu.type] = counts.get(gpu.type, 0) + 1
        return ",".join(f"gpu:{kind}:{count}" for kind, count in counts.items())

    @property
    def shared_gres(self) -> dict[str, int]:
        """`shard` and `mps`, with how many of each the node has; what there is none of, not."""
        each = {"shard": self.shards, "mps": self.mps}
        return {name: count * len(self.gpus) for name, count in each.items() if count}

    @property
    def words(self) -> tuple[str, ...]:
        """The features that jobs may ask for: its own, the types, the sizes of GPU memory."""
        sizes = {f"gpumem{gpu.memory >> 30}g": None for gpu in self.gpus if gpu.memory}
        types = {gpu.type: None for gpu in self.gpus}
        return tuple(dict.fromkeys([*self.features, *types, *sizes]))


class Switch(NamedTuple):
    """A switch: the nodes on it, or the switches below it."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


class PlannedPartition(NamedTuple):
    """A partition of Slurm. exclusive: a job has its nodes to itself."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    exclusive: bool = False


class SiteInventory(NamedTuple):
    """All of it. nodes: by name, in order. domains: nodes of each NVLink domain beyond a node."""

    nodes: dict[str, Kind]
    switches: tuple[Switch, ...] = ()
    domains: dict[str, tuple[str, ...]] = {}
    partitions: tuple[PlannedPartition, ...] = ()

    def kinds(self) -> dict[Kind, list[str]]:
        """The names of the nodes of each kind."""
        found: dict[Kind, list[str]] = {}
        by_identity: dict[int, list[str]] = {}
        for name, kind in self.nodes.items():
            names = by_identity.get(id(kind))
            if names is None:
                names = by_identity[id(kind)] = found.setdefault(kind, [])
            names.append(name)
        return found
