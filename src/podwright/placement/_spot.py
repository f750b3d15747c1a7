"""A placement and where it lies, worked out once and kept: no tuples, since those read slower."""

from __future__ import annotations

from podwright.placement._tables import HALF_ORDER, QUARTER_ORDER

#: How many halves stand in a row: so many that an integer of their bits is quickly copied.
ROW = 256
#: By place in its row: a half's bit.
ROW_BIT = [1 << ROW - 1 - i for i in range(ROW)]


class Spot:
    """One block of 2**order devices, and what of its pool it touches, by number.

    half, beside: its half of the link domain and the other one. quarter, other_quarter: alike,
    in that half. row, bit: the files of its half's row, and its half in them. bits: in the mask
    of its quarter; 0 if it is larger.
    """

    __slots__ = (
        "beside", "bit", "bits", "half", "order", "other_quarter", "quarter", "row", "slot",
    )  # fmt: skip

    def __init__(self, slot: int, order: int, rows: list[list[int]]) -> None:
        self.slot = slot
        self.order = order
        self.half = slot >> HALF_ORDER
        self.beside = self.half ^ 1
        self.quarter = slot >> QUARTER_ORDER
        self.other_quarter = self.quarter ^ 1
        self.row = rows[self.half // ROW]
        self.bit = ROW_BIT[self.half % ROW]
        self.bits = 0 if order > QUARTER_ORDER else (1 << (1 << order)) - 1 << (slot & 15)
