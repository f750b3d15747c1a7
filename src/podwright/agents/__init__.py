"""How a machine's devices are configured, watched and reset: here, or over the machine's agent."""

from typing import TYPE_CHECKING, Any

from podwright.agents._driver import (
    DeviceReport,
    Driver,
    FabricDriver,
    MachineReport,
    OwnedDriver,
)
from podwright.agents._kept import KeptMachine
from podwright.agents._remote import RemoteMachine
from podwright.agents._secret import Secret, read_key
from podwright.agents._simulated import Call, Fault, SimulatedDevice, SimulatedMachine

if TYPE_CHECKING:
    from podwright.agents._service import Agent

__all__ = [
    "Agent",
    "Call",
    "DeviceReport",
    "Driver",
    "FabricDriver",
    "Fault",
    "KeptMachine",
    "MachineReport",
    "OwnedDriver",
    "RemoteMachine",
    "Secret",
    "SimulatedDevice",
    "SimulatedMachine",
    "read_key",
]


def __getattr__(name: str) -> Any:
    if name == "Agent":  # imports grpc
        from podwright.agents._service import Agent

        return Agent
    raise AttributeError(name)
