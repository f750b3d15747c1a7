"""Which block of a pod a scheduler's job gets, and how many devices lie in whole blocks.

Native mode decides by it, and `podwright replay` does what native mode would do.

Devices stand on a line, link domain after link domain. Each link domain begins at a multiple of a
power of two. A block is a power of two of devices at a multiple of its size. A job gets the
smallest free block that suffices, anywhere. Then every job that Slurm may start by the counts of
`whole` finds its place, in whatever order the jobs come (docs/slurm/mechanisms.md has the proof).

Sets of devices are integers with a bit for each device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Blocks:
    """The usable devices of one pod.

    capacity: all devices, as bits. grid: another object of the same length, whose tables are
    shared.
    """

    def __init__(self, capacity: int, *, grid: Blocks | None = None) -> None:
        self.capacity = capacity
        self.free = capacity
        length = capacity.bit_length()
        self._grid: list[int] = (
            grid._grid if grid else [every(order, length) for order in range(64)]
        )
        self.orders = len(self._levels(capacity))

    def whole(self, order: int) -> int:
        """Return the number of devices that lie in free blocks of 2**order."""
        levels = self._levels(self.free)
        return levels[order].bit_count() << order if order < len(levels) else 0

    def wholes(self) -> list[int]:
        """Return `whole` of each order that the pod has."""
        levels = self._levels(self.free)
        counts = [level.bit_count() << order for order, level in enumerate(levels)]
        return counts + [0] * (self.orders - len(counts))

    def find(self, order: int) -> int | None:
        """Return where the block for a job of 2**order devices begins, or None.

        It lies in the smallest free block that holds it; of equal ones, in the lowest.
        """
        levels = self._levels(self.free)
        for level in range(order, len(levels)):
            starts = levels[level]
            if level + 1 < len(levels):
                larger = levels[level + 1]
                starts &= ~(larger | larger << (1 << level))
            if starts:
                return (starts & -starts).bit_length() - 1
        return None

    def take(self, start: int, order: int) -> None:
        """Take a block."""
        self.free &= ~block(start, order)

    def give(self, start: int, order: int) -> None:
        """Give a block back, except for devices that the pod lacks."""
        self.free |= block(start, order) & self.capacity

    def _levels(self, free: int) -> list[int]:
        """Return the starts of free blocks as bits, for each order up to the last with any."""
        levels = []
        order = 0
        while free:
            levels.append(free)
            free &= free >> (1 << order) & self._grid[order + 1]
            order += 1
        return levels


def fit(blocks: Blocks, orders: Sequence[int]) -> bool:
    """Return whether blocks of all these orders fit into what is free together.

    orders: the largest first. Placing the largest first makes the answer exact, since blocks are
    aligned powers of two.
    """
    trial = Blocks(blocks.capacity, grid=blocks)
    trial.free = blocks.free
    for order in orders:
        start = trial.find(order)
        if start is None:
            return False
        trial.take(start, order)
    return True


def soonest(
    capacity: int,
    unusable: int,
    occupied: Iterable[tuple[int, Any]],
    orders: Sequence[int],
    *,
    first: Any,
) -> int:
    """Return the blocks of these orders whose jobs end soonest, as bits; 0 if there are too few.

    capacity: all devices. unusable: devices that nobody can use. occupied: the devices of each job,
    and its end, as values that can be compared. orders: the largest first. first: an end before all
    others. Of blocks that end together, the one with fewer occupied devices is taken, then the
    lowest. Since larger blocks are chosen first, each block of an order leaves equally much for the
    orders that follow.
    """
    jobs = list(occupied)
    chosen = 0
    for order in orders:
        ends_by_block: dict[int, tuple[Any, int]] = {}
        for bits_, end in jobs:
            low = (bits_ & -bits_).bit_length() - 1 >> order
            for block_index in range(low, (bits_.bit_length() - 1 >> order) + 1):
                occupied_count = (
                    bits_ >> (block_index << order) & ((1 << (1 << order)) - 1)
                ).bit_count()
                if occupied_count:
                    last, count = ends_by_block.get(block_index, (first, 0))
                    ends_by_block[block_index] = max(last, end), count + occupied_count
        best: tuple[Any, int, int] | None = None
        barred = ~capacity | unusable | chosen
        for block_index in range(-(-capacity.bit_length() >> order) or 1):
            if not barred >> (block_index << order) & ((1 << (1 << order)) - 1):
                last, count = ends_by_block.get(block_index, (first, 0))
                best = min(best or (last, count, block_index), (last, count, block_index))
        if best is None:
            return 0
        chosen |= block(best[2] << order, order)
    return chosen


def block(start: int, order: int) -> int:
    """Return the devices of a block, as bits."""
    return ((1 << (1 << order)) - 1) << start


def every(order: int, length: int) -> int:
    """Return the multiples of 2**order below `length`, as bits."""
    step = 1 << order
    if step >= length:
        return 1
    grid, done = 1, 1
    while done * step < length:
        grid |= grid << done * step
        done *= 2
    return grid


def bits(places: Iterable[int]) -> int:
    """Return a set of places as bits."""
    out = 0
    for place in places:
        out |= 1 << place
    return out
