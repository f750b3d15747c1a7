"""The driver of machines with real GPUs, and the guards that separate partitions on them."""

from podwright.agents.gpu._cgroup_socket import CgroupSocket
from podwright.agents.gpu._cgroups import Cgroups
from podwright.agents.gpu._fabric_guard import FabricGuard, MachineFabric
from podwright.agents.gpu._fabric_manager import FabricManager
from podwright.agents.gpu._fabric_note_files import (
    FileFabricJournal,
    FilePartitionNotes,
    PartitionNote,
    PartitionNotes,
)
from podwright.agents.gpu._gpu_machine_driver import GpuMachine
from podwright.agents.gpu._guards import EpochGuard, FileGuard, Guard, HeldPartition, Upkeep
from podwright.agents.gpu._imex_channel import ImexChannels
from podwright.agents.gpu._make_fabric_guards import fabric_manager_guard, imex_guard
from podwright.agents.gpu._open_local_gpus import family_of, may_have_gpus, open_machine

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
