"""The free devices of one allocation, filed so that a place is found without looking around.

A half link domain (32 devices) is filed under how much harm one more partition does there
(`_fits.RANKS`) and the order of its largest hole. All non-empty files are the bits of one
integer, and so are the halves in a file: the place for a block is the lowest bit among the
files whose holes are large enough. Devices are numbered by slot: 64 times the place of the
link domain in this pool, plus the offset.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from podwright.placement import _spans
from podwright.placement._fits import CRIPPLED, FULL, HALF, KNOWN, ORDERS, RANK_COUNT, RANKS, fits
from podwright.placement._values import Placement

DOMAIN = 2 * HALF

#: By order: a block at offset 0 of a half. The last is what a whole link domain takes of each.
_BLOCK = [(1 << (1 << order)) - 1 for order in range(ORDERS)]
_FILES = RANK_COUNT * 8
#: By order: the files whose largest hole takes a block of that order.
_TAKES = [
    sum(1 << (rank * 8 + hole) for rank in range(RANK_COUNT) for hole in range(order, ORDERS))
    for order in range(ORDERS)
]
#: Where both halves of the link domains are that are wholly free.
_WHOLE = RANKS[0] * 8 + ORDERS - 1
_NOWHERE = -1


class Place(NamedTuple):
    """A placement, and where in its pool it lies: blocks of 2**order devices."""

    placement: Placement
    pool: Pool
    slots: tuple[int, ...]
    order: int


class Pool:
    """Link domains, or parts of them, of one allocation. Changed in place.

    owned: by link domain of the cluster, the mask of the devices that are this allocation's.
    domains: those link domains, place by place; place is its inverse. known: the owner's memory.
    """

    __slots__ = (
        "_count", "_file", "_files", "_free", "_full", "_owned", "_starts", "_up",
        "cluster_domains", "domains", "known", "name", "place",
    )  # fmt: skip

    def __init__(self, name: str, owned: Sequence[int]) -> None:
        self.name = name
        self.cluster_domains = len(owned)
        self.domains = [domain for domain, mask in enumerate(owned) if mask]
        self.place = {domain: i for i, domain in enumerate(self.domains)}
        halves = [owned[d] >> shift & FULL for d in self.domains for shift in (0, HALF)]
        self._owned = array("I", halves)
        self._free = array("I", halves)
        self._up = array("I", halves)
        self._count = [0 if mask == FULL else CRIPPLED for mask in halves]
        self._file = [_NOWHERE] * len(halves)
        self._files = [0] * _FILES
        self._full = 0  # the files that are not empty
        self._starts: dict[int, int] = {}
        self.known: dict[int, Place] = {}
        for half in range(0, len(halves), 2):
            self._refile(half)

    # One block in one link domain: the hot path.

    def find(self, order: int) -> int:
        """The best slot for a block of 2**order devices, or -1."""
        if order < ORDERS:
            full = self._full & _TAKES[order]
            if not full:
                return -1
            files = self._files[(full & -full).bit_length() - 1]
            half = (files & -files).bit_length() - 1
            mask = self._free[half] & self._up[half]
            return half << 5 | (KNOWN.get(mask) or fits(mask))[order]
        whole = self._files[_WHOLE]
        return (whole & -whole).bit_length() - 1 << 5 if whole else -1

    def turn(self, slot: int, order: int, step: int) -> None:
        """Take (`step` 1) a block that is free, or give back (-1) one that was taken as such."""
        half = slot >> 5
        if order < ORDERS:
            self._free[half] ^= _BLOCK[order] << (slot & 31)
            self._count[half] += step
        else:
            for each in (half, half + 1):
                self._free[each] ^= FULL
                self._count[each] += step
        self._refile(half)

    def _refile(self, half: int) -> None:
        """File a half and its sister anew, after their devices or counts changed."""
        count, file, files = self._count, self._file, self._files
        for here in (half, half ^ 1):
            mask = self._free[here] & self._up[here]
            if mask:
                rank = RANKS[count[here] << 6 | count[here ^ 1]]
                new = rank << 3 | (KNOWN.get(mask) or fits(mask))[6]
            else:
                new = _NOWHERE
            old = file[here]
            if new != old:
                file[here] = new
                bit = 1 << here
                if old >= 0:
                    left = files[old] ^ bit
                    files[old] = left
                    if not left:
                        self._full ^= 1 << old
                if new >= 0:
                    there = files[new]
                    if not there:
                        self._full |= 1 << new
                    files[new] = there | bit

    # The same block in several link domains.

    def find_span(self, order: int, count: int, *, looped: bool, empty: bool = False) -> list[int]:
        """The slots of the same block in `count` link domains, in routing order; or none.

        looped: they must follow one another on the loop. empty: as if nothing was taken.
        """
        places = len(self.domains)
        if places < count:
            return []
        free = _bits(self._owned) if empty else _bits(self._free) & _bits(self._up)
        if not looped:
            found = _spans.in_any(free, places, order, count)
            return [place * DOMAIN + found[1] for place in found[0]] if found else []
        run = _spans.in_loop(free, places, self._run_starts(count), order, count)
        return [(run[0] + i) % places * DOMAIN + run[1] for i in range(count)] if run else []

    def _run_starts(self, count: int) -> int:
        """All bits of the places where `count` link domains of the cluster's loop begin."""
        starts = self._starts.get(count)
        if starts is None:
            loop = self.cluster_domains
            starts = 0
            length = 0  # of the run of neighbours that begins here; two rounds close the loop
            for turn in reversed(range(2 * len(self.domains))):
                place = turn % len(self.domains)
                domain = self.domains[place]
                length = length + 1 if (domain + 1) % loop in self.place else 1
                if turn < len(self.domains) and length >= count and (count < loop or not domain):
                    starts |= (1 << DOMAIN) - 1 << place * DOMAIN
            self._starts[count] = starts
        return starts

    # Slow paths.

    def owns(self, domain: int, mask: int) -> bool:
        """Are any of these devices of a link domain of the cluster this allocation's?"""
        half = self.place.get(domain, -1) * 2
        return half >= 0 and bool((self._owned[half] | self._owned[half + 1] << HALF) & mask)

    def holds(self, slots: Sequence[int], order: int) -> bool:
        """Are these blocks the allocation's own?"""
        return self._all(self._owned, slots, order)

    def has_free(self, slots: Sequence[int], order: int, *, drained_too: bool = False) -> bool:
        """Are these blocks free?"""
        return self._all(self._free, slots, order) and (
            drained_too or self._all(self._up, slots, order)
        )

    @staticmethod
    def _all(masks: array[int], slots: Sequence[int], order: int) -> bool:
        block = (1 << (1 << order)) - 1
        return all(
            (masks[half] | masks[half + 1] << HALF) >> slot % DOMAIN & block == block
            for slot in slots
            for half in (slot // DOMAIN * 2,)
        )

    def set_up(self, domain: int, mask: int, *, up: bool) -> None:
        """Drain or resume the devices `mask` of a link domain of the cluster."""
        half = self.place[domain] * 2
        for here, part in ((half, mask & FULL), (half + 1, mask >> HALF)):
            was = self._up[here]
            now = was | part & self._owned[here] if up else was & ~part
            self._up[here] = now
            self._count[here] += CRIPPLED * ((was == FULL) - (now == FULL))
        self._refile(half)

    def largest(self) -> int:
        """The order of the largest block in one link domain that is free; -1 for none."""
        return next((k for k in reversed(range(ORDERS + 1)) if self.find(k) >= 0), -1)

    def largest_ever(self) -> int:
        """The order of the largest block in one link domain if nothing was taken; -1 for none."""
        halves = self._owned
        pairs = zip(halves[::2], halves[1::2], strict=True)
        if any(low == FULL == high for low, high in pairs):
            return ORDERS
        return max((fits(mask)[6] for mask in halves if mask), default=-1)

    @property
    def free(self) -> int:
        """Devices that are neither taken nor drained."""
        return (_bits(self._free) & _bits(self._up)).bit_count()

    @property
    def size(self) -> int:
        """Devices."""
        return _bits(self._owned).bit_count()


def _bits(masks: array[int]) -> int:
    """All masks as one integer, the first lowest."""
    if sys.byteorder == "big":
        masks = array("I", masks)
        masks.byteswap()
    return int.from_bytes(masks.tobytes(), "little")
