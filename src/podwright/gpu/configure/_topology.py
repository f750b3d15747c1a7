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
from podwright.gpu.configure._lines import Row, fold
from podwright.slurm.site.releases import Version, release_of

TOPOLOGIES = ("auto", "tree", "block", "none")
#: Names in topology.yaml.
FABRIC, RACKS = "fabric", "racks"


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
        switched = {node for switch in self.inventory.switches for node in switch.nodes}
        return {
            "tree": switched,
            "block": racked(self.inventory),
            "both": switched | racked(self.inventory),
        }.get(self.kind, set())

    @property
    def block_sizes(self) -> list[int]:
        """BlockSizes, the base block's first; empty where there are no blocks."""
        if self.kind not in ("block", "both"):
            return []
        return _block_sizes(
            _wide(self.inventory) if self.kind == "both" else self.inventory.domains
        )

    def of_partition(self, nodes: Iterable[str]) -> str:
        """Return the topology that a partition of these nodes names; empty: the cluster's."""
        all_racked = self.kind == "both" and set(nodes) <= racked(self.inventory)
        return RACKS if all_racked else ""

    def files(self) -> dict[str, list[str]]:
        """The lines of topology.conf or topology.yaml, by name. Raises InvalidRequest."""
        if self.kind == "none":
            return {}
        if self.kind == "both":
            return {"topology.yaml": _yaml(self.inventory)}
        rows = block_rows(self.inventory) if self.kind == "block" else tree_rows(self.inventory)
        return {"topology.conf": [" ".join(f"{k}={v}" for k, v in row.items()) for row in rows]}


def plan_topology(inventory: SiteInventory, version: Version, requested: str) -> Topology:
    """The topology, out of TOPOLOGIES, for a requested kind and a Slurm release. Raises
    InvalidRequest."""
    release = release_of(version)
    wide = racked(inventory)
    tree = "tree" if inventory.switches else "none"
    if requested == "auto":
        if wide and wide == set(inventory.nodes) and release.block_topology:
            return Topology("block", inventory)
        return Topology("both" if wide and release.several_topologies else tree, inventory)
    if requested == "block" and not release.block_topology:
        raise InvalidRequest(
            f"Slurm {release} has no block topology that can be set up here",
            operation="--topology=block",
            would_work="Slurm 24.11 or newer; --topology=tree with the switches",
        )
    if requested == "block" and not inventory.domains:
        raise InvalidRequest("the inventory names no domain", operation="--topology=block")
    if requested == "tree" and not inventory.switches:
        raise InvalidRequest("the inventory names no switches", operation="--topology=tree")
    return Topology(requested, inventory)


def racked(inventory: SiteInventory) -> set[str]:
    """The nodes in NVLink domains that span several nodes."""
    return {node for nodes in inventory.domains.values() if len(nodes) > 1 for node in nodes}


def topology_notes(topology: Topology, version: Version) -> list[str]:
    """Notes about the topology for the administrator."""
    inventory = topology.inventory
    unconnected = [name for name in inventory.nodes if name not in topology.nodes]
    notes = []
    if topology.kind == "none":
        notes.append("no switches are known: Slurm may scatter a job over distant ones")
    elif unconnected and topology.kind != "both":
        notes.append(f"{fold(unconnected)}: on no switch, so jobs there get no other node")
    wide = racked(inventory)
    if topology.kind in ("tree", "none") and wide:
        notes.append(
            f"Slurm {release_of(version)} keeps no job inside an NVLink domain of "
            f"{fold(sorted(wide))} here: that takes blocks (24.11, all nodes in domains) or two "
            "topologies (25.05)"
        )
    if topology.kind == "both" and not any(
        topology.of_partition(partition.nodes) for partition in inventory.partitions
    ):
        notes.append(
            f"no partition has nodes of NVLink domains alone, so none uses their blocks: give "
            f"{fold(sorted(wide))} a partition in the inventory"
        )
    return notes


