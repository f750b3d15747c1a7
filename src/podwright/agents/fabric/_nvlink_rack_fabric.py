"""The NVLink fabric of racks behind NMX-M, as `OrderedFabric` drives it.

A partition of Podwright's is NMX-M's partition `podwright-NAME`. GPUs are free in no partition, in
the default partition, and in those that the site's inventory names (`free_partitions`). A PUT
replaces all members, and NMX-M has neither a tag nor an epoch to make it conditional. So only the
order of calls prevents an old list from being written back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from podwright.agents._fabric_driver_interface import FabricDevice, FabricReading
from podwright.agents.fabric._device_matching import FabricInventory
from podwright.agents.fabric._nmx_client import Nmx
from podwright.agents.fabric._nmx_messages import (
    NmxGpu,
    NmxMember,
    NmxOperation,
    NmxPartition,
    NmxPlace,
)
from podwright.agents.fabric._nmx_snapshot import (
    PARTITION_NAME_PREFIX,
    NmxView,
    fabric_reading_of,
    place_of,
)
from podwright.errors import NotFound


class Racks:
    """A FabricHardware over NMX-M."""

    kind = "NMX-M"
    side_by_side = True

    def __init__(self, nmx: Nmx, inventory: FabricInventory) -> None:
        self._nmx = nmx
        self._inventory = inventory

    def settle(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.settle`."""
        view = self._view(devices)
        name = PARTITION_NAME_PREFIX + partition if partition else ""
        ids = {
            listed.ID
            for listed in view.partitions
            if listed.Name == name or any(device in devices for _, device in view.members(listed))
        }

        def concerns(operation: NmxOperation) -> bool:
            body = operation.Request.Body or {}
            return (
                operation.target in ids
                or (name and body.get("Name") == name)
                or any(view.device_of(member) in devices for member in body.get("Members") or ())
            )

        self._nmx.wait_while(concerns)

    def read(
        self, devices: Iterable[FabricDevice], machines: Collection[str] = ()
    ) -> FabricReading:
        """See `FabricHardware.read`."""
        devices = list(devices)
        for device in devices:  # raises for a device that has no identity
            self._inventory.identity(device)
        return fabric_reading_of(self._view(devices, machines))

    def add(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.add`."""
        nmx_view = self._view(devices)
        gpus = [nmx_view.gpu(device) for device in sorted(devices)]
        for nmx_partition in nmx_view.partitions:
            if nmx_view.is_free(nmx_partition) and any(
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
        view = self._view(devices)
        for nmx_partition in view.partitions:
            if nmx_partition.Name == PARTITION_NAME_PREFIX + partition:
                self._without(view, nmx_partition, devices)

    def _view(self, devices: Iterable[FabricDevice], machines: Collection[str] = ()) -> NmxView:
        return NmxView(
            self._nmx, self._inventory, {*machines, *(device.machine for device in devices)}
        )

    def _without(
        self, nmx_view: NmxView, partition: NmxPartition, devices: frozenset[FabricDevice]
    ) -> None:
        """Take devices out of a partition. Members that match no device stay in it."""
        remaining_members = [
            member for member, device in nmx_view.members(partition) if device not in devices
        ]
        if remaining_members:
            self._nmx.update(partition.ID, remaining_members)
        elif nmx_view.is_free(partition):
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
