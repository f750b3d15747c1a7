"""The free devices of one allocation, filed so that a place is found without a search.

Free devices are masks, one for each quarter of a link domain (16 devices). Halves are filed by how
much harm one more partition does there (`_tables.FILES`) and by their largest hole. The files that
are not empty are the bits of one integer, the best file highest. Halves stand in rows of `ROW`. For
each file there is an integer of the rows in which it has halves, the first row highest, and for
each row and file an integer of its halves in the same order. The place for a block is therefore the
highest bit among the files whose holes are large enough, and the length of an integer gives its
highest bit.

Devices are numbered by slot: 64 times the place of the link domain in this pool, plus the offset.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

from podwright.placement._shape_rules import Shape
from podwright.placement._spans import DOMAIN, Spans, bits
from podwright.placement._spot import ROW, ROW_BIT, Spot
from podwright.placement._tables import (
    BEST_HOLES,
    BUDDY_SAME_FROM,
    CRIPPLED,
    FILE_COUNT,
    FILES,
    HALF_ORDER,
    JOINED,
    LARGEST_HOLES,
    NO_FIT,
    NOT_FILED,
    QUARTER,
    QUARTER_FULL,
    TAKE,
    WHOLE_ORDER,
)
from podwright.placement._values import Block, Placement

_BIT = [1 << file for file in range(FILE_COUNT)]
#: By order: the files whose halves take a block of that order, as bits. The last entry has the
#: halves of link domains that are wholly free.
_TAKES = [sum(_BIT[file] for file in files) for files in TAKE] + [_BIT[FILES[0][0][HALF_ORDER + 1]]]
#: How many halves are tried for neighbours before all of them are examined.
_TRIES = 32


class Pool:
    """Link domains of one allocation, or parts of them. Changed in place.

    owned: by link domain of the cluster, the mask of the devices that belong to this allocation.
    looped: whether link domains are joined to a loop. domains: the link domains of the pool, in
    order; place is the inverse. size, allocated: numbers of devices. index: the index that owns the
    pool. The index maintains allocated, known (places by shape and first block) and holders (by
    slot, the place that begins there).
    """

    __slots__ = (
        "_count",
        "_down",
        "_file",
        "_files",
        "_free",
        "_full",
        "_idle",
        "_idle_count",
        "_largest_ever",
        "_owned",
        "_spans",
        "allocated",
        "domains",
        "holders",
        "index",
        "known",
        "name",
        "place",
        "rows",
        "size",
    )  # fmt: skip

    def __init__(self, index: object, name: str, owned: Sequence[int], *, looped: bool) -> None:
        self.index = index
        self.name = name
        self.domains = [domain for domain, mask in enumerate(owned) if mask]
        self.place = {domain: i for i, domain in enumerate(self.domains)}
        shifts = range(0, DOMAIN, QUARTER)
        quarters = array(
            "H", [owned[d] >> shift & QUARTER_FULL for d in self.domains for shift in shifts]
        )
        self._owned = quarters
        self._free = quarters[:]  # neither taken nor drained
        self._down: dict[int, int] = {}  # quarter -> its drained devices, where it has any
        self._idle: dict[int, int] = {}  # of the drained ones, those that are not taken
        self._idle_count = 0
        halves = range(len(quarters) // 2)
        self._count = [0 if self._is_ours(half) else CRIPPLED for half in halves]
        self._file = [NOT_FILED for _ in halves]
        #: By row and file: the halves in it. Bits beyond the last half are in no file.
        self.rows = [[0] * FILE_COUNT for _ in range(0, len(halves), ROW)]
        for half in halves:
            self.rows[half // ROW][NOT_FILED] |= ROW_BIT[half % ROW]
        #: By file: the rows in which it has halves.
        self._files = [0] * FILE_COUNT
        self._files[NOT_FILED] = (1 << len(self.rows)) - 1
        self._full = _BIT[NOT_FILED]  # the files that are not empty
        for half in halves:
            self._refile(half)
        self._spans = Spans(self.domains, len(owned) if looped else 0)
        self._largest_ever = self.largest()
        self.size = bits(quarters).bit_count()
        self.allocated = 0
        self.known: dict[Shape, list[Place | None]] = {}
        self.holders: list[Place | None] = [None] * (DOMAIN * len(self.domains))

    # One block in one link domain: this is the hot path.

    def find(self, order: int) -> int:
        """Return the best slot for a block of 2**order devices, or -1."""
        usable_files = self._full & _TAKES[order]
        if not usable_files:
            return -1
        file = usable_files.bit_length() - 1
        rows = self.rows
        row = len(rows) - self._files[file].bit_length()
        half = row * ROW + ROW - rows[row][file].bit_length()
        if order >= HALF_ORDER:
            return half << 5
        quarter = half + half
        best = BEST_HOLES[order]
        low, high = best[self._free[quarter]], best[self._free[quarter + 1]]
        return half << 5 | low & 15 if low <= high else half << 5 | 16 | high & 15

    def turn(self, spot: Spot, step: int) -> None:
        """Take a free block (`step` 1), or give a taken one back (`step` -1)."""
        bits, quarter, half, free = spot.bits, spot.quarter, spot.half, self._free
        if not bits:
            self._turn_halves(spot, step)
            return
        if quarter in self._down:
            mask = self._turn_drained(quarter, bits, step)
        else:
            mask = free[quarter] ^ bits
            free[quarter] = mask
        count, file, row = self._count, self._file, spot.row
        own_count = count[half] + step
        count[half] = own_count
        # The following lines repeat _refile inline, which is all that most placements need.
        buddy = spot.buddy
        hole = JOINED[LARGEST_HOLES[mask]][LARGEST_HOLES[free[spot.other_quarter]]]
        new = FILES[own_count][count[buddy]][hole]
        old = file[half]
        file[half] = new
        bit = spot.bit
        left = row[old] ^ bit
        row[old] = left
        if not left:
            self._empty(old, half)
        target = row[new]
        if not target:
            self._fill(new, half)
        row[new] = target | bit
        if own_count <= BUDDY_SAME_FROM and file[buddy]:
            self._refile(buddy)

    def turn_rest(self, place: Place, step: int) -> None:
        """Take or give back the other blocks of a place, as `turn` does."""
        for spot in place.rest:
            self.turn(spot, step)

    def _turn_halves(self, spot: Spot, step: int) -> None:
        """Take or give back a block that is one half or two."""
        free, drained_by_quarter, quarter, half = self._free, self._down, spot.quarter, spot.half
        last = quarter + 2
        if spot.order == WHOLE_ORDER:
            last += 2
            self._count[half + 1] += step
        self._count[half] += step
        for each in range(quarter, last):
            if each in drained_by_quarter:
                self._turn_drained(each, QUARTER_FULL, step)
            else:
                free[each] ^= QUARTER_FULL
        self._refile(half)
        self._refile(spot.buddy)

    def _turn_drained(self, quarter: int, bits: int, step: int) -> int:
        """Take or give back devices of a quarter with drained ones.

        Return its free devices then.
        """
        free, drained = self._free[quarter], self._down[quarter]
        if step > 0:
            free &= ~bits
            self._idle[quarter] &= ~bits
        else:
            free |= bits & ~drained
            self._idle[quarter] |= bits & drained
        self._idle_count -= step * (bits & drained).bit_count()
        self._free[quarter] = free
        return free

    def _refile(self, half: int) -> None:
        """File a half anew after a change of its devices, its count or its neighbour's count."""
        free, count, quarter = self._free, self._count, half + half
        hole = JOINED[LARGEST_HOLES[free[quarter]]][LARGEST_HOLES[free[quarter + 1]]]
        new = FILES[count[half]][count[half ^ 1]][hole]
        old = self._file[half]
        if new == old:
            return
        self._file[half] = new
        row, bit = self.rows[half // ROW], ROW_BIT[half % ROW]
        row[old] ^= bit
        if not row[old]:
            self._empty(old, half)
        if not row[new]:
            self._fill(new, half)
        row[new] |= bit

    def _empty(self, file: int, half: int) -> None:
        """Note that the row of this half has no half left in a file."""
        left = self._files[file] ^ 1 << len(self.rows) - 1 - half // ROW
        self._files[file] = left
        if not left:
            self._full ^= _BIT[file]

    def _fill(self, file: int, half: int) -> None:
        """Note that this half is the first of its row in a file."""
        self._full |= _BIT[file]
        self._files[file] |= 1 << len(self.rows) - 1 - half // ROW

    # The same block in several link domains.

    def find_span(self, order: int, count: int) -> list[int]:
        """Return the slots of one block in `count` link domains, in routing order, or none."""
        if count == 2 and order < HALF_ORDER:
            slots = self._find_pair(order)
            if slots:
                return slots
        return self._spans.find(self._free, order, count)

    def _find_pair(self, order: int) -> list[int]:
        """Do `find_span` for two neighbours and small blocks, in the best few halves only."""
        free, best, pairs = self._free, BEST_HOLES[order], self._spans.pairs
        usable_files, tries = self._full & _TAKES[order], _TRIES
        while usable_files:
            file = usable_files.bit_length() - 1
            usable_files ^= _BIT[file]
            for half in self._halves(file):
                for pair, other in pairs[half >> 1]:
                    for quarter in (2 * (half & 1), 2 * (half & 1) + 1):
                        hole = best[free[4 * pair + quarter] & free[4 * other + quarter]]
                        if hole != NO_FIT:
                            offset = quarter * QUARTER + (hole & 15)
                            return [pair * DOMAIN + offset, other * DOMAIN + offset]
                tries -= 1
                if not tries:
                    return []
        return []

    def _halves(self, file: int) -> Iterator[int]:
        """Yield the halves in a file, in order."""
        for row, files in enumerate(self.rows):
            halves = files[file]
            while halves:
                bit_count = halves.bit_length()
                halves ^= 1 << bit_count - 1
                yield row * ROW + ROW - bit_count

    def largest(self, count: int = 1) -> int:
        """Return the order of the largest free block of `count` link domains; -1 for none."""
        if count > 1:
            return self._spans.largest(self._free, count)
        order = WHOLE_ORDER
        while order >= 0 and not self._full & _TAKES[order]:
            order -= 1
        return order

    def largest_ever(self, count: int = 1) -> int:
        """Return what `largest` would return if nothing were taken or drained."""
        return self._spans.largest(self._owned, count) if count > 1 else self._largest_ever

    # Slow paths.

    def owns(self, domain: int, mask: int) -> bool:
        """Return whether any of these devices of a link domain belongs to this allocation."""
        place = self.place.get(domain)
        return place is not None and bool(_domain(self._owned, place) & mask)

    def slots(self, blocks: Sequence[Block]) -> list[int]:
        """Return the slots of equal blocks; empty unless all are wholly in this allocation."""
        if any(domain not in self.place for domain, _, _ in blocks):
            return []
        slots = [self.place[domain] * DOMAIN + offset for domain, offset, _ in blocks]
        return slots if self._all(self._owned, slots, blocks[0].size.bit_length() - 1) else []

    def has_free(self, slots: Sequence[int], order: int, *, drained_too: bool = False) -> bool:
        """Return whether these blocks are free."""
        idle = self._idle if drained_too else {}
        return self._all(self._free, slots, order, idle)

    @staticmethod
    def _all(
        masks: array[int], slots: Sequence[int], order: int, more: Mapping[int, int] = {}
    ) -> bool:
        block = (1 << (1 << order)) - 1
        return all(
            _domain(masks, slot // DOMAIN, more) >> slot % DOMAIN & block == block for slot in slots
        )

    def set_up(self, domain: int, mask: int, *, up: bool) -> None:
        """Drain or resume the devices `mask` of a link domain of the cluster."""
        first = self.place[domain] * 4
        for half in (first >> 1, (first >> 1) + 1):
            was_ours = self._is_ours(half)
            for quarter in (2 * half, 2 * half + 1):
                part = mask >> (quarter - first) * QUARTER & self._owned[quarter]
                drained = self._down.pop(quarter, 0)
                idle = self._idle.pop(quarter, 0)
                untaken = self._free[quarter] | idle
                drained = drained & ~part if up else drained | part
                self._free[quarter] = untaken & ~drained
                if drained:
                    self._down[quarter] = drained
                    self._idle[quarter] = untaken & drained
                self._idle_count += (untaken & drained).bit_count() - idle.bit_count()
            self._count[half] += CRIPPLED * (was_ours - self._is_ours(half))
        self._refile(first >> 1)
        self._refile((first >> 1) + 1)

    def _is_ours(self, half: int) -> bool:
        """Return whether a half belongs wholly to this allocation and has no drained device."""
        both = (2 * half, 2 * half + 1)
        return all(self._owned[q] == QUARTER_FULL and q not in self._down for q in both)

    @property
    def free(self) -> int:
        """The number of devices that are neither taken nor drained."""
        return self.size - self.allocated - self._idle_count


def _domain(masks: array[int], place: int, more: Mapping[int, int] = {}) -> int:
    """Return the mask of a whole link domain. more: further devices, by quarter."""
    quarters = range(4 * place, 4 * place + 4)
    return sum(
        (masks[quarter] | more.get(quarter, 0)) << quarter % 4 * QUARTER for quarter in quarters
    )


class Place(Spot):
    """A placement and its blocks in its pool.

    The place itself is the first; `rest` has the others.
    """

    __slots__ = ("placement", "pool", "rest", "size")

    def __init__(self, placement: Placement, pool: Pool, slots: Sequence[int], order: int) -> None:
        super().__init__(slots[0], order, pool.rows)
        self.placement = placement
        object.__setattr__(placement, "place", self)
        self.pool = pool
        self.size = len(slots) << order
        self.rest = tuple(Spot(slot, order, pool.rows) for slot in slots[1:])

    @property
    def slots(self) -> list[int]:
        """The slots at which the blocks begin."""
        return [self.slot, *(spot.slot for spot in self.rest)]
