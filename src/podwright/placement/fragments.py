"""How many more blocks of each size fit what is free: what is left over is of no use for them.

Within link domains; larger requests take whole ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from podwright.fabric import Family
from podwright.placement.buddy_blocks import Blocks


class SizeFit(NamedTuple):
    """size: devices of a block. fits: how many such blocks can be had at once. useless: free
    devices that are in none of them."""

    size: int
    fits: int
    useless: int


def fits(family: Family, domains: Iterable[Sequence[bool]]) -> list[SizeFit]:
    """For each size, a power of two up to a link domain. domains: what is free, device by device;
    each a part whose devices one request may have (a domain, or an allocation's share of it)."""
    aligned, per = family.block_rule.aligned, family.devices_per_machine
    counts: dict[int, int] = {}
    free = 0
    for domain in domains:
        free += sum(domain)
        found = _aligned(domain) if aligned else _machines(domain, per)
        for order, count in enumerate(found):
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
    """Blocks by order whose start is a multiple of their size."""
    grid = _empty(len(domain))
    blocks = Blocks(grid.capacity, grid=grid)
    blocks.free = sum(1 << at for at, free in enumerate(domain) if free)
    return [whole >> order for order, whole in enumerate(blocks.wholes())]


def _machines(domain: Sequence[bool], per: int) -> list[int]:
    """Any devices of one machine, or whole machines."""
    free = [sum(domain[at : at + per]) for at in range(0, len(domain), per)]
    whole = sum(count == per for count in free)
    return [
        sum(count // size for count in free) if size <= per else whole * per // size
        for size in (1 << order for order in range(len(domain).bit_length()))
    ]
