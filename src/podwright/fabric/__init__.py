"""What hardware there is, and its families' rules. Pure data, the standard library alone."""

from podwright.fabric._cabling import cabling
from podwright.fabric._cluster import (
    Cluster,
    ClusterTopology,
    DomainTopology,
    LinkDomain,
    Machine,
)
from podwright.fabric._errors import FabricError
from podwright.fabric._family import FAMILIES, IPU, Attachment, BlockRule, Family
from podwright.fabric._load import load_cluster
from podwright.fabric._presets import preset, presets, simulated_ipus

__all__ = [
    "FAMILIES",
    "IPU",
    "Attachment",
    "BlockRule",
    "Cluster",
    "ClusterTopology",
    "DomainTopology",
    "FabricError",
    "Family",
    "LinkDomain",
    "Machine",
    "cabling",
    "load_cluster",
    "preset",
    "presets",
    "simulated_ipus",
]
