"""How a machine's devices are configured, watched and reset."""

from podwright.agents._driver import DeviceReport, Driver, MachineReport
from podwright.agents._simulated import Call, Fault, SimulatedDevice, SimulatedMachine

__all__ = [
    "Call",
    "DeviceReport",
    "Driver",
    "Fault",
    "MachineReport",
    "SimulatedDevice",
    "SimulatedMachine",
]
