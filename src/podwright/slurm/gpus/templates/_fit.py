"""What of a site goes into a job script: how large its nodes are, and what its fabric needs."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.hosts import expand
from podwright.slurm.gpus.configure import Kind, SiteInventory, plan_topology, racked, units
from podwright.slurm.gpus.requests import NodeHardware
from podwright.slurm.site.releases import OLDEST, Version


class TemplateWishes(NamedTuple):
    """What the user said. memory: bytes that a GPU must have."""

    nodes: int = 2
    partition: str = ""
    type: str = ""
    memory: int = 0
    image: str = "nvcr.io#nvidia/pytorch:25.01-py3"


class Fit(NamedTuple):
    """What a script is made of. adapters: as NCCL names them. sizes: bytes of GPU memory that
    nodes name in a feature. nodes: how many there are, 0 if nobody says. groups: how many of
    them hang on each leaf switch, or are in each block; empty if nobody says. base: nodes of
    Slurm's base block, 0 if nobody says."""

    gpus: int = 8
    cores: int = 64
    topology: str = ""
    version: Version | None = None
    nodes: int = 0
    groups: tuple[int, ...] = ()
    base: int = 0
    adapters: tuple[str, ...] = ()
    interface: str = ""
    sizes: tuple[int, ...] = ()


def of_inventory(
    inventory: SiteInventory, wishes: TemplateWishes, version: Version | None = None
) -> Fit:
    """From an inventory: the commonest kind of node that has what is wished for."""
    mine = next((set(p.nodes) for p in inventory.partitions if p.name == wishes.partition), None)
    inside = {
        kind: [name for name in names if mine is None or name in mine]
        for kind, names in inventory.kinds().items()
    }
    fitting = {
        kind: names
        for kind, names in inside.items()
        if names
        and (not wishes.type or any(gpu.type == wishes.type for gpu in kind.gpus))
        and all(gpu.memory >= wishes.memory for gpu in kind.gpus)
    }
    if not fitting:
        raise InvalidRequest(
            "no node of the inventory has such GPUs",
            asked=_asked(wishes),
            would_work=f"there are {_there(inventory)}",
        )
    kind = max(fitting, key=lambda k: len(fitting[k]))
    there = set(fitting[kind])
    topology, groups, base = _network(inventory, there, mine, version)
    sizes = {gpu.memory for some in inventory.kinds() for gpu in some.gpus} - {0}
    rails = sorted((nic for nic in kind.nics if nic.device), key=lambda nic: nic.rail)
    plain = [nic.interface for nic in kind.nics if nic.interface]
    return Fit(
        gpus=len(kind.gpus),
        cores=kind.sockets * kind.cores_per_socket,
        topology=topology,
        version=version,
        nodes=len(there),
        groups=groups,
        base=base,
        adapters=tuple(nic.device for nic in rails),
        interface=plain[0] if plain else "",
        sizes=tuple(sorted(sizes)),
    )


def _network(
    inventory: SiteInventory, there: set[str], partition: set[str] | None, version: Version | None
) -> tuple[str, tuple[int, ...], int]:
    """(tree, block or nothing; how many of these nodes are on each leaf or in each block; the
    nodes of Slurm's base block)."""
    # Who does not say his release gets what every release has.
    plan = plan_topology(inventory, version or OLDEST, "auto")
    kind, base = plan.kind, min(plan.block_sizes, default=0)
    if kind == "both":
        wide = racked(inventory)
        kind = "block" if partition is not None and partition <= wide else "tree"
    if kind == "block":
        members = list(inventory.domains.values())
    else:
        members = [switch.nodes for switch in units(inventory.switches) if switch.nodes]
    counts = [len(there.intersection(names)) for names in members]
    if kind not in ("tree", "block") or not any(counts):
        return "", (), 0
    return kind, tuple(sorted((count for count in counts if count), reverse=True)), base


def of_slurm(
    shape: NodeHardware | None, config: str, features: str, network: str = "", gres: str = ""
) -> Fit:
    """From what this site's Slurm says: scontrol's configuration and topology, sinfo's features.

    gres: `sinfo -N` with name and GRES of each node; without it all nodes of a switch count.
    """
    found = re.search(r"^TopologyPlugin\s*=\s*topology/(tree|block)", config, re.M)
    sizes = {int(size) << 30 for size in re.findall(r"\bgpumem(\d+)g\b", features)}
    leaf = r"^SwitchName=\S+ Level=0 .*?Nodes=(\S+)|^BlockName=\S+ .*?Nodes=(\S+)"
    members = [expand(tree or block) for tree, block in re.findall(leaf, network, re.M)]
    if gres:
        there = _alike(gres, shape.gpus if shape else 0)
        members = [tuple(name for name in names if name in there) for names in members]
    groups = [len(names) for names in members if names]
    common = Fit(
        topology=found[1] if found else "",
        sizes=tuple(sorted(sizes)),
        groups=tuple(sorted(groups, reverse=True)),
        base=min(map(int, re.findall(r"\bBlockSize=(\d+)", network)), default=0),
    )
    if shape is None:
        return common
    return common._replace(gpus=shape.gpus, cores=shape.cores, nodes=shape.nodes)


def nodes_with(type: str, nodes: str) -> list[str]:
    """The lines of `scontrol --oneliner show node` whose nodes have GPUs of this type. Raises
    InvalidRequest where none has."""
    lines = nodes.splitlines()
    gpus = {line: set(re.findall(r"\bgpu:([A-Za-z][\w.-]*)", _gres(line))) for line in lines}
    if found := [line for line in lines if type in gpus[line]]:
        return found
    there = ", ".join(sorted(set().union(*gpus.values()))) or "none with a type"
    raise InvalidRequest(
        "no node of this Slurm has such GPUs",
        asked=f"--gpu-type={type}",
        would_work=f"have: {there}",
    )


def _gres(line: str) -> str:
    found = re.search(r"\bGres=(\S+)", line)
    return found[1] if found else ""


def _alike(gres: str, gpus: int) -> set[str]:
    """The nodes that have so many GPUs, or any where that is not known."""
    found = set()
    for line in gres.splitlines():
        name, _, said = line.partition(" ")
        count = sum(map(int, re.findall(r"\bgpu(?::[A-Za-z][\w.-]*)?:(\d+)", said)))
        if count and count == (gpus or count):
            found.add(name)
    return found


def _asked(wishes: TemplateWishes) -> str:
    said = [f"--gpu-type={wishes.type}"] if wishes.type else []
    return " ".join([*said, *([f"--gpu-memory={wishes.memory >> 30}"] if wishes.memory else [])])


def _there(inventory: SiteInventory) -> str:
    def words(kind: Kind) -> str:
        counted = Counter((gpu.type, gpu.memory) for gpu in kind.gpus)
        return ", ".join(f"{n} {t} of {m >> 30} GiB" for (t, m), n in counted.items())

    return "; ".join(f"nodes with {words(kind)}" for kind in inventory.kinds())
