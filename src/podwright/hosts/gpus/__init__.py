"""The GPUs of a machine, and what lies around them: read here, used anywhere."""

from podwright.hosts.gpus._gpu_division import Device, divided
from podwright.hosts.gpus._inventory_types import (
    PATHS,
    BadInventory,
    Gpu,
    Inventory,
    Nic,
    RackPlace,
    Slice,
    read_inventories,
)
from podwright.hosts.gpus._open_libraries import open_libraries
from podwright.hosts.gpus._take_inventory import TakenInventory, take_gpus, take_inventory
from podwright.hosts.gpus._vendor_library import (
    STANDINS,
    Condition,
    GpuUser,
    Health,
    Library,
    LibraryError,
    Sample,
)
from podwright.hosts.gpus._visible_gpus import VARIABLES, near_cores, visible

__all__ = [
    "PATHS",
    "STANDINS",
    "VARIABLES",
    "BadInventory",
    "Condition",
    "Device",
    "Gpu",
    "GpuUser",
    "Health",
    "Inventory",
    "Library",
    "LibraryError",
    "Nic",
    "RackPlace",
    "Sample",
    "Slice",
    "TakenInventory",
    "divided",
    "near_cores",
    "open_libraries",
    "read_inventories",
    "take_gpus",
    "take_inventory",
    "visible",
]
