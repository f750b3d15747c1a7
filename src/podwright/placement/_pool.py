"""The free devices of one allocation, filed so that a place is found without looking around.

Free devices are masks, one for each quarter of a link domain (16 devices). Halves are filed
under how much harm one more partition does there (`_fits.RANKS`) and their largest hole. All
files that are not empty are the bits of one integer, and so are the halves in a file: the
place for a block is the lowest bit among the files whose holes are large enough. Devices are
numbered by slot: 64 times the place of the link domain in this pool, plus the offset.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from podwright.placement import _spans
from podwright.placement._fits import (
    CRIPPLED,
    HOLE,
    KNOWN,
    QUARTER,
    QUARTER_FULL,
    QUARTER_ORDERS,
    RANK_COUNT,
    RANKS,
    fits,
)
from podwright.placement._values import Placement

DOMAIN = 4 * QUARTER
#: The order of half a link domain and of a whole one.
_HALF, _WHOLE = QUARTER_ORDERS, QUARTER_ORDERS + 1
_HOLES = _HALF + 2
#: The largest hole of a half, by those of its quarters (0 for none, else its order plus one):
#: two wholly free quarters are one hole.
_JOINED = [[max(a, b) + (a == b == QUARTER_ORDERS) for b in range(_HOLES)] for a in range(_HOLES)]
#: By order: a block at offset 0 of a quarter.
_BLOCK = [(1 << (1 << order)) - 1 for order in range(QUARTER_ORDERS)]
_FILES = RANK_COUNT * 8
_BIT = [1 << file for file in range(_FILES)]
#: By order: the files whose largest hole takes a block of that order.
_TAKES = [
    sum(_BIT[rank * 8 + hole] for rank in range(RANK_COUNT) for hole in range(order + 1, _HOLES))
    for order in range(_HALF + 1)
]
#: Where both halves of the link domains are that are wholly free.
_WHOLE_FILE = RANKS[0] + _HALF + 1


class Place:
    """A placement, and where in its pool it lies: blocks of 2**order devices.

    slot: of the first block; rest: of the others. No tuple, since reading one by name is slower.
    """

    __slots__ = ("order", "placement", "pool", "rest", "slot")

    def __init__(self, placement: Placement, pool: Pool, slots: Sequence[int], order: int) -> None:
        self.placement = placement
        self.pool = pool
        self.slot = slots[0]
        self.rest = tuple(slots[1:])
        self.order = order

    @property
    def slots(self) -> tuple[int, ...]:
        """Of all blocks."""
        return (self.slot, *self.rest)


class Pool:
    """Link domains, or parts of them, of one allocation. Changed in place.

    owned: by link domain of the cluster, the mask of the devices that are this allocation's.
    domains: those link domains, place by place; place is its inverse. known: the owner's memory.
    largest_ever: the order of the largest block in one link domain, were nothing taken.
    """

    __slots__ = (
        "_count", "_file", "_files", "_fits", "_free", "_full", "_hole", "_owned", "_starts", "_up",
        "cluster_domains", "domains", "known", "largest_ever", "name", "place",
    )  # fmt: skip

    def __init__(self, name: str, owned: Sequence[int]) -> None:
        self.name = name
        self.cluster_domains = len(owned)
        self.domains = [domain for domain, mask in enumerate(owned) if mask]
        self.place = {domain: i for i, domain in enumerate(self.domains)}
        shifts = range(0, DOMAIN, QUARTER)
        quarters = [owned[d] >> shift & QUARTER_FULL for d in self.domains for shift in shifts]
        self._owned = tuple(quarters)
        self._free = list(quarters)  # not taken
        self._up = list(quarters)  # not drained
        self._fits = [fits(mask) for mask in quarters]
        halves = range(len(quarters) // 2)
        self._count = [0 if self._can_be_whole(half) else CRIPPLED for half in halves]
        self._hole = [0 for _ in halves]
        self._file = [0 for _ in halves]  # file 0 takes those without a hole
        self._files = [(1 << len(halves)) - 1] + [0] * (_FILES - 1)
        self._full = _BIT[0]  # the files that are not empty
        for half in halves:
            self._set_hole(half)
        for half in halves:
            self._refile(half)
        self.largest_ever = self.largest()
        self._starts: dict[int, int] = {}
        self.known: dict[int, Place] = {}

    # One block in one link domain: the hot path.

    def find(self, order: int) -> int:
        """The best slot for a block of 2**order devices, or -1."""
        if order <= _HALF:
            full = self._full & _TAKES[order]
            if not full:
                return -1
            files = self._files[(full & -full).bit_length() - 1]
            half = (files & -files).bit_length() - 1
            if order == _HALF:
                return half << 5
            low, high = self._fits[2 * half][order], self._fits[2 * half + 1][order]
            return half << 5 | low & 15 if low <= high else half << 5 | 16 | high & 15
        whole = self._files[_WHOLE_FILE]
        return (whole & -whole).bit_length() - 1 << 5 if whole else -1

    def turn(self, slot: int, order: int, step: int) -> None:
        """Take (`step` 1) a block that is free, or give back (-1) one that was taken as such."""
        half, quarter, found = slot >> 5, slot >> 4, self._fits
        if order < QUARTER_ORDERS:
            mask = self._free[quarter] ^ _BLOCK[order] << (slot & 15)
            self._free[quarter] = mask
            mask &= self._up[quarter]
            here = found[quarter] = KNOWN[mask] or fits(mask)
            self._hole[half] = _JOINED[here[HOLE]][found[quarter ^ 1][HOLE]]
        else:
            for each in range(quarter, quarter + (1 << order - 4)):
                mask = self._free[each] ^ QUARTER_FULL
                self._free[each] = mask
                mask &= self._up[each]
                found[each] = KNOWN[mask] or fits(mask)
                self._hole[each >> 1] = _JOINED[found[each][HOLE]][found[each ^ 1][HOLE]]
        self._count[half] += step
        if order == _WHOLE:
            self._count[half + 1] += step
        self._refile(half)

    def _refile(self, half: int) -> None:
        """File a half and the one beside it anew, after holes or counts changed.

        Written out twice: this is most of the work of a placement.
        """
        beside = half ^ 1
        file, files = self._file, self._files
        mine, theirs = self._count[half], self._count[beside]
        old, hole = file[half], self._hole[half]
        new = RANKS[mine << 6 | theirs] | hole if hole else 0
        if new != old:
            file[half] = new
            bit = 1 << half
            left = files[old] = files[old] ^ bit
            if not left:
                self._full ^= _BIT[old]
            there = files[new]
            if not there:
                self._full |= _BIT[new]
            files[new] = there | bit
        old, hole = file[beside], self._hole[beside]
        new = RANKS[theirs << 6 | mine] | hole if hole else 0
        if new != old:
            file[beside] = new
            bit = 1 << beside
            left = files[old] = files[old] ^ bit
            if not left:
                self._full ^= _BIT[old]
            there = files[new]
            if not there:
                self._full |= _BIT[new]
            files[new] = there | bit

    def _set_hole(self, half: int) -> None:
        low, high = self._fits[2 * half], self._fits[2 * half + 1]
        self._hole[half] = _JOINED[low[HOLE]][high[HOLE]]

    def _can_be_whole(self, half: int) -> bool:
        """Is all of a half this allocation's, and none of it drained?"""
        return self._up[2 * half] == QUARTER_FULL == self._up[2 * half + 1]

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
        place = self.place.get(domain)
        return place is not None and bool(_domain(self._owned, place) & mask)

    def holds(self, slots: Sequence[int], order: int) -> bool:
        """Are these blocks the allocation's own?"""
        return self._all(self._owned, slots, order)

    def has_free(self, slots: Sequence[int], order: int, *, drained_too: bool = False) -> bool:
        """Are these blocks free?"""
        return self._all(self._free, slots, order) and (
            drained_too or self._all(self._up, slots, order)
        )

    @staticmethod
    def _all(masks: Sequence[int], slots: Sequence[int], order: int) -> bool:
        block = (1 << (1 << order)) - 1
        return all(
            _domain(masks, slot // DOMAIN) >> slot % DOMAIN & block == block for slot in slots
        )

    def set_up(self, domain: int, mask: int, *, up: bool) -> None:
        """Drain or resume the devices `mask` of a link domain of the cluster."""
        first = self.place[domain] * 4
        for half in (first // 2, first // 2 + 1):
            was = self._can_be_whole(half)
            for each in (2 * half, 2 * half + 1):
                part = mask >> (each - first) * QUARTER & self._owned[each]
                self._up[each] = self._up[each] | part if up else self._up[each] & ~part
                self._fits[each] = fits(self._up[each] & self._free[each])
            self._set_hole(half)
            self._count[half] += CRIPPLED * (was - self._can_be_whole(half))
        self._refile(first // 2)
        self._refile(first // 2 + 1)

    def largest(self) -> int:
        """The order of the largest block in one link domain that is free; -1 for none."""
        if self._files[_WHOLE_FILE]:
            return _WHOLE
        return next((k for k in range(_HALF, -1, -1) if self._full & _TAKES[k]), -1)

    @property
    def free(self) -> int:
        """Devices that are neither taken nor drained."""
        return (_bits(self._free) & _bits(self._up)).bit_count()

    @property
    def size(self) -> int:
        """Devices."""
        return _bits(self._owned).bit_count()


def _domain(masks: Sequence[int], place: int) -> int:
    """The mask of a whole link domain."""
    return sum(masks[place * 4 + i] << i * QUARTER for i in range(4))


def _bits(masks: Sequence[int]) -> int:
    """All masks as one integer, the first lowest."""
    words = array("H", masks)
    if sys.byteorder == "big":
        words.byteswap()
    return int.from_bytes(words.tobytes(), "little")
