"""Plans the network topology for Slurm: a tree of switches, blocks of NVLink domains, or both.
Pure.

A cluster has one topology until Slurm 25.05. From then on topology.yaml holds several, and each
partition names its own, so that a rack of 72 GPUs can stand beside nodes on an InfiniBand fabric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.configure._inventory import SiteInventory, Switch
from podwright.hosts import fold_names
from podwright.slurm.site.conf_lines import Row
from podwright.slurm.site.releases import SlurmVersion, release_of

TOPOLOGIES = ("auto", "tree", "block", "none")
#: Names in topology.yaml.
FABRIC_TOPOLOGY_NAME, RACKS_TOPOLOGY_NAME = "fabric", "racks"


class Topology(NamedTuple):
    """The topology for Slurm. kind: tree, block, none, or both. With both, topology.yaml has two
    topologies."""

    kind: str
    inventory: SiteInventory

    @property
    def plugin(self) -> str:
        """TopologyPlugin; empty if topology.yaml names it, or if there is no topology."""
        return f"topology/{self.kind}" if self.kind in ("tree", "block") else ""

    @property
    def nodes(self) -> set[str]:
        """The nodes in the topology."""
        switched_nodes = {node for switch in self.inventory.switches for node in switch.nodes}
        return {
            "tree": switched_nodes,
            "block": nodes_in_racks(self.inventory),
            "both": switched_nodes | nodes_in_racks(self.inventory),
        }.get(self.kind, set())

    @property
    def block_sizes(self) -> list[int]:
        """BlockSizes, the base block's first; empty where there are no blocks."""
        if self.kind not in ("block", "both"):
            return []
        return _block_sizes(
            _rack_domains(self.inventory) if self.kind == "both" else self.inventory.domains
        )

    def of_partition(self, nodes: Iterable[str]) -> str:
        """Return the topology that a partition of these nodes names; empty: the cluster's."""
        all_racked = self.kind == "both" and set(nodes) <= nodes_in_racks(self.inventory)
        return RACKS_TOPOLOGY_NAME if all_racked else ""

    def files(self) -> dict[str, list[str]]:
        """The lines of topology.conf or topology.yaml, by name. Raises InvalidRequest."""
        if self.kind == "none":
            return {}
        if self.kind == "both":
            return {"topology.yaml": _topology_yaml_lines(self.inventory)}
        topology_rows = (
            block_rows(self.inventory) if self.kind == "block" else tree_rows(self.inventory)
        )
        return {
            "topology.conf": [
                " ".join(f"{key}={row_value}" for key, row_value in row.items())
                for row in topology_rows
            ]
        }


def plan_topology(inventory: SiteInventory, version: SlurmVersion, requested_kind: str) -> Topology:
    """The topology, out of TOPOLOGIES, for a requested kind and a Slurm release. Raises
    InvalidRequest."""
    release = release_of(version)
    rack_nodes = nodes_in_racks(inventory)
    tree_kind = "tree" if inventory.switches else "none"
    if requested_kind == "auto":
        if rack_nodes and rack_nodes == set(inventory.nodes) and release.block_topology:
            return Topology("block", inventory)
        return Topology(
            "both" if rack_nodes and release.several_topologies else tree_kind, inventory
        )
    if requested_kind == "block" and not release.block_topology:
        raise InvalidRequest(
            f"Slurm {release} has no block topology that can be set up here",
            operation="--topology=block",
            would_work="Slurm 24.11 or newer; --topology=tree with the switches",
        )
    if requested_kind == "block" and not inventory.domains:
        raise InvalidRequest("the inventory names no domain", operation="--topology=block")
    if requested_kind == "tree" and not inventory.switches:
        raise InvalidRequest("the inventory names no switches", operation="--topology=tree")
    return Topology(requested_kind, inventory)


def nodes_in_racks(inventory: SiteInventory) -> set[str]:
    """The nodes in NVLink domains that span several nodes."""
    return {node for nodes in inventory.domains.values() if len(nodes) > 1 for node in nodes}


def topology_notes(topology: Topology, version: SlurmVersion) -> list[str]:
    """Notes about the topology for the administrator."""
    inventory = topology.inventory
    unconnected_nodes = [name for name in inventory.nodes if name not in topology.nodes]
    notes = []
    if topology.kind == "none":
        notes.append("no switches are known: Slurm may scatter a job over distant ones")
    elif unconnected_nodes and topology.kind != "both":
        notes.append(
            f"{fold_names(unconnected_nodes)}: on no switch, so jobs there get no other node"
        )
    rack_nodes = nodes_in_racks(inventory)
    if topology.kind in ("tree", "none") and rack_nodes:
        notes.append(
            f"Slurm {release_of(version)} keeps no job inside an NVLink domain of "
            f"{fold_names(sorted(rack_nodes))} here: that takes blocks (24.11, all nodes in "
            "domains) or two topologies (25.05)"
        )
    if topology.kind == "both" and not any(
        topology.of_partition(partition.nodes) for partition in inventory.partitions
    ):
        notes.append(
            f"no partition has nodes of NVLink domains alone, so none uses their blocks: give "
            f"{fold_names(sorted(rack_nodes))} a partition in the inventory"
        )
    return notes


