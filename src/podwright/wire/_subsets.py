"""The devices that a program sees in a partition, with the numbers that real ones have.

In a reconfigurable partition every aligned power-of-two subset is a device. Their order is taken
from a real listing of gc-info (a partition of 4 and one of 8 IPUs): first the single devices,
machine by machine, each machine's in reverse; then the pairs, in routing order; then the fours, and
so on; 2n-1 in all. In any other partition, our choice is one device for each GCD.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from podwright.wire._values import PartitionInfo


class DeviceSet(NamedTuple):
    """A set of devices to which a program attaches as one.

    gcd: the GCD that contains it. routing: its devices, by their place in the partition's routing
    order.
    """

    id: int
    gcd: int
    routing: tuple[int, ...]


def device_sets(info: PartitionInfo) -> list[DeviceSet]:
    """Return the devices of a partition, in the order of their numbers."""
    if not info.reconfigurable:
        out, first = [], 0
        for number, gcd in enumerate(info.gcds):
            out.append(DeviceSet(number, number, tuple(range(first, first + len(gcd)))))
            first += len(gcd)
        return out
    machines = [device.machine for gcd in info.gcds for device in gcd]
    groups: list[tuple[int, ...]] = []
    for _, group in groupby(range(len(machines)), key=machines.__getitem__):
        groups += [(place,) for place in reversed(list(group))]
    size = 2
    while size <= len(machines):
        groups += [tuple(range(start, start + size)) for start in range(0, len(machines), size)]
        size *= 2
    return [DeviceSet(number, 0, group) for number, group in enumerate(groups)]
