"""The facts about a site that a job script needs: the size of its nodes, and the settings of its
fabric.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.configure import Kind, SiteInventory, plan_topology, racked, units
from podwright.gpu.requests import NodeHardware
from podwright.slurm.reader import NetworkSwitch, SlurmConfig, SlurmNode
from podwright.slurm.site.releases import OLDEST, Version

#: A feature that names the memory of a GPU, as `configure` writes it.
_MEMORY = re.compile(r"gpumem(\d+)g")


class TemplateOptions(NamedTuple):
    """The options that the user gave. memory: bytes that each GPU must have."""

    nodes: int = 2
    partition: str = ""
    type: str = ""
    memory: int = 0
    image: str = "nvcr.io#nvidia/pytorch:25.01-py3"


class Fit(NamedTuple):
    """The values from which a script is made.

    adapters: NCCL's names. sizes: bytes of GPU memory that nodes name in a feature. nodes: their
    number, 0 if it is not known. groups: how many of them are below each leaf switch, or in each
    block; empty if it is not known. base: nodes of Slurm's base block, 0 if it is not known.
    """

    gpus: int = 8
    cores: int = 64
    topology: str = ""
    slurm_version: Version | None = None
    nodes: int = 0
    groups: tuple[int, ...] = ()
    base: int = 0
    adapters: tuple[str, ...] = ()
    interface: str = ""
    sizes: tuple[int, ...] = ()


def of_inventory(
    inventory: SiteInventory, options: TemplateOptions, slurm_version: Version | None = None
) -> Fit:
    """The fit for an inventory: its commonest kind of node that satisfies the options."""
    partition_nodes = next(
        (set(p.nodes) for p in inventory.partitions if p.name == options.partition), None
    )
    nodes_by_type = {
        kind: [name for name in names if partition_nodes is None or name in partition_nodes]
        for kind, names in inventory.kinds().items()
    }
    fitting = {
        kind: names
        for kind, names in nodes_by_type.items()
        if names
        and (not options.type or any(gpu.type == options.type for gpu in kind.gpus))
        and all(gpu.memory >= options.memory for gpu in kind.gpus)
    }
    if not fitting:
        raise InvalidRequest(
            "no node of the inventory has such GPUs",
            operation=_requested_options(options),
            would_work=f"there are {_available_types(inventory)}",
        )
    kind = max(fitting, key=lambda k: len(fitting[k]))
    suitable = set(fitting[kind])
    topology, groups, base = _network(inventory, suitable, partition_nodes, slurm_version)
    sizes = {gpu.memory for kind_of_node in inventory.kinds() for gpu in kind_of_node.gpus} - {0}
    rails = sorted((nic for nic in kind.nics if nic.device), key=lambda nic: nic.rail)
    plain = [nic.interface for nic in kind.nics if nic.interface]
    return Fit(
        gpus=len(kind.gpus),
        cores=kind.sockets * kind.cores_per_socket,
        topology=topology,
        slurm_version=slurm_version,
        nodes=len(suitable),
        groups=groups,
        base=base,
        adapters=tuple(nic.device for nic in rails),
        interface=plain[0] if plain else "",
        sizes=tuple(sorted(sizes)),
    )


def _network(
    inventory: SiteInventory,
    suitable: set[str],
    partition: set[str] | None,
    slurm_version: Version | None,
) -> tuple[str, tuple[int, ...], int]:
    """Return (tree, block or nothing; how many of these nodes are on each leaf or in each block;
    the nodes of Slurm's base block).
    """
    # Without a release, only what every release has is used.
    plan = plan_topology(inventory, slurm_version or OLDEST, "auto")
    kind, base = plan.kind, min(plan.block_sizes, default=0)
    if kind == "both":
        wide = racked(inventory)
        kind = "block" if partition is not None and partition <= wide else "tree"
    if kind == "block":
        members = list(inventory.domains.values())
    else:
        members = [switch.nodes for switch in units(inventory.switches) if switch.nodes]
    counts = [len(suitable.intersection(names)) for names in members]
    if kind not in ("tree", "block") or not any(counts):
        return "", (), 0
    return kind, tuple(sorted((count for count in counts if count), reverse=True)), base


def of_slurm(
    shape: NodeHardware | None,
    config: SlurmConfig,
    nodes: Sequence[SlurmNode],
    switches: Sequence[NetworkSwitch] = (),
) -> Fit:
    """Return the fit for what this site's Slurm shows.

    nodes: those that a job may get; a switch counts only those with as many GPUs as the shape.
    Raises FieldNotKnown.
    """
    words = {word for node in nodes for word in node.features}
    sizes = {int(size[1]) << 30 for word in words if (size := _MEMORY.fullmatch(word))}
    alike = {node.name for node in nodes if _gpus(node) == (shape.gpus if shape else _gpus(node))}
    leaves = [set(switch.nodes) & alike for switch in switches if switch.leaf]
    groups = [len(names) for names in leaves if names]
    common = Fit(
        topology=config.topology if config.topology in ("tree", "block") else "",
        sizes=tuple(sorted(sizes)),
        groups=tuple(sorted(groups, reverse=True)),
        base=min((switch.size for switch in switches if switch.size), default=0),
    )
    if shape is None:
        return common
    return common._replace(gpus=shape.gpus, cores=shape.cores, nodes=shape.nodes)


def _gpus(node: SlurmNode) -> int:
    return sum(gpus.amount for gpus in node.gpus)


def nodes_with(type: str, nodes: Sequence[SlurmNode]) -> list[SlurmNode]:
    """Return the nodes with GPUs of this type. Raises InvalidRequest if no node has them, and
    FieldNotKnown.
    """
    types = {node.name: {gpus.type for gpus in node.gpus if gpus.type} for node in nodes}
    if matching := [node for node in nodes if type in types[node.name]]:
        return matching
    available = ", ".join(sorted(set().union(*types.values()))) or "none with a type"
    raise InvalidRequest(
        "no node of this Slurm has such GPUs",
        operation=f"--gpu-type={type}",
        would_work=f"the nodes have: {available}",
    )


def _requested_options(options: TemplateOptions) -> str:
    words = [f"--gpu-type={options.type}"] if options.type else []
    return " ".join([*words, *([f"--gpu-memory={options.memory >> 30}"] if options.memory else [])])


def _available_types(inventory: SiteInventory) -> str:
    def words(kind: Kind) -> str:
        counted = Counter((gpu.type, gpu.memory) for gpu in kind.gpus)
        return ", ".join(f"{n} {t} of {m >> 30} GiB" for (t, m), n in counted.items())

    return "; ".join(f"nodes with {words(kind)}" for kind in inventory.kinds())
