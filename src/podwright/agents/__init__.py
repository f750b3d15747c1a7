"""Drivers that configure, watch and reset a machine's devices, in process or through its agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.ground.lazy_imports import lazy_names

if TYPE_CHECKING:
    from podwright.agents._agent_client import RemoteMachine
    from podwright.agents._agent_metrics import figures
    from podwright.agents._agent_server import Agent
    from podwright.agents._driver_interface import (
        EPOCH_LIMIT,
        Driver,
        MachineReport,
        OwnedDriver,
        repeated,
    )
    from podwright.agents._fabric_driver_interface import (
        FabricDevice,
        FabricDriver,
        FabricJournal,
        FabricParts,
        FabricReading,
        FabricSite,
        MemoryFabricJournal,
        PoolDriver,
        attached_name,
        devices_of,
        named_devices,
        parts_of,
    )
    from podwright.agents._replay_protection import Heard
    from podwright.agents._shared_key_auth import WINDOW, Secret, machine_key, read_key
    from podwright.agents._simulated_machine import Call, Fault, SimulatedDevice, SimulatedMachine
    from podwright.agents._state_file import SavedMachine

__all__ = [
    "EPOCH_LIMIT",
    "WINDOW",
    "Agent",
    "Call",
    "Driver",
    "FabricDevice",
    "FabricDriver",
    "FabricJournal",
    "FabricParts",
    "FabricReading",
    "FabricSite",
    "Fault",
    "Heard",
    "MachineReport",
    "MemoryFabricJournal",
    "OwnedDriver",
    "PoolDriver",
    "RemoteMachine",
    "SavedMachine",
    "Secret",
    "SimulatedDevice",
    "SimulatedMachine",
    "attached_name",
    "devices_of",
    "figures",
    "machine_key",
    "named_devices",
    "parts_of",
    "read_key",
    "repeated",
]
#: Each module, and the names that come from it.
_LATER = {
    "_agent_client": ("RemoteMachine",),
    "_agent_metrics": ("figures",),
    "_agent_server": ("Agent",),
    "_driver_interface": (
        "EPOCH_LIMIT",
        "Driver",
        "MachineReport",
        "OwnedDriver",
        "repeated",
    ),
    "_fabric_driver_interface": (
        "FabricDevice",
        "FabricDriver",
        "FabricJournal",
        "FabricParts",
        "FabricReading",
        "FabricSite",
        "MemoryFabricJournal",
        "PoolDriver",
        "attached_name",
        "devices_of",
        "named_devices",
        "parts_of",
    ),
    "_replay_protection": ("Heard",),
    "_shared_key_auth": (
        "WINDOW",
        "Secret",
        "machine_key",
        "read_key",
    ),
    "_simulated_machine": (
        "Call",
        "Fault",
        "SimulatedDevice",
        "SimulatedMachine",
    ),
    "_state_file": ("SavedMachine",),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
