"""topology.yaml: several topologies, of which each partition has one (Slurm 25.05 and newer).

The file, or what `scontrol show topoconf` prints of it. Its block form is read line by line; other
forms of YAML ({a: b}, anchors) are not, and then nothing is said of the network.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from podwright.slurm.gpus.requests._units import names
from podwright.slurm.gpus.requests._values import SlurmCluster, SlurmPartition

_KINDS = ("tree", "block", "ring", "torus3d")
_Rows = dict[str, tuple[str, ...]]


@dataclass
class Network:
    """One of them. kind: flat, tree, block, ring or torus3d; the switches of a tree by name."""

    name: str
    default: bool = False
    kind: str = "flat"
    leaves: _Rows = field(default_factory=dict)
    above: _Rows = field(default_factory=dict)

    def on(self, site: SlurmCluster) -> SlurmCluster:
        """The site as a job sees it whose partition has this topology."""
        rows = [
            tuple((name, frozenset(row)) for name, row in some.items())
            for some in (self.leaves, self.above)
        ]
        return replace(site, topology=self.kind, leaves=rows[0], above=rows[1])


def read_topologies(text: str) -> dict[str, Network] | None:
    """All of them by name, in their order; None where the text has a form that is not read."""
    found: dict[str, Network] = {}
    now, switch = Network(""), ""
    for line in text.splitlines():
        said = line.partition(" #")[0].strip()
        if not said or said[0] in "#%" or said in ("---", "..."):
            continue
        key, _, value = said.removeprefix("- ").partition(":")
        key, value = key.strip(), value.strip().strip("'\"")
        if value[:1] in ("{", "[", "&", "*", "|", ">") and value not in ("{}", "[]"):
            return None
        if key == "topology":
            now, switch = found.setdefault(value, Network(value)), ""
        elif not now.name:
            return None
        elif key == "cluster_default":
            now.default = value.lower() in ("true", "yes")
        elif key in _KINDS and not value:
            now.kind = key
        elif key == "switch":
            switch = value
        elif key in ("nodes", "children") and value and now.kind == "tree":
            (now.leaves if key == "nodes" else now.above)[switch] = names(value)
    return found or None


def default_of(topologies: dict[str, Network]) -> Network:
    """The cluster's own: the one that says so, or the first."""
    some = list(topologies.values())
    return next((one for one in some if one.default), some[0])


def with_topologies(site: SlurmCluster, topologies: dict[str, Network] | None) -> SlurmCluster:
    """The site, with the topology of each partition; None: they could not be read."""
    if topologies is None:
        return replace(site, unmodelled=(*site.unmodelled, "this form of topology.yaml"))
    first = default_of(topologies)
    own: list[tuple[str, SlurmCluster]] = []
    partitions: list[SlurmPartition] = []
    for partition in site.partitions:
        one = topologies.get(partition.topology, first)
        if one.kind not in ("flat", "tree") and not partition.unmodelled:
            partition = replace(partition, unmodelled=f"topology/{one.kind}")
        partitions.append(partition)
        own.append((partition.name, one.on(site)))
    return replace(first.on(site), partitions=tuple(partitions), own=tuple(own))
