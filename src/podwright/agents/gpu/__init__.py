"""The driver of machines with real GPUs, and the guards that separate partitions on them."""

from podwright.agents.gpu._cgroup_socket import CgroupSocket
from podwright.agents.gpu._cgroups import Cgroups
from podwright.agents.gpu._fabric_guard import FabricGuard, MachineFabric
from podwright.agents.gpu._fabric_manager import FabricManager
from podwright.agents.gpu._guards import EpochGuard, FileGuard, Guard, HeldPartition, Upkeep
from podwright.agents.gpu._imex_channel import ImexChannels
from podwright.agents.gpu._local_driver import family_of, may_have_gpus, open_machine
from podwright.agents.gpu._machine import GpuMachine
from podwright.agents.gpu._machine_fabrics import fabric_manager_guard, imex_guard
from podwright.agents.gpu._machine_notes import (
    FileFabricJournal,
    FilePartitionNotes,
    PartitionNote,
    PartitionNotes,
)

__all__ = [
    "CgroupSocket",
    "Cgroups",
    "EpochGuard",
    "FabricGuard",
    "FabricManager",
    "FileFabricJournal",
    "FileGuard",
    "FilePartitionNotes",
    "GpuMachine",
    "Guard",
    "HeldPartition",
    "ImexChannels",
    "MachineFabric",
    "PartitionNote",
    "PartitionNotes",
    "Upkeep",
    "fabric_manager_guard",
    "family_of",
    "imex_guard",
    "may_have_gpus",
    "open_machine",
]
