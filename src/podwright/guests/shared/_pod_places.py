"""The devices of a pod as places on a line, as `placement.buddy_blocks` has them, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podwright.wire import DeviceInfo


class PodPlaces:
    """Devices stand link domain after link domain, each at a multiple of a power of two."""

    def __init__(self, devices: Sequence[DeviceInfo]) -> None:
        widest = max((d.device.offset for d in devices), default=0) + 1
        self.stride = 1 << (widest - 1).bit_length()
        self.capacity = 0
        for device in devices:
            self.capacity |= 1 << self.place(device)

    def place(self, device: DeviceInfo) -> int:
        """Where a device stands."""
        return device.device.domain * self.stride + device.device.offset

    def bits(self, devices: Iterable[tuple[int, int]]) -> int:
        """Devices by (link domain, offset), as bits, one for each place."""
        out = 0
        for domain, offset in devices:
            out |= 1 << domain * self.stride + offset
        return out & self.capacity

    def devices(self, start: int, order: int) -> list[tuple[int, int]]:
        """The (link domain, offset) of each device of a block."""
        return [divmod(slot, self.stride) for slot in range(start, start + (1 << order))]
