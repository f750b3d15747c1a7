"""The free devices of one allocation, filed so that a place is found without looking around.

Free devices are masks, one for each quarter of a link domain (16 devices). Halves are filed
under how much harm one more partition does there (`_tables.FILES`) and their largest hole. All
files that are not empty are the bits of one integer, the best file highest. Halves stand in
rows of `ROW`: so are the rows in which a file has any, the first row highest, and so are its
halves in a row. The place for a block is the highest bit among the files whose holes are large
enough, and an integer's length tells its highest bit. Devices are numbered by slot: 64 times the
place of the link domain in this pool, plus the offset.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

from podwright.placement._shape_rules import Shape
from podwright.placement._spans import DOMAIN, Spans, bits
from podwright.placement._spot import ROW, ROW_BIT, Spot
from podwright.placement._tables import (
    BESIDE_SAME_FROM,
    BEST_HOLES,
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
#: By order: the files whose halves take a block of that order, as bits. The last has the halves
#: of link domains that are wholly free.
_TAKES = [sum(_BIT[file] for file in files) for files in TAKE] + [_BIT[FILES[0][0][HALF_ORDER + 1]]]
#: How many halves are tried for neighbours before all are looked at.
_TRIES = 32


class Pool:
    """Link domains, or parts of them, of one allocation. Changed in place.

    owned: by link domain of the cluster, the mask of the devices that are this allocation's.
    looped: link domains are joined to a loop. domains: those link domains, place by place; place
    is its inverse. size, taken: devices. index: whose pool it is; that keeps taken, known (places
    by shape and first block) and holders (by slot, the place that begins there).
    """

    __slots__ = (
        "_count", "_down", "_file", "_files", "_free", "_full", "_idle", "_idle_count",
        "_largest_ever", "_owned", "_spans", "domains", "holders", "index", "known", "name",
        "place", "rows", "size", "taken",
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
        self._down: dict[int, int] = {}  # by quarter that has any: its drained devices
        self._idle: dict[int, int] = {}  # of these, those not taken
        self._idle_count = 0
        halves = range(len(quarters) // 2)
        self._count = [0 if self._is_ours(half) else CRIPPLED for half in halves]
        self._file = [NOT_FILED for _ in halves]
        #: By row, by file: the halves in it. Those that there are not are in no file.
        self.rows = [[0] * FILE_COUNT for _ in range(0, len(halves), ROW)]
        for half in halves:
            self.rows[half // ROW][NOT_FILED] |= ROW_BIT[half % ROW]
        #: By file: the rows in which it has any.
        self._files = [0] * FILE_COUNT
        self._files[NOT_FILED] = (1 << len(self.rows)) - 1
        self._full = _BIT[NOT_FILED]  # the files that are not empty
        for half in halves:
            self._refile(half)
        self._spans = Spans(self.domains, len(owned) if looped else 0)
        self._largest_ever = self.largest()
        self.size = bits(quarters).bit_count()
        self.taken = 0
        self.known: dict[Shape, list[Place | None]] = {}
        self.holders: list[Place | None] = [None] * (DOMAIN * len(self.domains))

    # One block in one link domain: the hot path.

    def find(self, order: int) -> int:
        """The best slot for a block of 2**order devices, or -1."""
        full = self._full & _TAKES[order]
        if not full:
            return -1
        file = full.bit_length() - 1
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
        """Take (`step` 1) a block that is not taken, or give back (-1) one that is."""
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
        mine = count[half] + step
        count[half] = mine
        # What _refile does, written out: most placements need no more than this.
        beside = spot.beside
        hole = JOINED[LARGEST_HOLES[mask]][LARGEST_HOLES[free[spot.other_quarter]]]
        new = FILES[mine][count[beside]][hole]
        old = file[half]
        file[half] = new
        bit = spot.bit
        left = row[old] ^ bit
        row[old] = left
        if not left:
            self._empty(old, half)
        there = row[new]
        if not there:
            self._fill(new, half)
        row[new] = there | bit
        if mine <= BESIDE_SAME_FROM and file[beside]:
            self._refile(beside)

    def turn_rest(self, place: Place, step: int) -> None:
        """As `turn`, with the other blocks of a place."""
        for spot in place.rest:
            self.turn(spot, step)

    def _turn_halves(self, spot: Spot, step: int) -> None:
        """Take or give back a block of one half or two."""
        free, down, quarter, half = self._free, self._down, spot.quarter, spot.half
        last = quarter + 2
        if spot.order == WHOLE_ORDER:
            last += 2
            self._count[half + 1] += step
        self._count[half] += step
        for each in range(quarter, last):
            if each in down:
                self._turn_drained(each, QUARTER_FULL, step)
            else:
                free[each] ^= QUARTER_FULL
        self._refile(half)
        self._refile(spot.beside)

    def _turn_drained(self, quarter: int, bits: int, step: int) -> int:
        """Take or give back devices of a quarter with drained ones. Its free ones then."""
        free, down = self._free[quarter], self._down[quarter]
        if step > 0:
            free &= ~bits
            self._idle[quarter] &= ~bits
        else:
            free |= bits & ~down
            self._idle[quarter] |= bits & down
        self._idle_count -= step * (bits & down).bit_count()
        self._free[quarter] = free
        return free

    def _refile(self, half: int) -> None:
        """File a half anew, after its devices, its count or that beside it changed."""
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
        """No half of this one's row is left in a file."""
        left = self._files[file] ^ 1 << len(self.rows) - 1 - half // ROW
        self._files[file] = left
        if not left:
            self._full ^= _BIT[file]

    def _fill(self, file: int, half: int) -> None:
        """This half is the first of its row in a file."""
        self._full |= _BIT[file]
        self._files[file] |= 1 << len(self.rows) - 1 - half // ROW

    # The same block in several link domains.

    def find_span(self, order: int, count: int) -> list[int]:
        """The slots of the same block in `count` link domains, in routing order; or none."""
        if count == 2 and order < HALF_ORDER:
            slots = self._find_pair(order)
            if slots:
                return slots
        return self._spans.find(self._free, order, count)

    def _find_pair(self, order: int) -> list[int]:
        """As `find_span` for two neighbours and small blocks, in the few best halves alone."""
        free, best, pairs = self._free, BEST_HOLES[order], self._spans.pairs
        full, tries = self._full & _TAKES[order], _TRIES
        while full:
            file = full.bit_length() - 1
            full ^= _BIT[file]
            for half in self._halves(file):
                for one, other in pairs[half >> 1]:
                    for quarter in (2 * (half & 1), 2 * (half & 1) + 1):
                        hole = best[free[4 * one + quarter] & free[4 * other + quarter]]
                        if hole != NO_FIT:
                            offset = quarter * QUARTER + (hole & 15)
                            return [one * DOMAIN + offset, other * DOMAIN + offset]
                tries -= 1
                if not tries:
                    return []
        return []

    def _halves(self, file: int) -> Iterator[int]:
        """The halves in a file, the first first."""
        for row, files in enumerate(self.rows):
            halves = files[file]
            while halves:
                at = halves.bit_length()
                halves ^= 1 << at - 1
                yield row * ROW + ROW - at

    def largest(self, count: int = 1) -> int:
        """The order of the largest block that is free in `count` link domains; -1 for none."""
        if count > 1:
            return self._spans.largest(self._free, count)
        order = WHOLE_ORDER
        while order >= 0 and not self._full & _TAKES[order]:
            order -= 1
        return order

    def largest_ever(self, count: int = 1) -> int:
        """As `largest`, were nothing taken or drained."""
        return self._spans.largest(self._owned, count) if count > 1 else self._largest_ever

    # Slow paths.

    def owns(self, domain: int, mask: int) -> bool:
        """Are any of these devices of a link domain of the cluster this allocation's?"""
        place = self.place.get(domain)
        return place is not None and bool(_domain(self._owned, place) & mask)

    def slots(self, blocks: Sequence[Block]) -> list[int]:
        """The slots of blocks of one size; none if any of them is not all this allocation's."""
        if any(domain not in self.place for domain, _, _ in blocks):
            return []
        slots = [self.place[domain] * DOMAIN + offset for domain, offset, _ in blocks]
        return slots if self._all(self._owned, slots, blocks[0].size.bit_length() - 1) else []

    def has_free(self, slots: Sequence[int], order: int, *, drained_too: bool = False) -> bool:
        """Are these blocks free?"""
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
            was = self._is_ours(half)
            for quarter in (2 * half, 2 * half + 1):
                part = mask >> (quarter - first) * QUARTER & self._owned[quarter]
                down = self._down.pop(quarter, 0)
                idle = self._idle.pop(quarter, 0)
                untaken = self._free[quarter] | idle
                down = down & ~part if up else down | part
                self._free[quarter] = untaken & ~down
                if down:
                    self._down[quarter] = down
                    self._idle[quarter] = untaken & down
                self._idle_count += (untaken & down).bit_count() - idle.bit_count()
            self._count[half] += CRIPPLED * (was - self._is_ours(half))
        self._refile(first >> 1)
        self._refile((first >> 1) + 1)

    def _is_ours(self, half: int) -> bool:
        """Is all of a half this allocation's, and none of it drained?"""
        both = (2 * half, 2 * half + 1)
        return all(self._owned[q] == QUARTER_FULL and q not in self._down for q in both)

    @property
    def free(self) -> int:
        """Devices that are neither taken nor drained."""
        return self.size - self.taken - self._idle_count


def _domain(masks: array[int], place: int, more: Mapping[int, int] = {}) -> int:
    """The mask of a whole link domain. more: further devices, by quarter."""
    quarters = range(4 * place, 4 * place + 4)
    return sum((masks[at] | more.get(at, 0)) << at % 4 * QUARTER for at in quarters)


class Place(Spot):
    """A placement, and its blocks in its pool: itself the first, `rest` the others."""

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
        """Where the blocks begin."""
        return [self.slot, *(spot.slot for spot in self.rest)]
