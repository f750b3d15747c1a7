"""Tools for tests of drivers, in this repository and in other packages.

The package also has the stand-ins for vendors' libraries and fabrics. Each module is loaded when
one of its names is first used: product code loads a stand-in only if its description is given, and
must not pay for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.lazy_imports import lazy_names

if TYPE_CHECKING:
    from podwright.testing._amd_standin import AmdStandIn
    from podwright.testing._controller_life import FabricRun
    from podwright.testing._fabric_check import check_fabric_driver
    from podwright.testing._fabric_rig import (
        Affected,
        Changeable,
        ContractBroken,
        DataPlane,
        FabricCondition,
        FabricFault,
        FabricRig,
        FabricTruth,
        Killed,
        RequestGate,
        VirtualTime,
    )
    from podwright.testing._nvml_standin import StandIn
    from podwright.testing._redfish_standin import (
        FABRIC_PATH,
        RedfishServer,
        RedfishStandIn,
        endpoint_path,
        standin_inventory,
    )

__all__ = [
    "FABRIC_PATH",
    "Affected",
    "AmdStandIn",
    "Changeable",
    "ContractBroken",
    "DataPlane",
    "FabricCondition",
    "FabricFault",
    "FabricRig",
    "FabricRun",
    "FabricTruth",
    "Killed",
    "RedfishServer",
    "RedfishStandIn",
    "RequestGate",
    "StandIn",
    "VirtualTime",
    "check_fabric_driver",
    "endpoint_path",
    "standin_inventory",
]

#: Each module, and the names that it exports.
_LATER = {
    "_amd_standin": ("AmdStandIn",),
    "_controller_life": ("FabricRun",),
    "_fabric_check": ("check_fabric_driver",),
    "_fabric_rig": (
        "Affected",
        "Changeable",
        "ContractBroken",
        "DataPlane",
        "FabricCondition",
        "FabricFault",
        "FabricRig",
        "FabricTruth",
        "Killed",
        "RequestGate",
        "VirtualTime",
    ),
    "_nvml_standin": ("StandIn",),
    "_redfish_standin": (
        "FABRIC_PATH",
        "RedfishServer",
        "RedfishStandIn",
        "endpoint_path",
        "standin_inventory",
    ),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
