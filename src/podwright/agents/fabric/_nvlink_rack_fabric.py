"""The NVLink fabric of racks behind NMX-M, as `OrderedFabric` drives it.

A partition of Podwright's is NMX-M's partition `podwright-NAME`. GPUs in no partition and in the
default partition are free. A PUT replaces all members, and NMX-M has neither a tag nor an epoch to
make it conditional. So only the order of calls prevents an old list from being written back.
"""

from __future__ import annotations

from collections.abc import Iterable

from podwright.agents._fabric_driver_interface import FabricDevice
from podwright.agents.fabric._device_matching import FabricInventory
from podwright.agents.fabric._hardware_interface import FabricReading
from podwright.agents.fabric._nmx_client import Nmx
from podwright.agents.fabric._nmx_messages import (
    NmxGpu,
    NmxMember,
    NmxOperation,
    NmxPartition,
    NmxPlace,
)
from podwright.agents.fabric._nmx_snapshot import (
    DEFAULT_PARTITION,
    PARTITION_NAME_PREFIX,
    NmxView,
    fabric_reading_of,
    place_of,
)
from podwright.errors import NotFound


class Racks:
    """A FabricHardware over NMX-M."""

    kind = "NMX-M"

    def __init__(self, nmx: Nmx, inventory: FabricInventory) -> None:
        self._nmx = nmx
        self._inventory = inventory

    def settle(self) -> None:
        """See `FabricHardware.settle`."""
        own_partition_ids = {
            partition.ID
            for partition in self._nmx.partitions()
            if partition.Name.startswith(PARTITION_NAME_PREFIX)
            or partition.PartitionID == DEFAULT_PARTITION
        }

        def concerns(operation: NmxOperation) -> bool:
            partition_name = (operation.Request.Body or {}).get("Name", "")
            return operation.target in own_partition_ids or str(partition_name).startswith(
                PARTITION_NAME_PREFIX
            )

        self._nmx.wait_while(concerns)

    def read(self, devices: Iterable[FabricDevice]) -> FabricReading:
        """See `FabricHardware.read`."""
        devices = list(devices)
        for device in devices:  # raises for a device that has no identity
            self._inventory.identity(device)
        return fabric_reading_of(self._view(devices))

    def add(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.add`."""
        nmx_view = self._view(devices)
        gpus = [nmx_view.gpu(device) for device in sorted(devices)]
        for nmx_partition in nmx_view.partitions:
            if nmx_partition.PartitionID == DEFAULT_PARTITION and any(
                device in devices for _, device in nmx_view.members(nmx_partition)
            ):
                self._without(nmx_view, nmx_partition, devices)
        existing = next(
            (
                candidate
                for candidate in nmx_view.partitions
                if candidate.Name == PARTITION_NAME_PREFIX + partition
            ),
            None,
        )
        if existing is None:
            self._nmx.create(
                PARTITION_NAME_PREFIX + partition,
                [_member_of_gpu(gpu, by_place=False) for gpu in gpus],
            )
            return
        members = existing.Members or []
        by_location = any(isinstance(member, NmxPlace) for member in members)
        added_members = [_member_of_gpu(gpu, by_place=by_location) for gpu in gpus]
        self._nmx.update(existing.ID, list(dict.fromkeys([*members, *added_members])))

    def remove(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.remove`."""
        nmx_view = self._view(devices)
        for nmx_partition in nmx_view.partitions:
            if nmx_partition.Name == PARTITION_NAME_PREFIX + partition:
                self._without(nmx_view, nmx_partition, devices)

    def _view(self, devices: Iterable[FabricDevice]) -> NmxView:
        return NmxView(self._nmx, self._inventory, {device.machine for device in devices})

    def _without(
        self, nmx_view: NmxView, partition: NmxPartition, devices: frozenset[FabricDevice]
    ) -> None:
        """Take devices out of a partition. Members that match no device stay in it."""
        remaining_members = [
            member for member, device in nmx_view.members(partition) if device not in devices
        ]
        if remaining_members:
            self._nmx.update(partition.ID, remaining_members)
        elif partition.PartitionID == DEFAULT_PARTITION:
            self._nmx.update(partition.ID, [])
        else:
            self._nmx.delete(partition.ID)


def _member_of_gpu(gpu: NmxGpu, *, by_place: bool) -> NmxMember:
    """Return a GPU in the form of the partition's members: NMX-M refuses to mix ids and
    locations.
    """
    member = place_of(gpu) if by_place else gpu.ID
    if member is None:
        raise NotFound(f"NMX-M does not tell the {'place' if by_place else 'id'} of {gpu}")
    return member
