"""Where blocks fit into a quarter of a link domain, and how much harm a new partition does there.

Both are needed on every placement, so they are tables that are made once. The first is over all
masks of the 16 devices of a quarter. It is made by joining tables of half the width, in about a
millisecond. The second is over the partition counts of the halves of a link domain.
"""

from __future__ import annotations

from collections.abc import Callable

QUARTER = 16
QUARTER_FULL = (1 << QUARTER) - 1
#: The order (power of two) of a quarter, a half and a whole link domain.
QUARTER_ORDER, HALF_ORDER, WHOLE_ORDER = 4, 5, 6
#: Added to the partition count of a half that can never be whole, because some of it is drained or
#: belongs to another allocation. Small partitions do least harm there.
CRIPPLED_COUNT = 16
#: From this number on, further partitions beside a half make no difference to it.
BUDDY_SAME_FROM = 2

NO_FIT = 255
_HALF_SAME_FROM = 7
_COUNT_TABLE_SIZE = 64  # the partitions in a half, plus CRIPPLED_COUNT, stay below this


_IDENTITY_TABLE = bytes(range(256))


def _lower(hole_code: int) -> bytes:
    """Return a bytes.translate table that turns every code into the lower of it and this one."""
    return _IDENTITY_TABLE[:hole_code] + bytes((hole_code,)) * (256 - hole_code)


def _higher_table(hole_code: int) -> bytes:
    return bytes((hole_code,)) * hole_code + _IDENTITY_TABLE[hole_code:]


def _join_half_tables(entry_table: bytes, pick_table: Callable[[int], bytes], shift: int) -> bytes:
    """Return the table over masks of twice the width, from the better of both parts' entries.

    shift: added to an entry of the upper part, unless that entry means "none".
    """
    return b"".join(
        entry_table.translate(pick_table(code + shift if code != NO_FIT else code))
        for code in entry_table
    )


def _best_holes(order: int) -> bytes:
    hole_table = bytes((NO_FIT, 0 if order == 0 else NO_FIT))
    for width_order in range(QUARTER_ORDER):
        hole_table = _join_half_tables(hole_table, _lower, 1 << width_order)[:-1]
        widest_order = width_order + 1
        hole_table += bytes((widest_order << 4 if widest_order >= order else NO_FIT,))
    return hole_table


def _largest_holes() -> bytes:
    hole_table = bytes((0, 1))
    for order in range(QUARTER_ORDER):
        hole_table = _join_half_tables(hole_table, _higher_table, 0)[:-1] + bytes((order + 2,))
    return hole_table


#: BEST_HOLES[order][mask of the free devices]: the smallest hole, the lowest such, that takes an
#: aligned block of 2**order devices: the hole's order times 16, plus its offset; 255 for none.
BEST_HOLES = [_best_holes(order) for order in range(QUARTER_ORDER + 1)]
#: LARGEST_HOLES[mask]: 0 for none, else the order of the largest hole, plus one. It is a list,
#: since it is read most often and lists are read faster than bytes.
LARGEST_HOLES = list(_largest_holes())
#: The largest hole of a half, by LARGEST_HOLES of its quarters. Two wholly free quarters are one
#: hole.
JOINED = [
    [max(a, b) + (a == b == QUARTER_ORDER + 1) for b in range(QUARTER_ORDER + 2)]
    for a in range(QUARTER_ORDER + 2)
]


def _partition_harm(half_count: int, buddy_count: int) -> float:
    """Return the harm of one more partition in a half with `half_count` partitions.

    buddy_count: partitions in the other half of the link domain. Partitions end in an unknown
    order. The more of them are in a block, the less likely it is to be whole soon, so one more does
    less harm: the chance falls by a factor with each. The factors, and the weight of a whole link
    domain against a half, are those that refused least in simulation; the optimum is flat.
    """
    half_harm = 0.5**half_count * (1 - 0.5) if half_count < _HALF_SAME_FROM else 0.0
    spoilt = half_count >= _HALF_SAME_FROM or buddy_count >= BUDDY_SAME_FROM
    domain_harm = 0.0 if spoilt else 0.55 ** (half_count + buddy_count) * (1 - 0.55)
    return half_harm + 1.5 * domain_harm


def _file_number_table() -> list[list[list[int]]]:
    half_limit, buddy_limit = _HALF_SAME_FROM, BUDDY_SAME_FROM
    count_pairs = [
        (half_count, buddy_count)
        for half_count in range(half_limit + 1)
        for buddy_count in range(buddy_limit + 1)
    ]
    pairs_by_harm = sorted(
        count_pairs, key=lambda count_pair: (-_partition_harm(*count_pair), count_pair)
    )
    hole_sizes = range(HALF_ORDER + 2)
    files_by_pair = {
        count_pair: [
            rank * len(hole_sizes) + len(hole_sizes) - size if size else NOT_FILED
            for size in hole_sizes
        ]
        for rank, count_pair in enumerate(pairs_by_harm)
    }
    file_rows = [
        [
            files_by_pair[half_count, min(buddy_count, buddy_limit)]
            for buddy_count in range(_COUNT_TABLE_SIZE)
        ]
        for half_count in range(half_limit + 1)
    ]
    return file_rows + file_rows[-1:] * (_COUNT_TABLE_SIZE - len(file_rows))


#: FILES[half_count][buddy_count][JOINED of a half] is the number of the half's file, where the
#: counts are of partitions. A higher number means that one more partition does less harm. At equal
#: harm, smaller holes have higher numbers.
NOT_FILED = 0
FILES = _file_number_table()
#: By order: the numbers of the files whose halves take a block of 2**order devices.
FILES_BY_ORDER = [
    sorted({row[hole] for rows in FILES for row in rows for hole in range(order + 1, 7)})
    for order in range(HALF_ORDER + 1)
]
FILE_COUNT = FILES_BY_ORDER[0][-1] + 1
