"""Drivers of fabrics, which join devices of several machines. One package has all kinds."""

from podwright.agents._fabric_driver_interface import FabricReading
from podwright.agents.fabric._device_matching import (
    DeviceIdentity,
    FabricInventory,
    MachineIdentity,
    read_inventory,
)
from podwright.agents.fabric._hardware_interface import FabricHardware, FabricTiming
from podwright.agents.fabric._journaled_driver import OrderedFabric
from podwright.agents.fabric._manager_http_client import (
    HttpAnswer,
    HttpManager,
    HttpTransport,
    read_login,
)
from podwright.agents.fabric._nmx_client import Nmx
from podwright.agents.fabric._nvlink_rack_fabric import Racks
from podwright.agents.fabric._redfish_client import Redfish
from podwright.agents.fabric._redfish_composition import COMPOSITION, RedfishComposition
from podwright.agents.fabric._redfish_zones import RedfishZones

__all__ = [
    "COMPOSITION",
    "DeviceIdentity",
    "FabricHardware",
    "FabricInventory",
    "FabricReading",
    "FabricTiming",
    "HttpAnswer",
    "HttpManager",
    "HttpTransport",
    "MachineIdentity",
    "Nmx",
    "OrderedFabric",
    "Racks",
    "Redfish",
    "RedfishComposition",
    "RedfishZones",
    "read_inventory",
    "read_login",
]
