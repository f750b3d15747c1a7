"""Where blocks fit into half a link domain, and how much harm a new partition does there.

The unit is a half: 32 devices, one bit each. Both answers are asked on every placement, so they
are tables: the first is filled as masks are met, the second is made once.
"""

from __future__ import annotations

HALF = 32
FULL = (1 << HALF) - 1
#: Orders (powers of two) of blocks that fit into a half: 0 to 5.
ORDERS = HALF.bit_length()
NO_FIT = 255
#: Added to the partition count of a half that can never be whole: some of it is drained or
#: another allocation's, so small partitions do least harm there.
CRIPPLED = 16

_ALIGNED = [FULL // ((1 << (1 << order)) - 1) for order in range(ORDERS)]
_KNOWN_MASKS_MAX = 1 << 16
_COUNTS = 64  # partitions in a half, plus CRIPPLED, stay below this
_SAME_FROM = 7  # that many partitions or more make no difference

#: By mask, what `fits` has found so far.
KNOWN: dict[int, bytes] = {}


def fits(mask: int) -> bytes:
    """Offsets of the best holes of a half. `mask` has a bit for each device that is free.

    Byte `k` (0 to 5) is the offset in the smallest hole that takes an aligned block of 2**k
    devices, the lowest such hole, or NO_FIT; byte 6 is the order of the largest hole (0 if none).
    """
    found = KNOWN.get(mask)
    if found is not None:
        return found
    holes = [0] * ORDERS  # by order: the first device of each block of free ones
    blocks = mask
    for order in range(ORDERS):
        holes[order] = blocks
        blocks &= blocks >> (1 << order)
        blocks &= _ALIGNED[order + 1] if order + 1 < ORDERS else 0
    offsets = [NO_FIT] * ORDERS
    best, largest = NO_FIT, 0
    for order in reversed(range(ORDERS)):
        above = holes[order + 1] if order + 1 < ORDERS else 0
        maximal = holes[order] & ~(above | above << (1 << order))
        if maximal:
            best = (maximal & -maximal).bit_length() - 1
            largest = max(largest, order)
        offsets[order] = best
    if len(KNOWN) >= _KNOWN_MASKS_MAX:
        KNOWN.clear()
    found = KNOWN[mask] = bytes((*offsets, largest))
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


def _ranks() -> bytes:
    counts = range(_SAME_FROM + 1)
    by_harm = sorted((_harm(here, beside), here, beside) for here in counts for beside in counts)
    rank = {(here, beside): i for i, (_, here, beside) in enumerate(by_harm)}
    rows = [bytes(rank[here, beside] for beside in counts) for here in counts]
    rows = [row + row[-1:] * (_COUNTS - len(row)) for row in rows]
    return b"".join(rows + rows[-1:] * (_COUNTS - len(rows)))


#: RANKS[here << 6 | beside]: 0 is where a new partition does least harm.
RANKS = _ranks()
RANK_COUNT = (_SAME_FROM + 1) ** 2
