"""Finding the same aligned block free in several link domains at once.

The free devices of many link domains are one integer, 64 bits each, so that one shift and one "and"
test all of them together.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache

from podwright.placement._tables import QUARTER, WHOLE_ORDER

DOMAIN = 4 * QUARTER

#: Small holes are searched in this many link domains, from the first that has a place.
_WINDOW = 256
_ALL = array("H", [(1 << QUARTER) - 1] * 4)


class Spans:
    """The link domains of one pool, as consecutive places.

    domains: their indices in the cluster, ascending. loop: number of link domains of the cluster's
    loop; 0 where any may be joined. Masks are those of a pool: four quarters for each place.
    """

    __slots__ = ("_domains", "_loop", "_starts", "pairs")

    def __init__(self, domains: Sequence[int], loop: int) -> None:
        self._domains = domains
        self._loop = loop
        self._starts: dict[int, int] = {}
        #: By place: the two neighbours on the loop that it forms pairs with, in routing order.
        self.pairs: list[list[tuple[int, int]]] = [[] for _ in domains]
        if loop and len(domains) > 1:
            for place in self._run_places(2):
                after = (place + 1) % len(domains)
                self.pairs[place].append((place, after))
                self.pairs[after].append((place, after))

    def find(self, masks: array[int], order: int, count: int) -> list[int]:
        """Return the slots of one aligned block of 2**order in `count` places, in routing order.

        The list is empty where there is none. Blocks in small holes come first, so that large ones
        stay whole.
        """
        if not self._loop:
            return self._find_apart(masks, order, count)
        joint = self._joint(masks, count)
        blocks = _aligned(joint, order, DOMAIN * len(self._domains))
        if not blocks:
            return []
        window = DOMAIN * _WINDOW
        first = _lowest(blocks, 1)[0] // window * window
        near = next(_by_hole(joint >> first & (1 << window) - 1, order, window))
        slot, round_ = first + _lowest(near, 1)[0], DOMAIN * len(self._domains)
        return [(slot + DOMAIN * i) % round_ for i in range(count)]

    def largest(self, masks: array[int], count: int) -> int:
        """Return the order of the largest block that `find` would find; -1 for none."""
        if not self._loop:
            orders = range(WHOLE_ORDER, -1, -1)
            return next((k for k in orders if self._find_apart(masks, k, count)), -1)
        blocks, width = self._joint(masks, count), DOMAIN * len(self._domains)
        largest = -1
        while blocks and largest < WHOLE_ORDER:
            largest += 1
            blocks &= blocks >> (1 << largest) & _period_mask(2 << largest, width)
        return largest

    def _joint(self, masks: array[int], count: int) -> int:
        """Return the devices at which `count` places on the loop, from there on, are free."""
        places = len(self._domains)
        if places < count:
            return 0
        free = bits(masks)
        free |= bits(masks[: 4 * (count - 1)]) << DOMAIN * places  # across the end of the loop
        rest, done = count - 1, 1
        while rest:
            step = min(done, rest)
            free &= free >> DOMAIN * step
            done += step
            rest -= step
        if count not in self._starts:
            self._starts[count] = self._run_starts(count)
        return free & self._starts[count]

    def _run_places(self, count: int) -> Iterator[int]:
        """Yield the places where a run of `count` neighbours begins.

        A run round the whole loop begins at its first link domain, so that answers are the same
        each time.
        """
        domains, loop = self._domains, self._loop
        domain_set = set(domains)
        length = 0  # of the run that begins at a place; two rounds close the loop
        for turn in reversed(range(2 * len(domains))):
            place = turn % len(domains)
            length = length + 1 if (domains[place] + 1) % loop in domain_set else 1
            if turn < len(domains) and length >= count and (count < loop or not domains[place]):
                yield place

    def _run_starts(self, count: int) -> int:
        """Return all bits of those places."""
        starts = array("H", bytes(8 * len(self._domains)))
        for place in self._run_places(count):
            starts[4 * place : 4 * place + 4] = _ALL
        return bits(starts)

    def _find_apart(self, masks: array[int], order: int, count: int) -> list[int]:
        """Search as `find` does, in any places."""
        width = DOMAIN * len(self._domains)
        once = _period_mask(DOMAIN, width)
        blocks = 0
        for more in _by_hole(bits(masks), order, width):
            blocks |= more
            for offset in range(0, DOMAIN, 1 << order):
                matches = blocks >> offset & once
                if matches.bit_count() >= count:
                    return [slot + offset for slot in _lowest(matches, count)]
        return []


def _by_hole(free: int, order: int, width: int) -> Iterator[int]:
    """Yield the starts of free aligned blocks of 2**order, those in the smallest holes first.

    A hole is the largest free block around a device. There is one item for each size of holes.
    """
    blocks = larger = _aligned(free, order, width)
    for i in range(order, WHOLE_ORDER):
        larger &= larger >> (1 << i) & _period_mask(2 << i, width)
        reachable = larger
        for k in range(order, i + 1):
            reachable |= reachable << (1 << k)
        if blocks & ~reachable:
            yield blocks & ~reachable
            blocks &= reachable
    if blocks:
        yield blocks


def _aligned(free: int, order: int, width: int) -> int:
    """Return the first devices of free aligned blocks of 2**order, as bits."""
    for i in range(order):
        free &= free >> (1 << i)
    return free & _period_mask(1 << order, width)


@lru_cache(maxsize=64)
def _period_mask(step: int, width: int) -> int:
    """Return a mask with a bit at every multiple of `step` below `width`."""
    return ((1 << width) - 1) // ((1 << step) - 1)


def _lowest(value: int, count: int) -> list[int]:
    """Return the positions of the lowest `count` bits."""
    out = []
    for _ in range(count):
        low = value & -value
        out.append(low.bit_length() - 1)
        value ^= low
    return out


def bits(masks: array[int]) -> int:
    """Return the masks of quarters as one integer, the first quarter lowest."""
    if sys.byteorder == "big":
        masks = masks[:]
        masks.byteswap()
    return int.from_bytes(masks.tobytes(), "little")
