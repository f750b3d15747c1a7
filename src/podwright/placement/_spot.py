"""A placement and where it lies, worked out once and kept: no tuples, since those read slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.placement._tables import HALF_ORDER, QUARTER_ORDER

if TYPE_CHECKING:
    pass


class Spot:
    """One block of 2**order devices, and what of its pool it touches, by number.

    half, beside: its half of the link domain and the other one. quarter, other_quarter: alike,
    in that half. shift: the bit of its half in a file. bits: in the mask of its quarter; 0 if
    it is larger.
    """

    __slots__ = (
        "beside", "bits", "half", "order", "other_quarter", "quarter", "shift", "slot",
    )  # fmt: skip

    def __init__(self, slot: int, order: int, halves: int) -> None:
        self.slot = slot
        self.order = order
        self.half = slot >> HALF_ORDER
        self.beside = self.half ^ 1
        self.quarter = slot >> QUARTER_ORDER
        self.other_quarter = self.quarter ^ 1
        self.shift = halves - 1 - self.half
        self.bits = 0 if order > QUARTER_ORDER else (1 << (1 << order)) - 1 << (slot & 15)