def _yaml(inventory: SiteInventory) -> list[str]:
    """Return topology.yaml: the fabric for all, and the racks for partitions that name them."""
    lines = [f"- topology: {FABRIC}", "  cluster_default: true"]
    if inventory.switches:
        lines += ["  tree:", "    switches:"]
        for switch in units(inventory.switches):
            lines.append(f"      - switch: {switch.name}")
            if switch.nodes:
                lines.append(f"        nodes: {fold(switch.nodes)}")
            else:
                lines.append(f"        children: {fold(switch.switches)}")
    else:
        lines.append("  flat: true")
    domains = _wide(inventory)
    lines += [f"- topology: {RACKS}", "  cluster_default: false", "  block:", "    block_sizes:"]
    lines += [f"      - {size}" for size in _block_sizes(domains)]
    lines.append("    blocks:")
    for name, nodes in domains.items():
        lines += [f"      - block: {name}", f"        nodes: {fold(nodes)}"]
    return lines


def _wide(inventory: SiteInventory) -> dict[str, tuple[str, ...]]:
    return {name: nodes for name, nodes in inventory.domains.items() if len(nodes) > 1}


def units(switches: Iterable[Switch]) -> tuple[Switch, ...]:
    """Return the switches in the form of Slurm's tree, in which each node is below one switch.

    On a rail fabric a node is attached to one switch per rail. Switches with the same nodes, or
    with the same units below them, are one unit to Slurm: a job inside it stays inside on every
    rail. No root is invented, so fabrics without a common switch stay apart. Raises InvalidRequest.
    """
    left = list(switches)
    unit: dict[str, Switch] = {}
    switches_by_nodes: dict[tuple[str, ...], Switch] = {}
    owner: dict[str, str] = {}
    for switch in [s for s in left if s.nodes]:
        key = tuple(sorted(switch.nodes))
        if key not in switches_by_nodes:
            _claim(owner, switch.name, key)
            switches_by_nodes[key] = switch
        unit[switch.name] = switches_by_nodes[key]
    left = [switch for switch in left if switch.switches]
    while left:
        ready = [s for s in left if all(below in unit for below in s.switches)]
        if not ready:
            names = ", ".join(switch.name for switch in left)
            raise InvalidRequest(f"the switches {names} are below each other in a circle")
        for switch in ready:
            below = tuple(sorted({unit[name].name for name in switch.switches}))
            if below not in switches_by_nodes:
                _claim(owner, switch.name, below)
                switches_by_nodes[below] = switch._replace(switches=below)
            unit[switch.name] = switches_by_nodes[below]
        left = [switch for switch in left if switch not in ready]
    return tuple(switches_by_nodes.values())


def _claim(owner: dict[str, str], switch: str, members: tuple[str, ...]) -> None:
    for member in members:
        if member in owner:
            raise InvalidRequest(
                f"{member} hangs on the switches {owner[member]} and {switch}, which do not have "
                "the same members",
                operation="make a tree for Slurm",
                would_work="On a fabric of rails, the switches of all rails have the same nodes; "
                "leave out what joins nodes in another way",
            )
        owner[member] = switch


def tree_rows(inventory: SiteInventory) -> list[Row]:
    """topology.conf for topology/tree."""
    return [
        {"SwitchName": s.name, "Nodes": fold(s.nodes)}
        if s.nodes
        else {"SwitchName": s.name, "Switches": fold(s.switches)}
        for s in units(inventory.switches)
    ]


def block_rows(inventory: SiteInventory) -> list[Row]:
    """topology.conf for topology/block: a block for each NVLink domain."""
    rows: list[Row] = [
        {"BlockName": name, "Nodes": fold(nodes)} for name, nodes in inventory.domains.items()
    ]
    sizes = ",".join(map(str, _block_sizes(inventory.domains)))
    return [*rows, {"BlockSizes": sizes}]


def _block_sizes(domains: Mapping[str, tuple[str, ...]]) -> list[int]:
    sizes = [min(len(nodes) for nodes in domains.values())]
    while sizes[-1] * 2 <= sizes[0] * len(domains):
        sizes.append(sizes[-1] * 2)
    return sizes
