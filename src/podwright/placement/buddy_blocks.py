"""Which block of a pod a scheduler's job gets, and how much lies in whole blocks.

Native mode decides by it, and `podwright replay` does what native mode would do.

Devices stand on a line, link domain after link domain, each beginning at a multiple of a power of
two; a block is a power of two of them at a multiple of its size. A job gets the smallest free
block that suffices, anywhere: then whatever Slurm may start by the counts of `whole` finds its
place, in whatever order it comes (docs/slurm/mechanisms.md has the proof).

Sets of devices are integers, a bit for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Blocks:
    """The devices of one pod that can be had. capacity: all that there are, as
    bits. grid: others of the same length, whose tables serve here too."""

    def __init__(self, capacity: int, *, grid: Blocks | None = None) -> None:
        self.capacity = capacity
        self.free = capacity
        length = capacity.bit_length()
        self._grid: list[int] = (
            grid._grid if grid else [every(order, length) for order in range(64)]
        )
        self.orders = len(self._levels(capacity))

    def whole(self, order: int) -> int:
        """Devices that lie in free blocks of 2**order."""
        levels = self._levels(self.free)
        return levels[order].bit_count() << order if order < len(levels) else 0

    def wholes(self) -> list[int]:
        """`whole` of each order that the pod has."""
        levels = self._levels(self.free)
        counts = [level.bit_count() << order for order, level in enumerate(levels)]
        return counts + [0] * (self.orders - len(counts))

    def find(self, order: int) -> int | None:
        """Where the block for a job of 2**order begins: in the smallest free block that holds it,
        the lowest of equals. None where there is none."""
        levels = self._levels(self.free)
        for at in range(order, len(levels)):
            starts = levels[at]
            if at + 1 < len(levels):
                larger = levels[at + 1]
                starts &= ~(larger | larger << (1 << at))
            if starts:
                return (starts & -starts).bit_length() - 1
        return None

    def take(self, start: int, order: int) -> None:
        """The block is somebody's."""
        self.free &= ~block(start, order)

    def give(self, start: int, order: int) -> None:
        """The block can be had again, but for devices that the pod lacks."""
        self.free |= block(start, order) & self.capacity

    def _levels(self, free: int) -> list[int]:
        """For each order the starts of its free blocks, up to the last that has any."""
        levels = []
        order = 0
        while free:
            levels.append(free)
            free &= free >> (1 << order) & self._grid[order + 1]
            order += 1
        return levels


def fit(blocks: Blocks, orders: Sequence[int]) -> bool:
    """Do blocks of all these orders find a place in what is free? The largest come first, so the
    answer is sure."""
    trial = Blocks(blocks.capacity, grid=blocks)
    trial.free = blocks.free
    for order in orders:
        start = trial.find(order)
        if start is None:
            return False
        trial.take(start, order)
    return True


def soonest(
    capacity: int, away: int, held: Iterable[tuple[int, Any]], orders: Sequence[int], *, first: Any
) -> int:
    """The blocks of these orders, the largest first, whose jobs end soonest, as bits.

    capacity: all devices; away: those that nobody can have; held: the devices of each job, and
    when it ends, in whatever sorts; first: an end that is before all of them. Of blocks that end
    together the one with fewer held devices is taken, then the lowest. 0: there are not so many
    whole blocks. With larger ones chosen before, each block is as good for what is left as any.
    """
    jobs = list(held)
    chosen = 0
    for order in orders:
        ends: dict[int, tuple[Any, int]] = {}
        for bits_, end in jobs:
            low = (bits_ & -bits_).bit_length() - 1 >> order
            for at in range(low, (bits_.bit_length() - 1 >> order) + 1):
                inside = (bits_ >> (at << order) & ((1 << (1 << order)) - 1)).bit_count()
                if inside:
                    last, count = ends.get(at, (first, 0))
                    ends[at] = max(last, end), count + inside
        best: tuple[Any, int, int] | None = None
        barred = ~capacity | away | chosen
        for at in range(-(-capacity.bit_length() >> order) or 1):
            if not barred >> (at << order) & ((1 << (1 << order)) - 1):
                last, count = ends.get(at, (first, 0))
                best = min(best or (last, count, at), (last, count, at))
        if best is None:
            return 0
        chosen |= block(best[2] << order, order)
    return chosen


def block(start: int, order: int) -> int:
    """The devices of a block."""
    return ((1 << (1 << order)) - 1) << start


def every(order: int, length: int) -> int:
    """The multiples of 2**order below `length`, as bits."""
    step = 1 << order
    if step >= length:
        return 1
    grid, done = 1, 1
    while done * step < length:
        grid |= grid << done * step
        done *= 2
    return grid


def bits(places: Iterable[int]) -> int:
    """A set as an integer."""
    out = 0
    for place in places:
        out |= 1 << place
    return out
