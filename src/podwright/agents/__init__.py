"""Drivers that configure, watch and reset a machine's devices, in process or through its agent."""

from typing import TYPE_CHECKING, Any

from podwright.agents._agent_client import RemoteMachine
from podwright.agents._driver import (
    EPOCH_LIMIT,
    DeviceReport,
    Driver,
    MachineReport,
    OwnedDriver,
)
from podwright.agents._fabric_driver import (
    FabricDevice,
    FabricDriver,
    FabricJournal,
    FabricParts,
    FabricSite,
    MemoryFabricJournal,
    PoolDriver,
    attached_name,
)
from podwright.agents._idempotency import Heard
from podwright.agents._secret import WINDOW, Secret, machine_key, read_key
from podwright.agents._simulated import Call, Fault, SimulatedDevice, SimulatedMachine
from podwright.agents._state_file import SavedMachine

if TYPE_CHECKING:
    from podwright.agents._agent_metrics import figures
    from podwright.agents._agent_server import Agent

__all__ = [
    "EPOCH_LIMIT",
    "WINDOW",
    "Agent",
    "Call",
    "DeviceReport",
    "Driver",
    "FabricDevice",
    "FabricDriver",
    "FabricJournal",
    "FabricParts",
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
    "figures",
    "machine_key",
    "read_key",
]


def __getattr__(name: str) -> Any:
    if name == "Agent":  # imports grpc
        from podwright.agents._agent_server import Agent

        return Agent
    if name == "figures":
        from podwright.agents._agent_metrics import figures

        return figures
    raise AttributeError(name)
