"""Machines with real GPUs behind the driver seam."""

from podwright.agents.gpu._cgroup_socket import Door
from podwright.agents.gpu._cgroups import Cgroups
from podwright.agents.gpu._fabric_manager import FabricManager
from podwright.agents.gpu._guards import Files, Guard, Held, Keeper
from podwright.agents.gpu._imex_channel import Imex
from podwright.agents.gpu._local_driver import family_of, may_have_gpus, open_machine
from podwright.agents.gpu._machine import GpuMachine
from podwright.agents.gpu._nmx import Nmx
from podwright.agents.gpu._racks import Racks

__all__ = [
    "Cgroups",
    "Door",
    "FabricManager",
    "Files",
    "GpuMachine",
    "Guard",
    "Held",
    "Imex",
    "Keeper",
    "Nmx",
    "Racks",
    "family_of",
    "may_have_gpus",
    "open_machine",
]
