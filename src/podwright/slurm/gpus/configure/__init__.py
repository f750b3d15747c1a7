"""GPU clusters described to Slurm: an inventory in, the lines of its files out."""

from podwright.slurm.gpus.configure._adopt import GrantedJob, adopt, partition_name, read_grant
from podwright.slurm.gpus.configure._check import Promise, check, commands
from podwright.slurm.gpus.configure._gates import GateScript
from podwright.slurm.gpus.configure._inventory import (
    Kind,
    NodeGpu,
    NodeNic,
    PlannedPartition,
    SiteInventory,
    Switch,
)
from podwright.slurm.gpus.configure._inventory_lines import DETECT
from podwright.slurm.gpus.configure._read_inventory import make_inventory, read_inventory
from podwright.slurm.gpus.configure._sampling import Sampling
from podwright.slurm.gpus.configure._setup import Wishes, configure, take_back
from podwright.slurm.gpus.configure._summaries import Summary
from podwright.slurm.gpus.configure._topology import TOPOLOGIES, plan_topology, racked, units

__all__ = [
    "DETECT",
    "TOPOLOGIES",
    "GateScript",
    "GrantedJob",
    "Kind",
    "NodeGpu",
    "NodeNic",
    "PlannedPartition",
    "Promise",
    "Sampling",
    "SiteInventory",
    "Summary",
    "Switch",
    "Wishes",
    "adopt",
    "check",
    "commands",
    "configure",
    "make_inventory",
    "partition_name",
    "plan_topology",
    "racked",
    "read_grant",
    "read_inventory",
    "take_back",
    "units",
]
