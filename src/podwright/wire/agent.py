"""The values of podwright.agent.v1, which the server and a machine's agent exchange.

The module stands apart, since callers of the server never need it.
"""

from __future__ import annotations

from podwright.wire._method import Method, Repeat
from podwright.wire._value import Value
from podwright.wire._values import Empty

__all__ = [
    "AGENT_METHODS",
    "AGENT_SERVICE",
    "ConfigureRequest",
    "Configured",
    "DescribeRequest",
    "DeviceState",
    "DevicesRequest",
    "FenceRequest",
    "MachineState",
]


class DescribeRequest(Value):
    """What is there, and what is it configured for."""


class DeviceState(Value):
    """One device of the machine. index: 0 .. devices-1. attributes: as `list ipu-attrs` shows."""

    index: int
    ip: str = ""
    server_port: int = 0
    rdma_port: int = 0
    arch_id: int = 0
    chip_id: str = ""
    healthy: bool = False
    attributes: dict[str, str] = {}


class Configured(Value):
    """One device that belongs to a partition. epoch: of the last call on it that was finished."""

    index: int
    partition: str
    epoch: int


class MachineState(Value):
    """A machine (agents.MachineReport). name: what its agent calls it. links: port -> neighbour.

    protocol, oldest_server: see agents._protocol_versions; 0 from an agent that does not know them.
    """

    name: str
    family: str = ""
    devices: list[DeviceState] = []
    configured: list[Configured] = []
    software: str = ""
    links: dict[str, str] = {}
    fence: int = 0
    cuts_off: str = ""
    uid: int = -1
    protocol: int = 0
    oldest_server: int = 0


class ConfigureRequest(Value):
    """Join devices (indices in this machine) into a partition. owner: a user's name, or empty."""

    partition: str
    epoch: int
    devices: list[int] = []
    owner: str = ""


class DevicesRequest(Value):
    """Reset or release devices."""

    epoch: int
    devices: list[int] = []


class FenceRequest(Value):
    """End what uses devices under an older epoch, and reset them. run: what marks its processes."""

    epoch: int
    devices: list[int] = []
    run: str = ""


AGENT_SERVICE = "podwright.agent.v1.Agent"

#: Every call of podwright.agent.v1, by name. The server alone makes them.
AGENT_METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("Describe", DescribeRequest, MachineState, repeat=Repeat.CHANGES_NOTHING),
        Method("Configure", ConfigureRequest, Empty),
        Method("Reset", DevicesRequest, Empty),
        Method("Fence", FenceRequest, Empty),
        Method("Release", DevicesRequest, Empty),
    )
}
