"""Finding the same aligned block free in several link domains at once.

The free devices of many link domains are one integer, 64 bits each, so that one shift and one "and"
test all of them together.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache

from podwright.placement._hole_tables import QUARTER, WHOLE_ORDER

DOMAIN = 4 * QUARTER

#: Small holes are searched in this many link domains, from the first that has a place.
_WINDOW_DOMAINS = 256
_ALL = array("H", [(1 << QUARTER) - 1] * 4)


class Spans:
    """The link domains of one pool, as consecutive places.

    domains: their indices in the cluster, ascending. loop_length: number of link domains of the
    cluster's loop; 0 where any may be joined. Masks are those of a pool: four quarters for each
    place.
    """

    __slots__ = ("_domains", "_loop", "_starts", "pairs")

    def __init__(self, domains: Sequence[int], loop_length: int) -> None:
        self._domains = domains
        self._loop = loop_length
        self._starts: dict[int, int] = {}
        #: By place: the two neighbours on the loop that it forms pairs with, in routing order.
        self.pairs: list[list[tuple[int, int]]] = [[] for _ in domains]
        if loop_length and len(domains) > 1:
            for pair_place in self._run_places(2):
                next_place = (pair_place + 1) % len(domains)
                self.pairs[pair_place].append((pair_place, next_place))
                self.pairs[next_place].append((pair_place, next_place))

    def find(self, quarter_masks: array[int], order: int, place_count: int) -> list[int]:
        """Return the slots of one aligned block of 2**order in `place_count` places, in routing
        order.

        The list is empty where there is none. Blocks in small holes come first, so that large ones
        stay whole.
        """
        if not self._loop:
            return self._find_in_any_domains(quarter_masks, order, place_count)
        joint_mask = self._joint_free_mask(quarter_masks, place_count)
        block_starts = _aligned_block_starts(joint_mask, order, DOMAIN * len(self._domains))
        if not block_starts:
            return []
        window_bits = DOMAIN * _WINDOW_DOMAINS
        window_start = _lowest_bits(block_starts, 1)[0] // window_bits * window_bits
        small_hole_starts = next(
            _starts_by_hole(joint_mask >> window_start & (1 << window_bits) - 1, order, window_bits)
        )
        first_slot, loop_slots = (
            window_start + _lowest_bits(small_hole_starts, 1)[0],
            DOMAIN * len(self._domains),
        )
        return [(first_slot + DOMAIN * step) % loop_slots for step in range(place_count)]

    def largest(self, quarter_masks: array[int], count: int) -> int:
        """Return the order of the largest block that `find` would find; -1 for none."""
        if not self._loop:
            orders = range(WHOLE_ORDER, -1, -1)
            return next(
                (
                    order
                    for order in orders
                    if self._find_in_any_domains(quarter_masks, order, count)
                ),
                -1,
            )
        block_starts, mask_width = (
            self._joint_free_mask(quarter_masks, count),
            DOMAIN * len(self._domains),
        )
        largest_order = -1
        while block_starts and largest_order < WHOLE_ORDER:
            largest_order += 1
            block_starts &= block_starts >> (1 << largest_order) & _period_mask(
                2 << largest_order, mask_width
            )
        return largest_order

    def _joint_free_mask(self, quarter_masks: array[int], place_count: int) -> int:
        """Return the devices at which `place_count` places on the loop, from there on, are free."""
        pool_places = len(self._domains)
        if pool_places < place_count:
            return 0
        free_mask = bits(quarter_masks)
        # Repeat the first places behind the last, so that a run may cross the end of the loop.
        free_mask |= bits(quarter_masks[: 4 * (place_count - 1)]) << DOMAIN * pool_places
        places_left, places_joined = place_count - 1, 1
        while places_left:
            places_joined_now = min(places_joined, places_left)
            free_mask &= free_mask >> DOMAIN * places_joined_now
            places_joined += places_joined_now
            places_left -= places_joined_now
        if place_count not in self._starts:
            self._starts[place_count] = self._run_start_bits(place_count)
        return free_mask & self._starts[place_count]

    def _run_places(self, wanted_length: int) -> Iterator[int]:
        """Yield the places where a run of `wanted_length` neighbours begins.

        A run round the whole loop begins at its first link domain, so that answers are the same
        each time.
        """
        domains, loop_length = self._domains, self._loop
        domain_set = set(domains)
        run_length = 0  # of the run that begins at a place; two rounds close the loop
        for round_position in reversed(range(2 * len(domains))):
            place = round_position % len(domains)
            run_length = run_length + 1 if (domains[place] + 1) % loop_length in domain_set else 1
            if (
                round_position < len(domains)
                and run_length >= wanted_length
                and (wanted_length < loop_length or not domains[place])
            ):
                yield place

    def _run_start_bits(self, run_length: int) -> int:
        """Return all bits of those places."""
        masks = array("H", bytes(8 * len(self._domains)))
        for place in self._run_places(run_length):
            masks[4 * place : 4 * place + 4] = _ALL
        return bits(masks)

    def _find_in_any_domains(
        self, quarter_masks: array[int], order: int, place_count: int
    ) -> list[int]:
        """Search as `find` does, in any places."""
        width = DOMAIN * len(self._domains)
        domain_starts = _period_mask(DOMAIN, width)
        block_starts = 0
        for hole_starts in _starts_by_hole(bits(quarter_masks), order, width):
            block_starts |= hole_starts
            for offset in range(0, DOMAIN, 1 << order):
                matching_domains = block_starts >> offset & domain_starts
                if matching_domains.bit_count() >= place_count:
                    return [slot + offset for slot in _lowest_bits(matching_domains, place_count)]
        return []


def _starts_by_hole(free_mask: int, order: int, mask_width: int) -> Iterator[int]:
    """Yield the starts of free aligned blocks of 2**order, those in the smallest holes first.

    A hole is the largest free block around a device. There is one item for each size of holes.
    """
    block_starts = larger_starts = _aligned_block_starts(free_mask, order, mask_width)
    for hole_order in range(order, WHOLE_ORDER):
        larger_starts &= larger_starts >> (1 << hole_order) & _period_mask(
            2 << hole_order, mask_width
        )
        reachable = larger_starts
        for shift_order in range(order, hole_order + 1):
            reachable |= reachable << (1 << shift_order)
        if block_starts & ~reachable:
            yield block_starts & ~reachable
            block_starts &= reachable
    if block_starts:
        yield block_starts


def _aligned_block_starts(free_mask: int, order: int, mask_width: int) -> int:
    """Return the first devices of free aligned blocks of 2**order, as bits."""
    for step_order in range(order):
        free_mask &= free_mask >> (1 << step_order)
    return free_mask & _period_mask(1 << order, mask_width)


@lru_cache(maxsize=64)
def _period_mask(period: int, mask_width: int) -> int:
    """Return a mask with a bit at every multiple of `period` below `mask_width`."""
    return ((1 << mask_width) - 1) // ((1 << period) - 1)


def _lowest_bits(bit_set: int, bit_count: int) -> list[int]:
    """Return the positions of the lowest `bit_count` bits."""
    positions = []
    for _ in range(bit_count):
        lowest_bit = bit_set & -bit_set
        positions.append(lowest_bit.bit_length() - 1)
        bit_set ^= lowest_bit
    return positions


def bits(quarter_masks: array[int]) -> int:
    """Return the masks of quarters as one integer, the first quarter lowest."""
    if sys.byteorder == "big":
        quarter_masks = quarter_masks[:]
        quarter_masks.byteswap()
    return int.from_bytes(quarter_masks.tobytes(), "little")
