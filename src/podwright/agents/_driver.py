"""The seam between the controller and the hardware: one driver per machine.

Every call is idempotent, since the controller repeats what a crash interrupted. `epoch` grows
with each use of the devices; a driver refuses an older one than it has seen with wire.Fenced,
so that a controller or holder that was presumed dead can do nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, runtime_checkable

#: Epochs stay below this, which is where JSON's numbers end; a server takes 2**28 for each start.
EPOCH_LIMIT: Final = 1 << 53
#: How much further than what it has seen an agent believes one to be: 65,536 starts.
EPOCH_STEP: Final = 1 << 44


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device of the machine. index: 0 .. devices-1. attributes: as `list ipu-attrs` shows."""

    index: int
    ip: str
    server_port: int
    rdma_port: int
    arch_id: int
    chip_id: str
    healthy: bool
    attributes: Mapping[str, str]


class MachineReport(NamedTuple):
    """What a machine has and holds.

    configured: device index -> (partition, epoch), the epoch that of the last call on the device
    that was finished, so that a controller can tell after a crash whether its step was.
    links: port (`up`, `down`, `gw-up`, `gw-down`) -> the machine at the other end of its cable, as
    the machine itself sees it; None where it cannot tell. name, family: what its agent says.
    fence: the highest epoch that it has seen. cuts_off: what keeps processes of an old epoch from
    its devices, though they do not want that: `devices`, which refuse it themselves, `agent`, or
    empty for nothing. uid: the account that its agent runs under; -1: unknown.
    """

    devices: tuple[DeviceReport, ...]
    configured: Mapping[int, tuple[str, int]]
    software: str
    links: Mapping[str, str] | None = None
    name: str = ""
    family: str = ""
    fence: int = 0
    cuts_off: str = ""
    uid: int = -1


class Driver(Protocol):
    """One machine. Raises wire.Unavailable when it does not answer, wire.Internal when it fails."""

    async def describe(self) -> MachineReport:
        """What is there, and what it is configured for."""
        ...

    async def configure(self, partition: str, epoch: int, devices: Sequence[int]) -> None:
        """Join these devices (indices in this machine) into the partition, and cut them off
        from all others."""
        ...

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        """Bring devices to their initial state; whatever ran on them is gone."""
        ...

    async def fence(self, epoch: int, devices: Sequence[int], run: str) -> None:
        """End what still uses devices under an older epoch, let it reach them no more, and reset
        them; they stay in their partition. run: what marks the processes of the launch whose they
        were (PODWRIGHT_RUN), or empty. Raises wire.Internal where something is left."""
        ...

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        """Reset devices and take them out of their partition."""
        ...


@runtime_checkable
class OwnedDriver(Driver, Protocol):
    """A machine that keeps devices apart by whose they are, too."""

    async def configure_for(
        self, owner: str, partition: str, epoch: int, devices: Sequence[int]
    ) -> None:
        """As `configure`, for a partition of this user's; empty for anybody's."""
        ...


class FabricDriver(Protocol):
    """What joins the devices of several machines, beyond what each machine can do by itself.

    Both calls are idempotent, and raise wire.PodwrightError.
    """

    async def join(self, partition: str, parts: Mapping[str, Sequence[int]]) -> None:
        """These devices (machine -> indices) reach each other, and no others, besides those that
        the partition has already."""
        ...

    async def leave(self, parts: Mapping[str, Sequence[int]]) -> None:
        """These devices reach none."""
        ...
