"""The GPUs of a machine, and what lies around them: read here, used anywhere."""

from ._gpu_division import Device as Device
from ._gpu_division import divided as divided
from ._inventory_types import PATHS as PATHS
from ._inventory_types import BadInventory as BadInventory
from ._inventory_types import Gpu as Gpu
from ._inventory_types import Inventory as Inventory
from ._inventory_types import Nic as Nic
from ._inventory_types import RackPlace as RackPlace
from ._inventory_types import Slice as Slice
from ._inventory_types import read_inventories as read_inventories
from ._open_libraries import open_libraries as open_libraries
from ._take_inventory import TakenInventory as TakenInventory
from ._take_inventory import take_gpus as take_gpus
from ._take_inventory import take_inventory as take_inventory
from ._vendor_library import STANDINS as STANDINS
from ._vendor_library import Condition as Condition
from ._vendor_library import GpuUser as GpuUser
from ._vendor_library import Health as Health
from ._vendor_library import Library as Library
from ._vendor_library import LibraryError as LibraryError
from ._vendor_library import Sample as Sample
from ._visible_gpus import VARIABLES as VARIABLES
from ._visible_gpus import near_cores as near_cores
from ._visible_gpus import visible as visible
