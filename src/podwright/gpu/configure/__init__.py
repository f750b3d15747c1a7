"""Configures Slurm for a GPU cluster: reads an inventory and plans the lines of Slurm's files."""

from ._adopt_granted_gpus import GrantedJob as GrantedJob
from ._adopt_granted_gpus import adopt as adopt
from ._adopt_granted_gpus import ask_grant as ask_grant
from ._adopt_granted_gpus import partition_name as partition_name
from ._adopt_granted_gpus import read_grant as read_grant
from ._check_by_jobs import Promise as Promise
from ._check_by_jobs import check as check
from ._check_by_jobs import commands as commands
from ._health_gate_script import GateScript as GateScript
from ._inventory import Kind as Kind
from ._inventory import NodeGpu as NodeGpu
from ._inventory import NodeNic as NodeNic
from ._inventory import PlannedPartition as PlannedPartition
from ._inventory import SiteInventory as SiteInventory
from ._inventory import Switch as Switch
from ._inventory_conf_lines import DETECTION_MODES as DETECTION_MODES
from ._plan_configuration import ConfigureOptions as ConfigureOptions
from ._plan_configuration import configure as configure
from ._plan_configuration import take_back as take_back
from ._read_inventory import make_inventory as make_inventory
from ._read_inventory import read_inventory as read_inventory
from ._sampling_script import Sampling as Sampling
from ._topology import TOPOLOGIES as TOPOLOGIES
from ._topology import nodes_in_racks as nodes_in_racks
from ._topology import plan_topology as plan_topology
from ._topology import units as units
