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


def device_sets(partition_info: PartitionInfo) -> list[DeviceSet]:
    """Return the devices of a partition, in the order of their numbers."""
    if not partition_info.reconfigurable:
        gcd_sets, first_place = [], 0
        for set_number, gcd in enumerate(partition_info.gcds):
            gcd_sets.append(
                DeviceSet(set_number, set_number, tuple(range(first_place, first_place + len(gcd))))
            )
            first_place += len(gcd)
        return gcd_sets
    machine_by_place = [device.machine for gcd in partition_info.gcds for device in gcd]
    place_groups: list[tuple[int, ...]] = []
    for _, place_group in groupby(range(len(machine_by_place)), key=machine_by_place.__getitem__):
        place_groups += [(routing_place,) for routing_place in reversed(list(place_group))]
    group_size = 2
    while group_size <= len(machine_by_place):
        place_groups += [
            tuple(range(first_in_group, first_in_group + group_size))
            for first_in_group in range(0, len(machine_by_place), group_size)
        ]
        group_size *= 2
    return [DeviceSet(number, 0, place_group) for number, place_group in enumerate(place_groups)]
