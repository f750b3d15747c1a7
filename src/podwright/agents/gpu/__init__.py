"""Machines with real GPUs behind the driver seam."""

from podwright.agents.gpu._fabric_manager import FabricManager
from podwright.agents.gpu._guards import Files, Guard
from podwright.agents.gpu._imex import Imex
from podwright.agents.gpu._local import family_of, may_have_gpus, open_machine
from podwright.agents.gpu._machine import GpuMachine
from podwright.agents.gpu._nmx import Nmx
from podwright.agents.gpu._racks import Racks

__all__ = [
    "FabricManager",
    "Files",
    "GpuMachine",
    "Guard",
    "Imex",
    "Nmx",
    "Racks",
    "family_of",
    "may_have_gpus",
    "open_machine",
]
