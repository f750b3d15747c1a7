"""The facts about a site that a job script needs: the size of its nodes, and the settings of its
fabric.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.configure import Kind, SiteInventory, nodes_in_racks, plan_topology, units
from podwright.gpu.requests import NodeHardware
from podwright.slurm.reader import NetworkSwitch, SlurmConfig, SlurmNode
from podwright.slurm.site.releases import OLDEST_RELEASE, SlurmVersion

#: A feature that names the memory of a GPU, as `configure` writes it.
_MEMORY_FEATURE_PATTERN = re.compile(r"gpumem(\d+)g")


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
    slurm_version: SlurmVersion | None = None
    nodes: int = 0
    groups: tuple[int, ...] = ()
    base: int = 0
    adapters: tuple[str, ...] = ()
    interface: str = ""
    sizes: tuple[int, ...] = ()


def of_inventory(
    inventory: SiteInventory, options: TemplateOptions, slurm_version: SlurmVersion | None = None
) -> Fit:
    """The fit for an inventory: its commonest kind of node that satisfies the options."""
    partition_nodes = next(
        (
            set(partition.nodes)
            for partition in inventory.partitions
            if partition.name == options.partition
        ),
        None,
    )
    nodes_by_type = {
        node_kind: [
            name for name in node_names if partition_nodes is None or name in partition_nodes
        ]
        for node_kind, node_names in inventory.kinds().items()
    }
    fitting_kinds = {
        node_kind: node_names
        for node_kind, node_names in nodes_by_type.items()
        if node_names
        and node_kind.gpus
        and (not options.type or any(gpu.type == options.type for gpu in node_kind.gpus))
        and all(gpu.memory >= options.memory for gpu in node_kind.gpus)
    }
    if not fitting_kinds:
        raise InvalidRequest(
            "no node of the inventory has such GPUs",
            operation=_requested_options(options),
            would_work=f"there are {_available_types(inventory)}",
        )
    node_kind = max(fitting_kinds, key=lambda candidate_kind: len(fitting_kinds[candidate_kind]))
    suitable_nodes = set(fitting_kinds[node_kind])
    topology, group_sizes, base_block_nodes = _network_groups(
        inventory, suitable_nodes, partition_nodes, slurm_version
    )
    memory_sizes = {
        gpu.memory for kind_of_node in inventory.kinds() for gpu in kind_of_node.gpus
    } - {0}
    rail_adapters = sorted((nic for nic in node_kind.nics if nic.device), key=lambda nic: nic.rail)
    interface_names = [nic.interface for nic in node_kind.nics if nic.interface]
    return Fit(
        gpus=len(node_kind.gpus),
        cores=node_kind.sockets * node_kind.cores_per_socket,
        topology=topology,
        slurm_version=slurm_version,
        nodes=len(suitable_nodes),
        groups=group_sizes,
        base=base_block_nodes,
        adapters=tuple(nic.device for nic in rail_adapters),
        interface=interface_names[0] if interface_names else "",
        sizes=tuple(sorted(memory_sizes)),
    )


def _network_groups(
    inventory: SiteInventory,
    suitable_nodes: set[str],
    partition_nodes: set[str] | None,
    slurm_version: SlurmVersion | None,
) -> tuple[str, tuple[int, ...], int]:
    """Return (tree, block or nothing; how many of these nodes are on each leaf or in each block;
    the nodes of Slurm's base block).
    """
    # Without a release, only what every release has is used.
    topology_plan = plan_topology(inventory, slurm_version or OLDEST_RELEASE, "auto")
    topology_kind, base_block_nodes = topology_plan.kind, min(topology_plan.block_sizes, default=0)
    if topology_kind == "both":
        racked_nodes = nodes_in_racks(inventory)
        topology_kind = (
            "block" if partition_nodes is not None and partition_nodes <= racked_nodes else "tree"
        )
    if topology_kind == "block":
        node_groups = list(inventory.domains.values())
    else:
        node_groups = [switch.nodes for switch in units(inventory.switches) if switch.nodes]
    suitable_counts = [len(suitable_nodes.intersection(group_nodes)) for group_nodes in node_groups]
    if topology_kind not in ("tree", "block") or not any(suitable_counts):
        return "", (), 0
    return (
        topology_kind,
        tuple(
            sorted(
                (count for count in suitable_counts if count),
                reverse=True,
            )
        ),
        base_block_nodes,
    )


def of_slurm(
    node_hardware: NodeHardware | None,
    config: SlurmConfig,
    nodes: Sequence[SlurmNode],
    switches: Sequence[NetworkSwitch] = (),
) -> Fit:
    """Return the fit for what this site's Slurm shows.

    nodes: those that a job may get; a switch counts only those with as many GPUs as the shape.
    Raises FieldNotKnown.
    """
    features = {feature for node in nodes for feature in node.features}
    memory_sizes = {
        int(memory_match[1]) << 30
        for feature in features
        if (memory_match := _MEMORY_FEATURE_PATTERN.fullmatch(feature))
    }
    alike_nodes = {
        node.name
        for node in nodes
        if _gpu_count(node) == (node_hardware.gpus if node_hardware else _gpu_count(node))
    }
    leaf_nodes = [set(switch.nodes) & alike_nodes for switch in switches if switch.leaf]
    nodes_per_leaf = [len(names) for names in leaf_nodes if names]
    common_fit = Fit(
        topology=config.topology if config.topology in ("tree", "block") else "",
        sizes=tuple(sorted(memory_sizes)),
        groups=tuple(sorted(nodes_per_leaf, reverse=True)),
        base=min((switch.size for switch in switches if switch.size), default=0),
    )
    if node_hardware is None:
        return common_fit
    return common_fit._replace(
        gpus=node_hardware.gpus, cores=node_hardware.cores, nodes=node_hardware.nodes
    )


def _gpu_count(node: SlurmNode) -> int:
    return sum(group.amount for group in node.gpus)


def nodes_with(gpu_type: str, nodes: Sequence[SlurmNode]) -> list[SlurmNode]:
    """Return the nodes with GPUs of this type. Raises InvalidRequest if no node has them, and
    FieldNotKnown.
    """
    types_by_node = {node.name: {group.type for group in node.gpus if group.type} for node in nodes}
    if matching_nodes := [node for node in nodes if gpu_type in types_by_node[node.name]]:
        return matching_nodes
    available_types = ", ".join(sorted(set().union(*types_by_node.values()))) or "none with a type"
    raise InvalidRequest(
        "no node of this Slurm has such GPUs",
        operation=f"--gpu-type={gpu_type}",
        would_work=f"the nodes have: {available_types}",
    )


def _requested_options(options: TemplateOptions) -> str:
    texts = [f"--gpu-type={options.type}"] if options.type else []
    return " ".join([*texts, *([f"--gpu-memory={options.memory >> 30}"] if options.memory else [])])


def _available_types(inventory: SiteInventory) -> str:
    def words(node_kind: Kind) -> str:
        gpu_counts = Counter((gpu.type, gpu.memory) for gpu in node_kind.gpus)
        return ", ".join(
            f"{count} {gpu_type} of {memory_bytes >> 30} GiB"
            for (gpu_type, memory_bytes), count in gpu_counts.items()
        )

    return "; ".join(f"nodes with {words(kind)}" for kind in inventory.kinds())
