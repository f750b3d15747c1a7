"""Where blocks fit into a quarter of a link domain, and how much harm a new partition does there.

Both are asked on every placement, so they are tables: the first, over the masks of the 16
devices of a quarter, is filled as masks are met; the second, over partition counts of halves,
is made once.
"""

from __future__ import annotations

QUARTER = 16
QUARTER_FULL = (1 << QUARTER) - 1
#: Orders (powers of two) of blocks that fit into a quarter: 0 to 4.
QUARTER_ORDERS = QUARTER.bit_length()
#: Where to look up the largest hole in what `fits` gives: 0 for none, else its order plus one.
HOLE = QUARTER_ORDERS
#: Added to the partition count of a half that can never be whole: some of it is drained or
#: another allocation's, so small partitions do least harm there.
CRIPPLED = 16

_NO_FIT = 255
_ALIGNED = [QUARTER_FULL // ((1 << (1 << order)) - 1) for order in range(QUARTER_ORDERS)]
_COUNTS = 64  # partitions in a half, plus CRIPPLED, stay below this
_SAME_FROM = 7  # that many partitions or more make no difference

#: By mask, what `fits` has found so far. The hot path looks here first.
KNOWN: list[bytes | None] = [None] * (1 << QUARTER)


def fits(mask: int) -> bytes:
    """The best holes of a quarter. `mask` has a bit for each device that is free.

    Byte `k` (0 to 4) tells of the smallest hole, the lowest such, that takes an aligned block of
    2**k devices: the order of the hole times 16, plus its offset; 255 where none does.
    """
    holes = []  # by order: the first device of each block of free ones
    blocks = mask
    for order in range(QUARTER_ORDERS):
        blocks &= _ALIGNED[order]
        holes.append(blocks)
        blocks &= blocks >> (1 << order)
    out = bytearray([_NO_FIT] * QUARTER_ORDERS + [0])
    best, above = _NO_FIT, 0
    for order in reversed(range(QUARTER_ORDERS)):
        maximal = holes[order] & ~(above | above << (1 << order))
        above = holes[order]
        if maximal:
            best = order << 4 | (maximal & -maximal).bit_length() - 1
            out[HOLE] = out[HOLE] or order + 1
        out[order] = best
    found = KNOWN[mask] = bytes(out)
    return found


def _harm(here: int, beside: int) -> float:
    """What a partition more costs in a half with `here` partitions and `beside` next to it.

    Partitions end in no order that we know. The more there are in a block the less likely it
    is to be whole soon, so one more does the less harm: its chance falls by a factor with each.
    The factors and the weight of a whole link domain against a half are those that refused
    least in simulation; the optimum is flat.
    """
    half = 0.5**here * 0.5 if here < _SAME_FROM else 0.0
    both = here + beside
    domain = 0.55**both * 0.45 if max(here, beside) < _SAME_FROM else 0.0
    return half + 1.5 * domain


def _ranks() -> list[int]:
    counts = range(_SAME_FROM + 1)
    by_harm = sorted((_harm(here, beside), here, beside) for here in counts for beside in counts)
    rank = {(here, beside): i << 3 for i, (_, here, beside) in enumerate(by_harm)}
    rows = [[rank[here, beside] for beside in counts] for here in counts]
    rows = [row + row[-1:] * (_COUNTS - len(row)) for row in rows]
    return [place for row in rows for place in row] + rows[-1] * (_COUNTS - len(rows))


#: RANKS[here << 6 | beside]: eight times 0 is where a new partition does least harm.
RANKS = _ranks()
RANK_COUNT = (_SAME_FROM + 1) ** 2
