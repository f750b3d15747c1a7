"""How a machine's devices are configured, watched and reset."""

from podwright.agents._driver import DeviceReport, Driver, MachineReport

__all__ = ["DeviceReport", "Driver", "MachineReport"]
