"""Machines with real GPUs behind the driver seam."""

from podwright.agents.gpu._cgroup_socket import CgroupSocket
from podwright.agents.gpu._cgroups import Cgroups
from podwright.agents.gpu._fabric_manager import FabricManager
from podwright.agents.gpu._guards import FileGuard, Guard, HeldPartition, Upkeep
from podwright.agents.gpu._imex_channel import Imex
from podwright.agents.gpu._local_driver import family_of, may_have_gpus, open_machine
from podwright.agents.gpu._machine import GpuMachine
from podwright.agents.gpu._nmx import Nmx
from podwright.agents.gpu._racks import Racks

__all__ = [
    "CgroupSocket",
    "Cgroups",
    "FabricManager",
    "FileGuard",
    "GpuMachine",
    "Guard",
    "HeldPartition",
    "Imex",
    "Nmx",
    "Racks",
    "Upkeep",
    "family_of",
    "may_have_gpus",
    "open_machine",
]
