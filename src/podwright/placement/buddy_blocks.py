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


class BuddyBlocks:
    """The usable devices of one pod.

    capacity: all devices, as bits. shared_grid: another object of the same length, whose tables are
    shared.
    """

    def __init__(self, capacity: int, *, shared_grid: BuddyBlocks | None = None) -> None:
        self.capacity = capacity
        self.free = capacity
        count = capacity.bit_length()
        self._grid: list[int] = (
            shared_grid._grid if shared_grid else [every(order, count) for order in range(64)]
        )
        self.orders = len(self._free_starts_by_order(capacity))

    def whole(self, order: int) -> int:
        """Return the number of devices that lie in free blocks of 2**order."""
        levels = self._free_starts_by_order(self.free)
        return levels[order].bit_count() << order if order < len(levels) else 0

    def whole_counts_by_order(self) -> list[int]:
        """Return `whole` of each order that the pod has."""
        levels = self._free_starts_by_order(self.free)
        counts = [level_starts.bit_count() << order for order, level_starts in enumerate(levels)]
        return counts + [0] * (self.orders - len(counts))

    def find(self, order: int) -> int | None:
        """Return where the block for a job of 2**order devices begins, or None.

        It lies in the smallest free block that holds it; of equal ones, in the lowest.
        """
        levels = self._free_starts_by_order(self.free)
        for block_order in range(order, len(levels)):
            block_starts = levels[block_order]
            if block_order + 1 < len(levels):
                larger_starts = levels[block_order + 1]
                block_starts &= ~(larger_starts | larger_starts << (1 << block_order))
            if block_starts:
                return (block_starts & -block_starts).bit_length() - 1
        return None

    def take(self, block_start: int, order: int) -> None:
        """Take a block."""
        self.free &= ~block(block_start, order)

    def give(self, block_start: int, order: int) -> None:
        """Give a block back, except for devices that the pod lacks."""
        self.free |= block(block_start, order) & self.capacity

    def _free_starts_by_order(self, free_bits: int) -> list[int]:
        """Return the starts of free blocks as bits, for each order up to the last with any."""
        level_starts = []
        order = 0
        while free_bits:
            level_starts.append(free_bits)
            free_bits &= free_bits >> (1 << order) & self._grid[order + 1]
            order += 1
        return level_starts


def fit(blocks: BuddyBlocks, orders: Sequence[int]) -> bool:
    """Return whether blocks of all these orders fit into what is free together.

    orders: the largest first. Placing the largest first makes the answer exact, since blocks are
    aligned powers of two.
    """
    trial_blocks = BuddyBlocks(blocks.capacity, shared_grid=blocks)
    trial_blocks.free = blocks.free
    for order in orders:
        block_start = trial_blocks.find(order)
        if block_start is None:
            return False
        trial_blocks.take(block_start, order)
    return True


def soonest(
    capacity: int,
    unusable_bits: int,
    occupied: Iterable[tuple[int, Any]],
    block_orders: Sequence[int],
    *,
    first: Any,
) -> int:
    """Return the blocks of these orders whose jobs end soonest, as bits; 0 if there are too few.

    capacity: all devices. unusable_bits: devices that nobody can use. occupied: the devices of each
    job, and its end, as values that can be compared. block_orders: the largest first. first: an end
    before all others. Of blocks that end together, the one with fewer occupied devices is taken,
    then the lowest. Since larger blocks are chosen first, each block of an order leaves equally
    much for the orders that follow.
    """
    occupying_jobs = list(occupied)
    chosen_bits = 0
    for order in block_orders:
        ends_by_block: dict[int, tuple[Any, int]] = {}
        for job_bits, job_end in occupying_jobs:
            first_block = (job_bits & -job_bits).bit_length() - 1 >> order
            for block_index in range(first_block, (job_bits.bit_length() - 1 >> order) + 1):
                occupied_count = (
                    job_bits >> (block_index << order) & ((1 << (1 << order)) - 1)
                ).bit_count()
                if occupied_count:
                    last_end, occupied_devices = ends_by_block.get(block_index, (first, 0))
                    ends_by_block[block_index] = (
                        max(last_end, job_end),
                        occupied_devices + occupied_count,
                    )
        best_block: tuple[Any, int, int] | None = None
        barred_bits = ~capacity | unusable_bits | chosen_bits
        for block_index in range(-(-capacity.bit_length() >> order) or 1):
            if not barred_bits >> (block_index << order) & ((1 << (1 << order)) - 1):
                last_end, occupied_devices = ends_by_block.get(block_index, (first, 0))
                best_block = min(
                    best_block or (last_end, occupied_devices, block_index),
                    (last_end, occupied_devices, block_index),
                )
        if best_block is None:
            return 0
        chosen_bits |= block(best_block[2] << order, order)
    return chosen_bits


def block(block_start: int, order: int) -> int:
    """Return the devices of a block, as bits."""
    return ((1 << (1 << order)) - 1) << block_start


def every(order: int, bit_length: int) -> int:
    """Return the multiples of 2**order below `bit_length`, as bits."""
    step = 1 << order
    if step >= bit_length:
        return 1
    multiples, count = 1, 1
    while count * step < bit_length:
        multiples |= multiples << count * step
        count *= 2
    return multiples


def bits(positions: Iterable[int]) -> int:
    """Return a set of places as bits."""
    bit_set = 0
    for position in positions:
        bit_set |= 1 << position
    return bit_set
