"""NMX-M's lists at one moment, with every GPU matched to a device by its identity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import msgspec

from podwright.agents._fabric_driver_interface import FabricDevice, FabricReading
from podwright.agents.fabric._device_matching import DeviceIdentity, FabricInventory
from podwright.agents.fabric._nmx_client import Nmx
from podwright.agents.fabric._nmx_messages import (
    NmxGpu,
    NmxLocation,
    NmxMember,
    NmxPartition,
    NmxPlace,
)
from podwright.errors import Internal, NotFound

#: The prefix of the names of Podwright's partitions in NMX-M.
PARTITION_NAME_PREFIX = "podwright-"
#: The PartitionID of the default partition, which has all GPUs at first (NVIDIA's own manager).
DEFAULT_PARTITION = 32766
_UNUSABLE_HEALTHS = ("UNHEALTHY", "NEW", "UNKNOWN")


class NmxView:
    """NMX-M's lists at one moment, with every GPU matched to a device if there is one."""

    def __init__(self, nmx: Nmx, inventory: FabricInventory, machines: Iterable[str]) -> None:
        self._free_names = inventory.free_partitions
        self.gpus = nmx.gpus()
        self.partitions = nmx.partitions()
        self.gpu_by_device: dict[FabricDevice, NmxGpu] = {}
        for device, identity in inventory.devices(list(machines)):
            if (gpu := self._matching(device, identity)) is not None:
                self.gpu_by_device[device] = gpu
        #: Both map to a GPU: by its id and by its location, since members are written in either
        #: form.
        self._device_of: dict[NmxMember | None, FabricDevice] = {}
        for device, gpu in self.gpu_by_device.items():
            self._device_of[gpu.ID] = self._device_of[place_of(gpu)] = device
        self._device_of.pop(None, None)

    def members(self, partition: NmxPartition) -> Iterator[tuple[NmxMember, FabricDevice | None]]:
        """Return the members of a partition, each with its device; None for one that cannot be
        matched.
        """
        for member in partition.Members or ():
            yield member, self._device_of.get(member)

    def device_of(self, member: object) -> FabricDevice | None:
        """Return the device of a member as the body of an operation has it: an id or a location."""
        try:
            return self._device_of.get(msgspec.convert(member, NmxPlace | str))
        except msgspec.ValidationError:
            return None

    def is_free(self, partition: NmxPartition) -> bool:
        """Return whether the members of a partition count as free."""
        return partition.PartitionID == DEFAULT_PARTITION or (
            not partition.Name.startswith(PARTITION_NAME_PREFIX)
            and any(fnmatchcase(partition.Name, name) for name in self._free_names)
        )

    def gpu(self, device: FabricDevice) -> NmxGpu:
        """Return the GPU of a device. Raises NotFound when the GPU is no longer listed."""
        if device not in self.gpu_by_device:
            raise NotFound(f"NMX-M lists no GPU that is {device}")
        return self.gpu_by_device[device]

    def _matching(self, device: FabricDevice, identity: DeviceIdentity) -> NmxGpu | None:
        matching_gpus = [gpu for gpu in self.gpus if _is_same_gpu(gpu, identity)]
        if not matching_gpus:
            return None
        if len(matching_gpus) > 1:
            raise Internal(
                f"NMX-M lists {len(matching_gpus)} GPUs with the DeviceUID {identity.name}"
            )
        location = matching_gpus[0].LocationInfo or NmxLocation()
        for field_name, inventory_value, nmx_value in (
            ("chassis", identity.chassis or None, location.ChassisSerialNumber),
            ("slot", identity.slot, location.SlotID),
            ("tray", identity.tray, location.TrayIndex),
        ):
            if (
                inventory_value is not None
                and nmx_value is not None
                and inventory_value != nmx_value
            ):
                raise Internal(
                    f"{device} is in {field_name} {inventory_value} by its inventory, and in "
                    f"{field_name} {nmx_value} by "
                    f"NMX-M (DeviceUID {identity.name})",
                    would_work="correct the inventory of the fabric",
                )
        return matching_gpus[0]


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
        full_name, is_podwrights = partition.Name, partition.Name.startswith(PARTITION_NAME_PREFIX)
        partition_name = full_name.removeprefix(PARTITION_NAME_PREFIX)
        members: set[FabricDevice] = set()
        for member, device in self._view.members(partition):
            if device is None:
                if is_podwrights:
                    problem = (
                        f"partition {partition_name} has a member that is not a known GPU: {member}"
                    )
                    self.unmatched[partition_name] = problem
                continue
            members.add(device)
            if (other_partition := self.listed_in.setdefault(device, full_name)) != full_name:
                problem = f"{device} is in {other_partition} and in {full_name}"
                own_partitions = [
                    nmx_name.removeprefix(PARTITION_NAME_PREFIX)
                    for nmx_name in (other_partition, full_name)
                    if nmx_name.startswith(PARTITION_NAME_PREFIX)
                ]
                self.doubts.update(dict.fromkeys(own_partitions, problem))
        if not is_podwrights:
            self.foreign.update(dict.fromkeys(members, full_name))
            return
        if partition_name in self.ours:
            self.doubts[partition_name] = f"NMX-M has two partitions {full_name}"
        if partition.Health in _UNUSABLE_HEALTHS:
            self.doubts.setdefault(partition_name, f"the partition's health is {partition.Health}")
        self.ours[partition_name] = self.ours.get(partition_name, frozenset()) | members
        self._compare_gpu_records(partition, members)

    def _compare_gpu_records(self, partition: NmxPartition, members: set[FabricDevice]) -> None:
        """Compare the GPUs' own records with the list of members, in both directions."""
        name = partition.Name.removeprefix(PARTITION_NAME_PREFIX)
        for device, gpu in self._view.gpu_by_device.items():
            if (device in members) == (gpu.PartitionID == partition.PartitionID):
                continue
            self.disputed[device] = name
            if device in members:
                self.doubts[name] = (
                    f"NMX-M lists {device} in partition {partition.PartitionID}, and the GPU "
                    f"itself in {gpu.PartitionID}"
                )


def fabric_reading_of(view: NmxView) -> FabricReading:
    memberships = _Memberships(view)
    shared: dict[FabricDevice, str] = {}
    for partition in view.partitions:
        if view.is_free(partition):
            members = [device for _, device in view.members(partition) if device is not None]
            shared.update(dict.fromkeys(members, f"NMX-M's {partition.ID}"))
        else:
            memberships.add(partition)
    return FabricReading(
        memberships.ours,
        memberships.foreign,
        frozenset(view.gpu_by_device.keys() - memberships.listed_in.keys()),
        memberships.doubts,
        memberships.unmatched,
        memberships.disputed,
        {
            device: "it has no NVLink"
            for device, gpu in view.gpu_by_device.items()
            if gpu.Health == "NO_NVLINK"
        },
        shared,
    )


def _is_same_gpu(gpu: NmxGpu, identity: DeviceIdentity) -> bool:
    domain = (gpu.DomainUUID or "").lower()
    return str(gpu.DeviceUID) == identity.name and (
        not domain or not identity.domain or domain == identity.domain
    )


def place_of(gpu: NmxGpu) -> NmxPlace | None:
    """Return the location of a GPU; None when a part of it is missing."""
    location = gpu.LocationInfo
    if location is None or gpu.DomainUUID is None:
        return None
    if location.ChassisID is None or location.SlotID is None or location.HostID is None:
        return None
    return NmxPlace(
        gpu.DomainUUID, location.ChassisID, location.SlotID, location.HostID, gpu.DeviceID
    )
