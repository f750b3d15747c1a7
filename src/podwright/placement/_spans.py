"""Finding the same aligned block free in several link domains at once.

The free devices of many link domains are one integer, 64 bits each, so that a shift and an
"and" ask the question of all of them together.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache

from podwright.placement._tables import QUARTER, WHOLE_ORDER

DOMAIN = 4 * QUARTER

#: How many link domains are searched at once.
_WINDOW = 256
_ALL = (1 << DOMAIN) - 1


class Spans:
    """The link domains of one pool, as places that follow one another.

    domains: which of the cluster's they are, ascending. loop: how many the cluster's loop has;
    0 where any may be joined. Masks are those of a pool: four quarters a place.
    """

    __slots__ = ("_domains", "_loop", "_starts", "pairs")

    def __init__(self, domains: Sequence[int], loop: int) -> None:
        self._domains = domains
        self._loop = loop
        self._starts: dict[int, list[int]] = {}
        #: By place, the two neighbours it forms with others on the loop, in routing order.
        self.pairs: list[list[tuple[int, int]]] = [[] for _ in domains]
        if loop and len(domains) > 1:
            for place in self._run_places(2):
                after = (place + 1) % len(domains)
                self.pairs[place].append((place, after))
                self.pairs[after].append((place, after))

    def find(self, masks: Sequence[int], order: int, count: int) -> list[int]:
        """The slots of one aligned block of 2**order in `count` places, in routing order; or none.

        Blocks in small holes come first, so that large ones stay whole.
        """
        if not self._loop:
            return self._find_apart(masks, order, count)
        for first, joint, width in self._windows(masks, count):
            blocks = next(_by_hole(joint, order, width), 0)
            if blocks:
                slot = (blocks & -blocks).bit_length() - 1 + DOMAIN * first
                round_ = DOMAIN * len(self._domains)
                return [(slot + DOMAIN * i) % round_ for i in range(count)]
        return []

    def largest(self, masks: Sequence[int], count: int) -> int:
        """The order of the largest block that `find` would find; -1 for none."""
        if not self._loop:
            orders = range(WHOLE_ORDER, -1, -1)
            return next((k for k in orders if self._find_apart(masks, k, count)), -1)
        largest = -1
        for _, blocks, width in self._windows(masks, count):
            order = 0
            while blocks and order <= WHOLE_ORDER:
                largest = max(largest, order)
                blocks &= blocks >> (1 << order) & _every(2 << order, width)
                order += 1
        return largest

    def _windows(self, masks: Sequence[int], count: int) -> Iterator[tuple[int, int, int]]:
        """First place, devices from where `count` places on the loop are free, and bits."""
        places = len(self._domains)
        if places < count:
            return
        starts = self._starts.get(count)
        if starts is None:
            starts = self._starts[count] = self._run_starts(count)
        for i, first in enumerate(range(0, places, _WINDOW)):
            length = min(_WINDOW, places - first)
            past = first + length + count - 1
            free = bits(masks[4 * first : 4 * past])
            if past > places:  # round the loop
                free |= bits(masks[: 4 * (past - places)]) << DOMAIN * (places - first)
            rest, done = count - 1, 1
            while rest:
                step = min(done, rest)
                free &= free >> DOMAIN * step
                done += step
                rest -= step
            yield first, free & starts[i], DOMAIN * length

    def _run_places(self, count: int) -> Iterator[int]:
        """The places where a run of `count` neighbours begins.

        A run round the whole loop begins at its first link domain, that answers are the same.
        """
        domains, loop = self._domains, self._loop
        there = set(domains)
        length = 0  # of the run that begins at a place; two rounds close the loop
        for turn in reversed(range(2 * len(domains))):
            place = turn % len(domains)
            length = length + 1 if (domains[place] + 1) % loop in there else 1
            if turn < len(domains) and length >= count and (count < loop or not domains[place]):
                yield place

    def _run_starts(self, count: int) -> list[int]:
        """Window by window, all bits of those places."""
        starts = [0] * -(-len(self._domains) // _WINDOW)
        for place in self._run_places(count):
            starts[place // _WINDOW] |= _ALL << place % _WINDOW * DOMAIN
        return starts

    def _find_apart(self, masks: Sequence[int], order: int, count: int) -> list[int]:
        """As `find`, in any places."""
        width = DOMAIN * len(self._domains)
        once = _every(DOMAIN, width)
        blocks = 0
        for more in _by_hole(bits(masks), order, width):
            blocks |= more
            for offset in range(0, DOMAIN, 1 << order):
                found = blocks >> offset & once
                if found.bit_count() >= count:
                    return [slot + offset for slot in _lowest(found, count)]
        return []


def _by_hole(free: int, order: int, width: int) -> Iterator[int]:
    """The first devices of free aligned blocks of 2**order, those in the smallest holes first.

    A hole is the largest free block around. Yields as often as there are sizes of holes.
    """
    for i in range(order):
        free &= free >> (1 << i)
    blocks = larger = free & _every(1 << order, width)
    for i in range(order, WHOLE_ORDER):
        larger &= larger >> (1 << i) & _every(2 << i, width)
        inside = larger
        for k in range(order, i + 1):
            inside |= inside << (1 << k)
        if blocks & ~inside:
            yield blocks & ~inside
            blocks &= inside
    if blocks:
        yield blocks


@lru_cache(maxsize=64)
def _every(step: int, width: int) -> int:
    """A bit at every multiple of `step` below `width`."""
    return ((1 << width) - 1) // ((1 << step) - 1)


def _lowest(value: int, count: int) -> list[int]:
    """The positions of the lowest `count` bits."""
    out = []
    for _ in range(count):
        low = value & -value
        out.append(low.bit_length() - 1)
        value ^= low
    return out


def bits(masks: Sequence[int]) -> int:
    """The masks of quarters as one integer, the first lowest."""
    words = array("H", masks)
    if sys.byteorder == "big":
        words.byteswap()
    return int.from_bytes(words.tobytes(), "little")
