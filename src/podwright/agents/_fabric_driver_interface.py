"""The contract between the controller and every driver of a fabric.

A fabric joins devices of several machines, beyond what each machine does by itself: NMX-M's NVLink
partitions, Redfish zones, the switches of one node, and the drivers of other packages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

#: Maps a machine to the indices of its devices.
FabricParts = Mapping[str, Sequence[int]]


@dataclass(frozen=True, order=True, slots=True)
class FabricDevice:
    """One device, as the controller names it: a machine, and the index of the device in it."""

    machine: str
    index: int

    def __str__(self) -> str:
        return f"device {self.index} of machine {self.machine}"


def devices_of(parts: FabricParts) -> frozenset[FabricDevice]:
    """Return the parts as a set of devices."""
    return frozenset(
        FabricDevice(machine, index) for machine, indices in parts.items() for index in indices
    )


def parts_of(devices: Iterable[FabricDevice]) -> dict[str, list[int]]:
    """Return the devices by machine, in order; the inverse of `devices_of`."""
    indices_by_machine: dict[str, list[int]] = {}
    for device in sorted(devices):
        indices_by_machine.setdefault(device.machine, []).append(device.index)
    return indices_by_machine


def named_devices(devices: Iterable[FabricDevice]) -> str:
    """Return the devices in words: `devices 0, 1 of machine m1`."""
    return ", ".join(
        f"device{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))} "
        f"of machine {machine}"
        for machine, indices in parts_of(devices).items()
    )


@dataclass(frozen=True)
class FabricReading:
    """The state of a fabric at one moment.

    partitions: Podwright's partitions, by name. foreign: devices in other parties' partitions, with
    these partitions' names. free: devices in no partition, or in the fabric's default partition.
    The fabric does not know a device that is in none of these three. doubts: by name of a
    partition, why it cannot be used as it is: a device in two partitions, a bad health, two records
    that disagree. unmatched: by name of a partition, its members that match no device; nothing can
    be added to such a partition. disputed: by device, the partition of Podwright's that only one of
    the fabric's two records gives it. ill: by device, why it cannot be joined. shared: by free
    device, the record that has it beside others, as the default partition has; a change that takes
    such a device also changes that record.
    """

    partitions: Mapping[str, frozenset[FabricDevice]]
    foreign: Mapping[FabricDevice, str] = field(default_factory=dict)
    free: frozenset[FabricDevice] = frozenset()
    doubts: Mapping[str, str] = field(default_factory=dict)
    unmatched: Mapping[str, str] = field(default_factory=dict)
    disputed: Mapping[FabricDevice, str] = field(default_factory=dict)
    ill: Mapping[FabricDevice, str] = field(default_factory=dict)

    shared: Mapping[FabricDevice, str] = field(default_factory=dict)

    def knows(self, device: FabricDevice) -> bool:
        """Return whether the fabric lists this device."""
        return (
            device in self.free
            or device in self.foreign
            or any(device in members for members in self.partitions.values())
        )

    def why_not_free(self, device: FabricDevice) -> str:
        """Return why this device cannot be joined now; empty when it is free and fit."""
        if device in self.ill:
            return self.ill[device]
        if device in self.free:
            return ""
        if device in self.foreign:
            return f"it is in {self.foreign[device]}, which is not Podwright's"
        for name, members in self.partitions.items():
            if device in members:
                return f"it is in partition {name}"
        return "the fabric does not list it"


class FabricDriver(Protocol):
    """Joins devices of several machines. Calls are idempotent and raise PodwrightError.

    A driver takes only devices that are free or the partition's own, and returns only after it
    has read back what it changed. `epoch` is the one under which the controller acts. A call
    under an older epoch than a device has seen raises Fenced, unless it would change nothing.
    """

    #: The name of the fabric for people: `NMX-M`, `Redfish`.
    kind: str

    async def join(self, partition: str, epoch: int, parts: FabricParts) -> None:
        """Let these devices reach one another and the partition's earlier devices, and no others.

        Raises WrongState when a device is in another partition.
        """
        ...

    async def leave(self, epoch: int, parts: FabricParts) -> None:
        """Take these devices out of Podwright's partitions. Other partitions stay unchanged."""
        ...

    async def read(self, machines: Collection[str] = ()) -> FabricReading:
        """Return the fabric as it is now, beside changes that are under way.

        machines: those whose devices the caller wants to know about, beside the members of
        Podwright's partitions.
        """
        ...


def attached_name(partition: str, host: str) -> str:
    """Return a fabric's name for the devices of a partition that are attached to this host.

    A fabric with `hosts` attaches devices of a pool to hosts. For its driver, a partition over
    several hosts is one partition for each, which `join` gets and `read` returns under this name.
    So devices at two hosts reach each other as little as those of two partitions. Names of
    partitions contain no `@`.
    """
    return f"{partition}@{host}"


class PoolDriver(FabricDriver, Protocol):
    """A driver that can also attach devices without a home to hosts.

    hosts: their names. `join` takes a name of `attached_name` for devices of a pool.
    """

    hosts: Sequence[str]


class FabricJournal(Protocol):
    """Durable notes of a driver: JSON entries under short keys, a few for each machine.

    The store keeps the entries. So a server that takes over reads them, and a server that was
    replaced can no longer write any.
    """

    def entries(self) -> Mapping[str, bytes]:
        """Return all entries: those at the server's start, with every change since."""
        ...

    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        """Change entries; the value None removes one. The change is durable on return. Raises
        PodwrightError.
        """
        ...

    def write_later(self, changes: Mapping[str, bytes | None]) -> None:
        """Change entries together with the next write, or soon. A crash may lose the change."""
        ...


class FabricSite(NamedTuple):
    """What the controller gives to a driver.

    attributes: returns the attributes of a machine's devices in their order, as its agent last
    reported them; nothing for a machine that has not reported. changed: tells the controller, from
    any thread, that the fabric reported an event, so that it reads the fabric at once. url,
    login_file, authority_file, inventory_file: the options --fabric-url, --fabric-login,
    --fabric-ca and --fabric-inventory, for a driver that another package adds.
    """

    journal: FabricJournal
    attributes: Callable[[str], Sequence[Mapping[str, str]]]
    changed: Callable[[], None] = lambda: None
    url: str = ""
    login_file: Path | None = None
    authority_file: Path | None = None
    inventory_file: Path | None = None


class MemoryFabricJournal:
    """A journal that lasts as long as the object, for a driver that is used without a
    controller.
    """

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}

    def entries(self) -> Mapping[str, bytes]:
        """See `FabricJournal.entries`."""
        return dict(self._entries)

    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write`."""
        self.write_later(changes)

    def write_later(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write_later`."""
        for key, entry_value in changes.items():
            if entry_value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = entry_value
