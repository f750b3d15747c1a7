"""How many more blocks of each size fit, and how many free devices they cannot use.

Blocks lie within link domains. Larger requests take whole link domains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from podwright.fabric import Family
from podwright.placement.buddy_blocks import Blocks


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
    aligned, per = family.block_rule.aligned, family.devices_per_machine
    counts: dict[int, int] = {}
    free = 0
    for domain in domains:
        free += sum(domain)
        places = _aligned(domain) if aligned else _machines(domain, per)
        for order, count in enumerate(places):
            counts[order] = counts.get(order, 0) + count
    legal = family.sizes(1 << max(counts, default=0))
    return [
        SizeFit(1 << order, count, free - (count << order))
        for order, count in sorted(counts.items())
        if 1 << order in legal
    ]


@lru_cache(maxsize=64)
def _empty(length: int) -> Blocks:
    return Blocks((1 << length) - 1)


def _aligned(domain: Sequence[bool]) -> list[int]:
    """Return, by order, the number of free blocks whose start is a multiple of their size."""
    grid = _empty(len(domain))
    blocks = Blocks(grid.capacity, grid=grid)
    blocks.free = sum(1 << place for place, free in enumerate(domain) if free)
    return [full_blocks >> order for order, full_blocks in enumerate(blocks.wholes())]


def _machines(domain: Sequence[bool], per: int) -> list[int]:
    """Return, by order, the number of free blocks inside one machine, or of whole machines."""
    free = [sum(domain[start : start + per]) for start in range(0, len(domain), per)]
    full_machines = sum(count == per for count in free)
    return [
        sum(count // size for count in free) if size <= per else full_machines * per // size
        for size in (1 << order for order in range(len(domain).bit_length()))
    ]
