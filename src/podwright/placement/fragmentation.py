"""How many more blocks of each size fit, and how many free devices they cannot use.

Blocks lie within link domains. Larger requests take whole link domains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from podwright.fabric import Family
from podwright.placement.buddy_blocks import BuddyBlocks


class SizeFit(NamedTuple):
    """How blocks of one size fit.

    size: devices of a block. fits: number of such blocks that fit at once. useless: free devices
    outside all of them.
    """

    size: int
    fits: int
    useless: int


def fits(family: Family, domains: Iterable[Sequence[bool]]) -> list[SizeFit]:
    """Return the fit of each legal size that is a power of two, up to a link domain.

    domains: for each part, whether each device is free. One request may have only devices of one
    part: of a link domain, or of an allocation's share of it.
    """
    counts_by_order: Counter[int] = Counter()
    devices = 0
    for flags in domains:
        devices += sum(flags)
        counts_by_order.update(block_counts(family, flags))
    return size_fits(family, counts_by_order, devices)


def block_counts(family: Family, free_flags: Sequence[bool]) -> dict[int, int]:
    """Return how many blocks of 2 ** order devices fit at once into one part, by their order."""
    if family.block_rule.aligned:
        return dict(enumerate(_aligned_block_counts(free_flags)))
    return dict(enumerate(_machine_block_counts(free_flags, family.devices_per_machine)))


def size_fits(
    family: Family, counts_by_order: Mapping[int, int], free_devices: int
) -> list[SizeFit]:
    """Return the fit of each legal size, from the sums of `block_counts` of all parts."""
    sizes = family.sizes(1 << max(counts_by_order, default=0))
    return [
        SizeFit(1 << order, count, free_devices - (count << order))
        for order, count in sorted(counts_by_order.items())
        if 1 << order in sizes
    ]


@lru_cache(maxsize=64)
def _all_free_blocks(device_count: int) -> BuddyBlocks:
    return BuddyBlocks((1 << device_count) - 1)


def _aligned_block_counts(free_flags: Sequence[bool]) -> list[int]:
    """Return, by order, the number of free blocks whose start is a multiple of their size."""
    empty_blocks = _all_free_blocks(len(free_flags))
    domain_blocks = BuddyBlocks(empty_blocks.capacity, shared_grid=empty_blocks)
    domain_blocks.free = sum(1 << index for index, is_free in enumerate(free_flags) if is_free)
    return [devices >> order for order, devices in enumerate(domain_blocks.whole_counts_by_order())]


def _machine_block_counts(free_flags: Sequence[bool], devices_per_machine: int) -> list[int]:
    """Return, by order, the number of free blocks inside one machine, or of whole machines.

    Inside a machine a block is a run of neighbours, as `NodeIndex` places a GCD.
    """
    hole_sizes = [
        len(list(hole))
        for machine_start in range(0, len(free_flags), devices_per_machine)
        for is_free, hole in groupby(
            free_flags[machine_start : machine_start + devices_per_machine]
        )
        if is_free
    ]
    full_machines = hole_sizes.count(devices_per_machine)
    return [
        sum(hole_size // block_size for hole_size in hole_sizes)
        if block_size <= devices_per_machine
        else full_machines * devices_per_machine // block_size
        for block_size in (1 << order for order in range(len(free_flags).bit_length()))
    ]
