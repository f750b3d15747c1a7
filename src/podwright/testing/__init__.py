"""Tools for tests of drivers and guests, in this repository and in other packages.

It has the kit that checks a fabric's driver, stand-ins for fabrics, and a Slurm and a pod in
memory. Stand-ins for vendors'
libraries are beside their seam, in `hosts/gpus`. Each module is loaded when one of its names is
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.ground.lazy_imports import lazy_names

if TYPE_CHECKING:
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
    from podwright.testing._fake_pod import FakePod
    from podwright.testing._fake_slurm import FakeJob, FakeNode, FakeSlurm
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
    "Changeable",
    "ContractBroken",
    "DataPlane",
    "FabricCondition",
    "FabricFault",
    "FabricRig",
    "FabricRun",
    "FabricTruth",
    "FakeJob",
    "FakeNode",
    "FakePod",
    "FakeSlurm",
    "Killed",
    "RedfishServer",
    "RedfishStandIn",
    "RequestGate",
    "VirtualTime",
    "check_fabric_driver",
    "endpoint_path",
    "standin_inventory",
]

#: Each module, and the names that it exports.
_LATER = {
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
    "_fake_pod": ("FakePod",),
    "_fake_slurm": ("FakeJob", "FakeNode", "FakeSlurm"),
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
