"""GPU clusters described to Slurm: an inventory in, the lines of its files out."""

from podwright.slurm.gpus._adopt import Grant, adopt, partition_name, read_grant
from podwright.slurm.gpus._check import Promise, check, commands
from podwright.slurm.gpus._files import DETECT
from podwright.slurm.gpus._inventory import Gpu, Inventory, Kind, Nic, Partition, Switch
from podwright.slurm.gpus._read import make_inventory, read_inventory
from podwright.slurm.gpus._setup import Wishes, configure, take_back
from podwright.slurm.gpus._topology import TOPOLOGIES, plan_topology, racked, units

__all__ = [
    "DETECT",
    "TOPOLOGIES",
    "Gpu",
    "Grant",
    "Inventory",
    "Kind",
    "Nic",
    "Partition",
    "Promise",
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
