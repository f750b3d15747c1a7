"""A block and its numbers in a pool, computed once and kept.

It has no tuples, since they read slower.
"""

from __future__ import annotations

from podwright.placement._hole_tables import HALF_ORDER, QUARTER_ORDER

#: The number of halves in a row. It is so low that an integer of their bits is copied quickly.
HALVES_PER_ROW = 256
#: The bit of a half, by its place in its row.
HALF_BITS = [1 << HALVES_PER_ROW - 1 - i for i in range(HALVES_PER_ROW)]


class Spot:
    """One block of 2**order devices, and the numbers of the parts of its pool that it touches.

    half, buddy: its half of the link domain, and the other half. quarter, other_quarter: its
    quarter, and the other quarter of the same half. row: the files of its half's row. bit: its half
    in them. bits: its devices in the mask of its quarter; 0 if the block is larger than a quarter.
    """

    __slots__ = (
        "bit",
        "bits",
        "buddy",
        "half",
        "order",
        "other_quarter",
        "quarter",
        "row",
        "slot",
    )  # fmt: skip

    def __init__(self, slot: int, order: int, rows: list[list[int]]) -> None:
        self.slot = slot
        self.order = order
        self.half = slot >> HALF_ORDER
        self.buddy = self.half ^ 1
        self.quarter = slot >> QUARTER_ORDER
        self.other_quarter = self.quarter ^ 1
        self.row = rows[self.half // HALVES_PER_ROW]
        self.bit = HALF_BITS[self.half % HALVES_PER_ROW]
        self.bits = 0 if order > QUARTER_ORDER else (1 << (1 << order)) - 1 << (slot & 15)
