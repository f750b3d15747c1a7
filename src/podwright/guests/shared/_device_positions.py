"""The devices of a pod as places on a line, as `placement.buddy_blocks` has them, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podwright.wire import DeviceInfo


class PodPlaces:
    """Devices stand link domain after link domain, each at a multiple of a power of two."""

    def __init__(self, devices: Sequence[DeviceInfo]) -> None:
        width = max((any_device.device.offset for any_device in devices), default=0) + 1
        self.stride = 1 << (width - 1).bit_length()
        self.capacity = 0
        for device in devices:
            self.capacity |= 1 << self.place(device)

    def place(self, device: DeviceInfo) -> int:
        """Where a device stands."""
        return device.device.domain * self.stride + device.device.offset

    def bits(self, devices: Iterable[tuple[int, int]]) -> int:
        """Devices by (link domain, offset), as bits, one for each place."""
        device_bits = 0
        for index, offset in devices:
            device_bits |= 1 << index * self.stride + offset
        return device_bits & self.capacity

    def devices(self, first_slot: int, size_order: int) -> list[tuple[int, int]]:
        """The (link domain, offset) of each device of a block."""
        return [
            divmod(slot, self.stride) for slot in range(first_slot, first_slot + (1 << size_order))
        ]
