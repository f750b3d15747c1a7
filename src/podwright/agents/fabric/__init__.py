"""Drivers of fabrics, which join devices of several machines. One package has all kinds."""

from podwright.agents.fabric._fabric_hardware import FabricHardware, FabricReading, FabricTiming
from podwright.agents.fabric._http_manager import HttpAnswer, HttpManager, HttpTransport, read_login
from podwright.agents.fabric._identities import (
    DeviceIdentity,
    FabricInventory,
    MachineIdentity,
    read_inventory,
)
from podwright.agents.fabric._nmx import Nmx
from podwright.agents.fabric._ordered import OrderedFabric
from podwright.agents.fabric._racks import Racks
from podwright.agents.fabric._redfish import Redfish
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
