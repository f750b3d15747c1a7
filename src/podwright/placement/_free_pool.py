"""The free devices of one allocation, filed so that a place is found without a search.

Free devices are masks, one for each quarter of a link domain (16 devices). Halves are filed by how
much harm one more partition does there (`_tables.FILES`) and by their largest hole. The files that
are not empty are the bits of one integer, the best file highest. Halves stand in rows of
`HALVES_PER_ROW`. For each file there is an integer of the rows in which it has halves, the first
row highest, and for each row and file an integer of its halves in the same order. The place for a
block is therefore the highest bit among the files whose holes are large enough, and the length of
an integer gives its highest bit.

Devices are numbered by slot: 64 times the place of the link domain in this pool, plus the offset.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

from podwright.placement._aligned_block_search import DOMAIN, Spans, bits
from podwright.placement._hole_tables import (
    BEST_HOLES,
    BUDDY_SAME_FROM,
    CRIPPLED_COUNT,
    FILE_COUNT,
    FILES,
    FILES_BY_ORDER,
    HALF_ORDER,
    JOINED,
    LARGEST_HOLES,
    NO_FIT,
    NOT_FILED,
    QUARTER,
    QUARTER_FULL,
    WHOLE_ORDER,
)
from podwright.placement._placement_types import Block, Placement
from podwright.placement._pool_block import HALF_BITS, HALVES_PER_ROW, Spot
from podwright.placement._shape_rules import Shape

_BIT_BY_FILE = [1 << file for file in range(FILE_COUNT)]
#: By order: the files whose halves take a block of that order, as bits. The last entry has the
#: halves of link domains that are wholly free.
_FILES_TAKING_ORDER = [sum(_BIT_BY_FILE[file] for file in files) for files in FILES_BY_ORDER] + [
    _BIT_BY_FILE[FILES[0][0][HALF_ORDER + 1]]
]
#: How many halves are tried for neighbours before all of them are examined.
_NEIGHBOUR_TRIES = 32


class Pool:
    """Link domains of one allocation, or parts of them. Changed in place.

    owned_masks: by link domain of the cluster, the mask of the devices that belong to this
    allocation. looped: whether link domains are joined to a loop. domains: the link domains of the
    pool, in order; place is the inverse. size, allocated: numbers of devices. index: the index that
    owns the pool. The index maintains allocated, known (places by shape and first block) and
    holders (by slot, the place that begins there).
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

    def __init__(
        self, index: object, allocation_name: str, owned_masks: Sequence[int], *, looped: bool
    ) -> None:
        self.index = index
        self.name = allocation_name
        self.domains = [domain for domain, mask in enumerate(owned_masks) if mask]
        self.place = {domain: position for position, domain in enumerate(self.domains)}
        shifts = range(0, DOMAIN, QUARTER)
        quarter_masks = array(
            "H",
            [
                owned_masks[owned_domain] >> shift & QUARTER_FULL
                for owned_domain in self.domains
                for shift in shifts
            ],
        )
        self._owned = quarter_masks
        self._free = quarter_masks[:]  # neither taken nor drained
        self._down: dict[int, int] = {}  # quarter -> its drained devices, where it has any
        self._idle: dict[int, int] = {}  # of the drained ones, those that are not taken
        self._idle_count = 0
        half_indices = range(len(quarter_masks) // 2)
        self._count = [
            0 if self._is_wholly_owned_half(half) else CRIPPLED_COUNT for half in half_indices
        ]
        self._file = [NOT_FILED for _ in half_indices]
        #: By row and file: the halves in it. Bits beyond the last half are in no file.
        self.rows = [[0] * FILE_COUNT for _ in range(0, len(half_indices), HALVES_PER_ROW)]
        for half in half_indices:
            self.rows[half // HALVES_PER_ROW][NOT_FILED] |= HALF_BITS[half % HALVES_PER_ROW]
        #: By file: the rows in which it has halves.
        self._files = [0] * FILE_COUNT
        self._files[NOT_FILED] = (1 << len(self.rows)) - 1
        self._full = _BIT_BY_FILE[NOT_FILED]  # the files that are not empty
        for half in half_indices:
            self._refile_half(half)
        self._spans = Spans(self.domains, len(owned_masks) if looped else 0)
        self._largest_ever = self.largest()
        self.size = bits(quarter_masks).bit_count()
        self.allocated = 0
        self.known: dict[Shape, list[Place | None]] = {}
        self.holders: list[Place | None] = [None] * (DOMAIN * len(self.domains))

    # One block in one link domain: this is the hot path.

    def find(self, order: int) -> int:
        """Return the best slot for a block of 2**order devices, or -1."""
        usable_files = self._full & _FILES_TAKING_ORDER[order]
        if not usable_files:
            return -1
        best_file = usable_files.bit_length() - 1
        rows = self.rows
        row_index = len(rows) - self._files[best_file].bit_length()
        half_index = (
            row_index * HALVES_PER_ROW + HALVES_PER_ROW - rows[row_index][best_file].bit_length()
        )
        if order >= HALF_ORDER:
            return half_index << 5
        quarter_index = half_index + half_index
        best_holes = BEST_HOLES[order]
        low_hole, high_hole = (
            best_holes[self._free[quarter_index]],
            best_holes[self._free[quarter_index + 1]],
        )
        return (
            half_index << 5 | low_hole & 15
            if low_hole <= high_hole
            else half_index << 5 | 16 | high_hole & 15
        )

    def turn(self, spot: Spot, direction: int) -> None:
        """Take a free block (`direction` 1), or give a taken one back (`direction` -1)."""
        block_bits, quarter_index, half_index, free_masks = (
            spot.bits,
            spot.quarter,
            spot.half,
            self._free,
        )
        if not block_bits:
            self._turn_halves(spot, direction)
            return
        if quarter_index in self._down:
            free_mask = self._turn_drained(quarter_index, block_bits, direction)
        else:
            free_mask = free_masks[quarter_index] ^ block_bits
            free_masks[quarter_index] = free_mask
        half_counts, half_files, row_files = self._count, self._file, spot.row
        own_count = half_counts[half_index] + direction
        half_counts[half_index] = own_count
        # The following lines repeat _refile_half inline, which is all that most placements need.
        buddy_index = spot.buddy
        largest_hole = JOINED[LARGEST_HOLES[free_mask]][
            LARGEST_HOLES[free_masks[spot.other_quarter]]
        ]
        new_file = FILES[own_count][half_counts[buddy_index]][largest_hole]
        old_file = half_files[half_index]
        half_files[half_index] = new_file
        half_bit = spot.bit
        remaining_halves = row_files[old_file] ^ half_bit
        row_files[old_file] = remaining_halves
        if not remaining_halves:
            self._clear_row_bit(old_file, half_index)
        file_halves = row_files[new_file]
        if not file_halves:
            self._set_row_bit(new_file, half_index)
        row_files[new_file] = file_halves | half_bit
        if own_count <= BUDDY_SAME_FROM and half_files[buddy_index]:
            self._refile_half(buddy_index)

    def turn_other_blocks(self, place: Place, direction: int) -> None:
        """Take or give back the other blocks of a place, as `turn` does."""
        for spot in place.rest:
            self.turn(spot, direction)

    def _turn_halves(self, spot: Spot, direction: int) -> None:
        """Take or give back a block that is one half or two."""
        free_masks, drained_by_quarter, quarter_index, half_index = (
            self._free,
            self._down,
            spot.quarter,
            spot.half,
        )
        end_quarter = quarter_index + 2
        if spot.order == WHOLE_ORDER:
            end_quarter += 2
            self._count[half_index + 1] += direction
        self._count[half_index] += direction
        for touched_quarter in range(quarter_index, end_quarter):
            if touched_quarter in drained_by_quarter:
                self._turn_drained(touched_quarter, QUARTER_FULL, direction)
            else:
                free_masks[touched_quarter] ^= QUARTER_FULL
        self._refile_half(half_index)
        self._refile_half(spot.buddy)

    def _turn_drained(self, quarter_index: int, block_bits: int, direction: int) -> int:
        """Take or give back devices of a quarter with drained ones.

        Return its free devices then.
        """
        free_mask, drained_mask = self._free[quarter_index], self._down[quarter_index]
        if direction > 0:
            free_mask &= ~block_bits
            self._idle[quarter_index] &= ~block_bits
        else:
            free_mask |= block_bits & ~drained_mask
            self._idle[quarter_index] |= block_bits & drained_mask
        self._idle_count -= direction * (block_bits & drained_mask).bit_count()
        self._free[quarter_index] = free_mask
        return free_mask

    def _refile_half(self, half_index: int) -> None:
        """File a half anew after a change of its devices, its count or its neighbour's count."""
        free_masks, half_counts, quarter_index = self._free, self._count, half_index + half_index
        largest_hole = JOINED[LARGEST_HOLES[free_masks[quarter_index]]][
            LARGEST_HOLES[free_masks[quarter_index + 1]]
        ]
        new_file = FILES[half_counts[half_index]][half_counts[half_index ^ 1]][largest_hole]
        old_file = self._file[half_index]
        if new_file == old_file:
            return
        self._file[half_index] = new_file
        row_files, half_bit = (
            self.rows[half_index // HALVES_PER_ROW],
            HALF_BITS[half_index % HALVES_PER_ROW],
        )
        row_files[old_file] ^= half_bit
        if not row_files[old_file]:
            self._clear_row_bit(old_file, half_index)
        if not row_files[new_file]:
            self._set_row_bit(new_file, half_index)
        row_files[new_file] |= half_bit

    def _clear_row_bit(self, file_number: int, half_index: int) -> None:
        """Note that the row of this half has no half left in a file."""
        rows = self._files[file_number] ^ 1 << len(self.rows) - 1 - half_index // HALVES_PER_ROW
        self._files[file_number] = rows
        if not rows:
            self._full ^= _BIT_BY_FILE[file_number]

    def _set_row_bit(self, file_number: int, half_index: int) -> None:
        """Note that this half is the first of its row in a file."""
        self._full |= _BIT_BY_FILE[file_number]
        self._files[file_number] |= 1 << len(self.rows) - 1 - half_index // HALVES_PER_ROW

    # The same block in several link domains.

    def find_span(self, order: int, domain_count: int) -> list[int]:
        """Return the slots of one block in so many link domains in routing order, or none."""
        if domain_count == 2 and order < HALF_ORDER:
            slots = self._find_small_pair(order)
            if slots:
                return slots
        return self._spans.find(self._free, order, domain_count)

    def _find_small_pair(self, order: int) -> list[int]:
        """Do `find_span` for two neighbours and small blocks, in the best few halves only."""
        free_masks, best_holes, neighbour_pairs = self._free, BEST_HOLES[order], self._spans.pairs
        usable_files, tries_left = self._full & _FILES_TAKING_ORDER[order], _NEIGHBOUR_TRIES
        while usable_files:
            best_file = usable_files.bit_length() - 1
            usable_files ^= _BIT_BY_FILE[best_file]
            for half in self._halves_in_file(best_file):
                for first_place, second_place in neighbour_pairs[half >> 1]:
                    for quarter in (2 * (half & 1), 2 * (half & 1) + 1):
                        best_hole = best_holes[
                            free_masks[4 * first_place + quarter]
                            & free_masks[4 * second_place + quarter]
                        ]
                        if best_hole != NO_FIT:
                            offset = quarter * QUARTER + (best_hole & 15)
                            return [first_place * DOMAIN + offset, second_place * DOMAIN + offset]
                tries_left -= 1
                if not tries_left:
                    return []
        return []

    def _halves_in_file(self, file_number: int) -> Iterator[int]:
        """Yield the halves in a file, in order."""
        for index, files in enumerate(self.rows):
            half_bits = files[file_number]
            while half_bits:
                highest_bit = half_bits.bit_length()
                half_bits ^= 1 << highest_bit - 1
                yield index * HALVES_PER_ROW + HALVES_PER_ROW - highest_bit

    def largest(self, count: int = 1) -> int:
        """Return the order of the largest free block of `count` link domains; -1 for none."""
        if count > 1:
            return self._spans.largest(self._free, count)
        order = WHOLE_ORDER
        while order >= 0 and not self._full & _FILES_TAKING_ORDER[order]:
            order -= 1
        return order

    def largest_ever(self, domain_count: int = 1) -> int:
        """Return what `largest` would return if nothing were taken or drained."""
        return (
            self._spans.largest(self._owned, domain_count)
            if domain_count > 1
            else self._largest_ever
        )

    # Slow paths.

    def owns(self, domain: int, mask: int) -> bool:
        """Return whether any of these devices of a link domain belongs to this allocation."""
        place = self.place.get(domain)
        return place is not None and bool(_domain_mask(self._owned, place) & mask)

    def slots(self, blocks: Sequence[Block]) -> list[int]:
        """Return the slots of equal blocks; empty unless all are wholly in this allocation."""
        if any(domain not in self.place for domain, _, _ in blocks):
            return []
        slots = [self.place[domain] * DOMAIN + offset for domain, offset, _ in blocks]
        return (
            slots
            if self._has_all_blocks(self._owned, slots, blocks[0].size.bit_length() - 1)
            else []
        )

    def has_free_blocks(
        self, slots: Sequence[int], order: int, *, drained_too: bool = False
    ) -> bool:
        """Return whether these blocks are free."""
        masks = self._idle if drained_too else {}
        return self._has_all_blocks(self._free, slots, order, masks)

    @staticmethod
    def _has_all_blocks(
        quarter_masks: array[int],
        slots: Sequence[int],
        order: int,
        extra_masks: Mapping[int, int] = {},
    ) -> bool:
        block_mask = (1 << (1 << order)) - 1
        if len(slots) == 1 and slots[0] % QUARTER + (1 << order) <= QUARTER:  # as of most blocks
            quarter, device = divmod(slots[0], QUARTER)
            quarter_mask = quarter_masks[quarter] | extra_masks.get(quarter, 0)
            return quarter_mask >> device & block_mask == block_mask
        return all(
            _domain_mask(quarter_masks, slot // DOMAIN, extra_masks) >> slot % DOMAIN & block_mask
            == block_mask
            for slot in slots
        )

    def set_up(self, domain: int, mask: int, *, up: bool) -> None:
        """Drain or resume the devices `mask` of a link domain of the cluster."""
        first_quarter = self.place[domain] * 4
        for half in (first_quarter >> 1, (first_quarter >> 1) + 1):
            was_ours = self._is_wholly_owned_half(half)
            for quarter in (2 * half, 2 * half + 1):
                changed_bits = mask >> (quarter - first_quarter) * QUARTER & self._owned[quarter]
                drained_mask = self._down.pop(quarter, 0)
                idle_mask = self._idle.pop(quarter, 0)
                untaken_mask = self._free[quarter] | idle_mask
                drained_mask = drained_mask & ~changed_bits if up else drained_mask | changed_bits
                self._free[quarter] = untaken_mask & ~drained_mask
                if drained_mask:
                    self._down[quarter] = drained_mask
                    self._idle[quarter] = untaken_mask & drained_mask
                self._idle_count += (
                    untaken_mask & drained_mask
                ).bit_count() - idle_mask.bit_count()
            self._count[half] += CRIPPLED_COUNT * (was_ours - self._is_wholly_owned_half(half))
        self._refile_half(first_quarter >> 1)
        self._refile_half((first_quarter >> 1) + 1)

    def _is_wholly_owned_half(self, half_index: int) -> bool:
        """Return whether a half belongs wholly to this allocation and has no drained device."""
        half_quarters = (2 * half_index, 2 * half_index + 1)
        return all(
            self._owned[quarter] == QUARTER_FULL and quarter not in self._down
            for quarter in half_quarters
        )

    @property
    def free(self) -> int:
        """The number of devices that are neither taken nor drained."""
        return self.size - self.allocated - self._idle_count


def _domain_mask(
    quarter_masks: array[int], domain_place: int, extra_masks: Mapping[int, int] = {}
) -> int:
    """Return the mask of a whole link domain. extra_masks: further devices, by quarter."""
    domain_quarters = range(4 * domain_place, 4 * domain_place + 4)
    return sum(
        (quarter_masks[quarter] | extra_masks.get(quarter, 0)) << quarter % 4 * QUARTER
        for quarter in domain_quarters
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
