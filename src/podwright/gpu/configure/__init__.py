"""Configures Slurm for a GPU cluster: reads an inventory and plans the lines of Slurm's files."""

from podwright.gpu.configure._adopt_granted_gpus import (
    GrantedJob,
    adopt,
    ask_grant,
    partition_name,
    read_grant,
)
from podwright.gpu.configure._check_by_jobs import Promise, check, commands
from podwright.gpu.configure._health_gate_script import GateScript
from podwright.gpu.configure._inventory import (
    Kind,
    NodeGpu,
    NodeNic,
    PlannedPartition,
    SiteInventory,
    Switch,
)
from podwright.gpu.configure._inventory_conf_lines import DETECTION_MODES
from podwright.gpu.configure._plan_configuration import ConfigureOptions, configure, take_back
from podwright.gpu.configure._read_inventory import make_inventory, read_inventory
from podwright.gpu.configure._sampling_script import Sampling
from podwright.gpu.configure._topology import TOPOLOGIES, nodes_in_racks, plan_topology, units

__all__ = [
    "DETECTION_MODES",
    "TOPOLOGIES",
    "ConfigureOptions",
    "GateScript",
    "GrantedJob",
    "Kind",
    "NodeGpu",
    "NodeNic",
    "PlannedPartition",
    "Promise",
    "Sampling",
    "SiteInventory",
    "Switch",
    "adopt",
    "ask_grant",
    "check",
    "commands",
    "configure",
    "make_inventory",
    "nodes_in_racks",
    "partition_name",
    "plan_topology",
    "read_grant",
    "read_inventory",
    "take_back",
    "units",
]