def _topology_yaml_lines(inventory: SiteInventory) -> list[str]:
    """Return topology.yaml: the fabric for all, and the racks for partitions that name them."""
    yaml_lines = [f"- topology: {FABRIC_TOPOLOGY_NAME}", "  cluster_default: true"]
    if inventory.switches:
        yaml_lines += ["  tree:", "    switches:"]
        for switch in units(inventory.switches):
            yaml_lines.append(f"      - switch: {switch.name}")
            if switch.nodes:
                yaml_lines.append(f"        nodes: {fold_names(switch.nodes)}")
            else:
                yaml_lines.append(f"        children: {fold_names(switch.switches)}")
    else:
        yaml_lines.append("  flat: true")
    domains = _rack_domains(inventory)
    yaml_lines += [
        f"- topology: {RACKS_TOPOLOGY_NAME}",
        "  cluster_default: false",
        "  block:",
        "    block_sizes:",
    ]
    yaml_lines += [f"      - {size}" for size in _block_sizes(domains)]
    yaml_lines.append("    blocks:")
    for name, names in domains.items():
        yaml_lines += [f"      - block: {name}", f"        nodes: {fold_names(names)}"]
    return yaml_lines


def _rack_domains(inventory: SiteInventory) -> dict[str, tuple[str, ...]]:
    return {name: names for name, names in inventory.domains.items() if len(names) > 1}


def units(switches: Iterable[Switch]) -> tuple[Switch, ...]:
    """Return the switches in the form of Slurm's tree, in which each node is below one switch.

    On a rail fabric a node is attached to one switch per rail. Switches with the same nodes, or
    with the same units below them, are one unit to Slurm: a job inside it stays inside on every
    rail. No root is invented, so fabrics without a common switch stay apart. Raises InvalidRequest.
    """
    remaining_switches = list(switches)
    unit_by_switch: dict[str, Switch] = {}
    switches_by_nodes: dict[tuple[str, ...], Switch] = {}
    owner_by_member: dict[str, str] = {}
    for switch in [candidate for candidate in remaining_switches if candidate.nodes]:
        member_nodes = tuple(sorted(switch.nodes))
        if member_nodes not in switches_by_nodes:
            _claim_members(owner_by_member, switch.name, member_nodes)
            switches_by_nodes[member_nodes] = switch
        unit_by_switch[switch.name] = switches_by_nodes[member_nodes]
    remaining_switches = [switch for switch in remaining_switches if switch.switches]
    while remaining_switches:
        ready_switches = [
            candidate
            for candidate in remaining_switches
            if all(name in unit_by_switch for name in candidate.switches)
        ]
        if not ready_switches:
            switches_text = ", ".join(switch.name for switch in remaining_switches)
            raise InvalidRequest(f"the switches {switches_text} are below each other in a circle")
        for switch in ready_switches:
            lower_units = tuple(sorted({unit_by_switch[name].name for name in switch.switches}))
            if lower_units not in switches_by_nodes:
                _claim_members(owner_by_member, switch.name, lower_units)
                switches_by_nodes[lower_units] = switch._replace(switches=lower_units)
            unit_by_switch[switch.name] = switches_by_nodes[lower_units]
        remaining_switches = [
            switch for switch in remaining_switches if switch not in ready_switches
        ]
    return tuple(switches_by_nodes.values())


def _claim_members(
    owner_by_member: dict[str, str], switch_name: str, members: tuple[str, ...]
) -> None:
    for member in members:
        if member in owner_by_member:
            raise InvalidRequest(
                f"{member} hangs on the switches {owner_by_member[member]} and {switch_name}, "
                "which do not have "
                "the same members",
                operation="make a tree for Slurm",
                would_work="On a fabric of rails, the switches of all rails have the same nodes; "
                "leave out what joins nodes in another way",
            )
        owner_by_member[member] = switch_name


def tree_rows(inventory: SiteInventory) -> list[Row]:
    """topology.conf for topology/tree."""
    return [
        {"SwitchName": switch.name, "Nodes": fold_names(switch.nodes)}
        if switch.nodes
        else {"SwitchName": switch.name, "Switches": fold_names(switch.switches)}
        for switch in units(inventory.switches)
    ]


def block_rows(inventory: SiteInventory) -> list[Row]:
    """topology.conf for topology/block: a block for each NVLink domain."""
    rows: list[Row] = [
        {"BlockName": name, "Nodes": fold_names(names)} for name, names in inventory.domains.items()
    ]
    text = ",".join(map(str, _block_sizes(inventory.domains)))
    return [*rows, {"BlockSizes": text}]


def _block_sizes(nodes_by_domain: Mapping[str, tuple[str, ...]]) -> list[int]:
    sizes = [min(len(names) for names in nodes_by_domain.values())]
    while sizes[-1] * 2 <= sizes[0] * len(nodes_by_domain):
        sizes.append(sizes[-1] * 2)
    return sizes
