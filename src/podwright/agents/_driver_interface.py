"""The seam between the controller and the hardware: one driver per machine.

Every call is idempotent, since the controller repeats a step that a crash interrupted. `epoch`
grows with each use of the devices. A driver refuses an epoch that is older than the newest it has
seen, with wire.Fenced. So a controller or a lease holder that was presumed dead can change nothing
more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from podwright.wire.agent import DeviceState

#: Epochs stay below this, the largest integer that JSON carries exactly; a server takes 2**28 of
#: them for each start.
EPOCH_LIMIT: Final = 1 << 53
#: How far above the highest epoch so far an agent accepts a new one: 65,536 starts of a server.
EPOCH_STEP: Final = 1 << 44


class MachineReport(NamedTuple):
    """What a machine has, and what its devices are configured for.

    configured: device index -> (partition, epoch). The epoch is that of the last call on the device
    that was finished, so a controller can tell after a crash whether its step was finished. links:
    port (`up`, `down`, `gw-up`, `gw-down`) -> the machine at the other end of the port's cable, as
    this machine sees it; None where it cannot tell. name, family: as the agent reports them. fence:
    the highest epoch that the machine has seen. cuts_off: what can keep processes of an old epoch
    from the devices against their will: `devices`, which refuse the processes themselves, `agent`,
    or empty for nothing. uid: the account that the agent runs under; -1: unknown.
    """

    devices: tuple[DeviceState, ...]
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
        """Return which devices there are, and what they are configured for."""
        ...

    async def configure(self, partition: str, epoch: int, devices: Sequence[int]) -> None:
        """Join these devices (indices in this machine) into the partition, and separate them from
        all others.
        """
        ...

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        """Bring devices to their initial state. This ends whatever runs on them."""
        ...

    async def fence(self, epoch: int, devices: Sequence[int], run: str) -> None:
        """End all use of the devices under older epochs, refuse such use from now on, and reset the
        devices.

        The devices stay in their partition. run: the mark of the processes of the launch that used
        the devices (PODWRIGHT_RUN), or empty. Raises wire.Internal when some of these processes
        remain.
        """
        ...

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        """Reset devices and take them out of their partition."""
        ...


@runtime_checkable
class OwnedDriver(Driver, Protocol):
    """A machine that also separates devices by the user who owns them."""

    async def configure_for(
        self, owner: str, partition: str, epoch: int, devices: Sequence[int]
    ) -> None:
        """Do as `configure` does, for a partition of this user; an empty owner admits every
        user.
        """
        ...


def repeated(identities: Iterable[str]) -> list[str]:
    """Return the identities that stand there more than once; an empty one is none."""
    counts = Counter(filter(None, identities))
    return [identity for identity, count in counts.items() if count > 1]
