"""The inventory of a site's GPU nodes, as values. An administrator writes it, or a survey finds it.

Both use the same format: a thousand equal nodes are four lines of TOML, and the JSON of a survey
can list nodes one by one. The format is ours.
"""

from __future__ import annotations

from typing import NamedTuple


class NodeGpu(NamedTuple):
    """One GPU of a node, or a part of one that acts as one. memory: bytes, 0 if not known.

    file: its device file; several, with commas between them, if all must be opened (MIG); empty if
    it is not known.

    cores: the cores near it, counted socket by socket from 0, as Slurm counts them. links: the
    number of links to each GPU of the node, -1 for itself; empty if all are alike.
    """

    type: str
    file: str
    memory: int = 0
    numa: int = 0
    cores: tuple[int, ...] = ()
    links: tuple[int, ...] = ()


class NodeNic(NamedTuple):
    """A network card for training. device: NCCL's name. interface: the name of its IP interface."""

    device: str
    interface: str = ""
    numa: int = 0
    rail: int = 0


class Kind(NamedTuple):
    """The values that a group of equal nodes have in common. memory: bytes, 0 to keep Slurm's own
    value.

    core_spec_count, mem_spec_limit: cores and bytes that jobs do not get, named as in Slurm.
    shards, mps: how many of each a GPU offers to jobs that share it, 0 for none.
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
        """Return `gpu:h100:8`, as in a node's line."""
        counts: dict[str, int] = {}
        for gpu in self.gpus:
            counts[gpu.type] = counts.get(gpu.type, 0) + 1
        return ",".join(f"gpu:{gpu_type}:{count}" for gpu_type, count in counts.items())

    @property
    def shared_gres(self) -> dict[str, int]:
        """Return `shard` and `mps` with their number on the node, without those of which there are
        none.
        """
        counts_per_gpu = {"shard": self.shards, "mps": self.mps}
        return {
            name: count_per_gpu * len(self.gpus)
            for name, count_per_gpu in counts_per_gpu.items()
            if count_per_gpu
        }

    @property
    def words(self) -> tuple[str, ...]:
        """Return the features that jobs may request: the kind's own, the types, the sizes of GPU
        memory.
        """
        features = {f"gpumem{gpu.memory >> 30}g": None for gpu in self.gpus if gpu.memory}
        gpu_types = {gpu.type: None for gpu in self.gpus}
        return tuple(dict.fromkeys([*self.features, *gpu_types, *features]))


class Switch(NamedTuple):
    """A switch with the nodes attached to it, or with the switches below it."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


class PlannedPartition(NamedTuple):
    """A Slurm partition. exclusive: whether a job has its nodes to itself."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    exclusive: bool = False


class SiteInventory(NamedTuple):
    """The whole inventory. nodes: by name, in order. domains: the nodes of each NVLink domain that
    spans several nodes."""

    nodes: dict[str, Kind]
    switches: tuple[Switch, ...] = ()
    domains: dict[str, tuple[str, ...]] = {}
    partitions: tuple[PlannedPartition, ...] = ()

    def kinds(self) -> dict[Kind, list[str]]:
        """The names of the nodes of each kind."""
        names_by_kind: dict[Kind, list[str]] = {}
        names_by_identity: dict[int, list[str]] = {}
        for node_name, node_kind in self.nodes.items():
            node_names = names_by_identity.get(id(node_kind))
            if node_names is None:
                node_names = names_by_identity[id(node_kind)] = names_by_kind.setdefault(
                    node_kind, []
                )
            node_names.append(node_name)
        return names_by_kind
