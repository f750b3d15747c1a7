"""Finding the same aligned block free in several link domains at once.

The free devices of a whole allocation are one integer, 64 bits a link domain, so that a shift
and an "and" ask the question of all link domains together: about ten microseconds for 16,384
devices, where a loop over them takes a millisecond.
"""

from __future__ import annotations

from functools import lru_cache

DOMAIN = 64
WHOLE_ORDER = 6


@lru_cache(maxsize=64)
def _every(step: int, width: int) -> int:
    """A bit at every multiple of `step` below `width`."""
    return ((1 << width) - 1) // ((1 << step) - 1) if width else 0


def _blocks(free: int, order: int, width: int) -> int:
    """The first devices of the aligned blocks of 2**order that are free."""
    for i in range(order):
        free &= free >> (1 << i)
    return free & _every(1 << order, width)


def _small_holes(blocks: int, free: int, order: int, limit: int, width: int) -> int:
    """Those blocks of 2**order whose hole, the largest free block around, is at most 2**limit."""
    if limit >= WHOLE_ORDER:
        return blocks
    larger = _blocks(free, limit + 1, width)
    for i in range(order, limit + 1):
        larger |= larger << (1 << i)
    return blocks & ~larger


def _joint(blocks: int, count: int, width: int) -> int:
    """Bits that are set here and in each of the next `count` - 1 link domains, round the loop."""
    rest = count - 1
    blocks |= blocks << width
    done = 1
    while rest:
        step = min(done, rest)
        blocks &= blocks >> (DOMAIN * step)
        done += step
        rest -= step
    return blocks & ((1 << width) - 1)


def in_loop(free: int, places: int, starts: int, order: int, count: int) -> tuple[int, int] | None:
    """The first place and the offset of the block in `count` places that follow one another.

    free: the devices of `places` link domains. starts: all bits of the places where a run of
    `count` neighbours begins. Blocks in small holes come first.
    """
    width = DOMAIN * places
    blocks = _blocks(free, order, width)
    if not _joint(blocks, count, width) & starts:
        return None
    for limit in range(order, WHOLE_ORDER + 1):
        small = _small_holes(blocks, free, order, limit, width)
        found = _joint(small, count, width) & starts
        if found:
            return divmod((found & -found).bit_length() - 1, DOMAIN)
    raise AssertionError("the last limit takes every block")


def in_any(free: int, places: int, order: int, count: int) -> tuple[list[int], int] | None:
    """Any `count` places where the block at one offset is free, and the offset."""
    width = DOMAIN * places
    blocks = _blocks(free, order, width)
    once = _every(DOMAIN, width)
    for limit in range(order, WHOLE_ORDER + 1):
        small = _small_holes(blocks, free, order, limit, width)
        for offset in range(0, DOMAIN, 1 << order):
            found = small >> offset & once
            if found.bit_count() >= count:
                return _lowest(found, count), offset
    return None


def _lowest(bits: int, count: int) -> list[int]:
    """The places of the lowest `count` bits."""
    out = []
    for _ in range(count):
        low = bits & -bits
        out.append((low.bit_length() - 1) // DOMAIN)
        bits ^= low
    return out
