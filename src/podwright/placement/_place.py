"""A placement and where it lies, worked out once and kept: no tuples, since those read slower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from podwright.placement._tables import QUARTER_ORDER
from podwright.placement._values import Placement

if TYPE_CHECKING:
    from podwright.placement._pool import Pool


class Spot:
    """One block of 2**order devices.

    bits: in the mask of its quarter; 0 if it is larger. shift: the bit of its half in a file.
    """

    __slots__ = ("bits", "order", "quarter", "shift", "slot")

    def __init__(self, slot: int, order: int, shift: int) -> None:
        self.slot = slot
        self.order = order
        self.shift = shift
        self.quarter = slot >> QUARTER_ORDER
        self.bits = 0 if order > QUARTER_ORDER else (1 << (1 << order)) - 1 << (slot & 15)


class Place:
    """A placement, and its blocks in its pool."""

    __slots__ = ("placement", "pool", "spots")

    def __init__(self, placement: Placement, pool: Pool, slots: Sequence[int], order: int) -> None:
        self.placement = placement
        self.pool = pool
        self.spots = tuple(pool.spot(slot, order) for slot in slots)

    @property
    def slots(self) -> list[int]:
        """Where the blocks begin."""
        return [spot.slot for spot in self.spots]
