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
from podwright.fabric._family import (
    ALIGNED_POWER_OF_TWO,
    FAMILIES,
    HGX8,
    IPU,
    MACHINE_SUBSET_OR_WHOLE_MACHINES,
    MACHINES_OF_A_SWITCH,
    NVL72,
    Attachment,
    BlockRule,
    Family,
    family_named,
    family_names,
    gpu_family,
    rule_name,
    rule_of,
)
from podwright.fabric._load_cluster import load_cluster
from podwright.fabric._presets import preset, presets, simulated_gpus, simulated_ipus

__all__ = [
    "ALIGNED_POWER_OF_TWO",
    "FAMILIES",
    "HGX8",
    "IPU",
    "MACHINES_OF_A_SWITCH",
    "MACHINE_SUBSET_OR_WHOLE_MACHINES",
    "NVL72",
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
    "family_named",
    "family_names",
    "gpu_family",
    "load_cluster",
    "preset",
    "presets",
    "rule_name",
    "rule_of",
    "simulated_gpus",
    "simulated_ipus",
]
