"""Drivers of fabrics, which join devices of several machines. One package has all kinds."""

from podwright.agents._fabric_driver_interface import FabricReading as FabricReading
from podwright.http import HttpAnswer as HttpAnswer

from ._device_matching import DeviceIdentity as DeviceIdentity
from ._device_matching import FabricInventory as FabricInventory
from ._device_matching import MachineIdentity as MachineIdentity
from ._device_matching import read_inventory as read_inventory
from ._hardware_interface import FabricHardware as FabricHardware
from ._hardware_interface import FabricTiming as FabricTiming
from ._journaled_driver import OrderedFabric as OrderedFabric
from ._manager_http_client import HttpManager as HttpManager
from ._manager_http_client import HttpTransport as HttpTransport
from ._manager_http_client import read_login as read_login
from ._nmx_client import Nmx as Nmx
from ._nvlink_rack_fabric import Racks as Racks
from ._redfish_client import Redfish as Redfish
from ._redfish_composition import COMPOSITION as COMPOSITION
from ._redfish_composition import RedfishComposition as RedfishComposition
from ._redfish_zones import RedfishZones as RedfishZones
