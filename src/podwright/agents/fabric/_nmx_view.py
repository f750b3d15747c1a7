"""NMX-M's lists at one moment, with every GPU matched to a device by its identity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from podwright.agents._fabric_driver import FabricDevice
from podwright.agents.fabric._fabric_hardware import FabricReading
from podwright.agents.fabric._identities import DeviceIdentity, FabricInventory
from podwright.agents.fabric._nmx import Nmx
from podwright.agents.fabric._nmx_values import (
    NmxGpu,
    NmxLocation,
    NmxMember,
    NmxPartition,
    NmxPlace,
)
from podwright.errors import Internal, NotFound

#: The prefix of the names of Podwright's partitions in NMX-M.
PREFIX = "podwright-"
#: The PartitionID of the default partition, which has all GPUs at first (NVIDIA's own manager).
DEFAULT_PARTITION = 32766
_UNUSABLE = ("UNHEALTHY", "NEW", "UNKNOWN")


class NmxView:
    """NMX-M's lists at one moment, with every GPU matched to a device if there is one."""

    def __init__(self, nmx: Nmx, inventory: FabricInventory, machines: Iterable[str]) -> None:
        self.gpus = nmx.gpus()
        self.partitions = nmx.partitions()
        self.gpu_of: dict[FabricDevice, NmxGpu] = {}
        for device, identity in inventory.devices(list(machines)):
            if (gpu := self._matching(device, identity)) is not None:
                self.gpu_of[device] = gpu
        #: Both map to a GPU: by its id and by its location, since members are written in either
        #: form.
        self._device_of: dict[NmxMember | None, FabricDevice] = {}
        for device, gpu in self.gpu_of.items():
            self._device_of[gpu.ID] = self._device_of[place_of(gpu)] = device
        self._device_of.pop(None, None)

    def members(self, partition: NmxPartition) -> Iterator[tuple[NmxMember, FabricDevice | None]]:
        """Return the members of a partition, each with its device; None for one that cannot be
        matched.
        """
        for member in partition.Members or ():
            yield member, self._device_of.get(member)

    def gpu(self, device: FabricDevice) -> NmxGpu:
        """Return the GPU of a device. Raises NotFound when the GPU is no longer listed."""
        if device not in self.gpu_of:
            raise NotFound(f"NMX-M lists no GPU that is {device}")
        return self.gpu_of[device]

    def _matching(self, device: FabricDevice, identity: DeviceIdentity) -> NmxGpu | None:
        matches = [gpu for gpu in self.gpus if _same(gpu, identity)]
        if not matches:
            return None
        if len(matches) > 1:
            raise Internal(f"NMX-M lists {len(matches)} GPUs with the DeviceUID {identity.name}")
        place = matches[0].LocationInfo or NmxLocation()
        for name, ours, theirs in (
            ("chassis", identity.chassis or None, place.ChassisSerialNumber),
            ("slot", identity.slot, place.SlotID),
            ("tray", identity.tray, place.TrayIndex),
        ):
            if ours is not None and theirs is not None and ours != theirs:
                raise Internal(
                    f"{device} is in {name} {ours} by its inventory, and in {name} {theirs} by "
                    f"NMX-M (DeviceUID {identity.name})",
                    would_work="correct the inventory of the fabric",
                )
        return matches[0]


class _Memberships:
    """The members of each partition, collected from NMX-M's two records."""

    def __init__(self, view: NmxView) -> None:
        self._view = view
        self.ours: dict[str, frozenset[FabricDevice]] = {}
        self.foreign: dict[FabricDevice, str] = {}
        self.doubts: dict[str, str] = {}
        self.unmatched: dict[str, str] = {}
        self.disputed: dict[FabricDevice, str] = {}
        self.listed_in: dict[FabricDevice, str] = {}

    def add(self, partition: NmxPartition) -> None:
        """Record the members of a partition, Podwright's or another party's."""
        full_name, ours = partition.Name, partition.Name.startswith(PREFIX)
        name = full_name.removeprefix(PREFIX)
        members: set[FabricDevice] = set()
        for member, device in self._view.members(partition):
            if device is None:
                if ours:
                    text = f"partition {name} has a member that is not a known GPU: {member}"
                    self.unmatched[name] = text
                continue
            members.add(device)
            if (other := self.listed_in.setdefault(device, full_name)) != full_name:
                text = f"{device} is in {other} and in {full_name}"
                own = [n.removeprefix(PREFIX) for n in (other, full_name) if n.startswith(PREFIX)]
                self.doubts.update(dict.fromkeys(own, text))
        if not ours:
            self.foreign.update(dict.fromkeys(members, full_name))
            return
        if name in self.ours:
            self.doubts[name] = f"NMX-M has two partitions {full_name}"
        if partition.Health in _UNUSABLE:
            self.doubts.setdefault(name, f"the partition's health is {partition.Health}")
        self.ours[name] = self.ours.get(name, frozenset()) | members
        self._compare(partition, members)

    def _compare(self, partition: NmxPartition, members: set[FabricDevice]) -> None:
        """Compare the GPUs' own records with the list of members, in both directions."""
        name = partition.Name.removeprefix(PREFIX)
        for device, gpu in self._view.gpu_of.items():
            if (device in members) == (gpu.PartitionID == partition.PartitionID):
                continue
            self.disputed[device] = name
            if device in members:
                self.doubts[name] = (
                    f"NMX-M lists {device} in partition {partition.PartitionID}, and the GPU "
                    f"itself in {gpu.PartitionID}"
                )


def reading_of(view: NmxView) -> FabricReading:
    memberships = _Memberships(view)
    for partition in view.partitions:
        if partition.PartitionID != DEFAULT_PARTITION:
            memberships.add(partition)
    return FabricReading(
        memberships.ours,
        memberships.foreign,
        frozenset(view.gpu_of.keys() - memberships.listed_in.keys()),
        memberships.doubts,
        memberships.unmatched,
        memberships.disputed,
        {d: "it has no NVLink" for d, gpu in view.gpu_of.items() if gpu.Health == "NO_NVLINK"},
    )


def _same(gpu: NmxGpu, identity: DeviceIdentity) -> bool:
    domain = (gpu.DomainUUID or "").lower()
    return str(gpu.DeviceUID) == identity.name and (
        not domain or not identity.domain or domain == identity.domain
    )


def place_of(gpu: NmxGpu) -> NmxPlace | None:
    """Return the location of a GPU; None when a part of it is missing."""
    where = gpu.LocationInfo
    if where is None or gpu.DomainUUID is None:
        return None
    if where.ChassisID is None or where.SlotID is None or where.HostID is None:
        return None
    return NmxPlace(gpu.DomainUUID, where.ChassisID, where.SlotID, where.HostID, gpu.DeviceID)
