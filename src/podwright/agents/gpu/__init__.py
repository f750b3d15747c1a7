"""The driver of machines with real GPUs, and the guards that separate partitions on them."""

from ._cgroup_socket import CgroupSocket as CgroupSocket
from ._cgroups import Cgroups as Cgroups
from ._fabric_guard import FabricGuard as FabricGuard
from ._fabric_guard import MachineFabric as MachineFabric
from ._fabric_manager import FabricManager as FabricManager
from ._fabric_note_files import FileFabricJournal as FileFabricJournal
from ._fabric_note_files import FilePartitionNotes as FilePartitionNotes
from ._fabric_note_files import PartitionNote as PartitionNote
from ._fabric_note_files import PartitionNotes as PartitionNotes
from ._gpu_machine_driver import GpuMachine as GpuMachine
from ._guards import EpochGuard as EpochGuard
from ._guards import FileGuard as FileGuard
from ._guards import Guard as Guard
from ._guards import HeldPartition as HeldPartition
from ._guards import Upkeep as Upkeep
from ._imex_channel import ImexChannels as ImexChannels
from ._make_fabric_guards import fabric_manager_guard as fabric_manager_guard
from ._make_fabric_guards import imex_guard as imex_guard
from ._open_local_gpus import family_of as family_of
from ._open_local_gpus import may_have_gpus as may_have_gpus
from ._open_local_gpus import open_machine as open_machine
