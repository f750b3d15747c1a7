"""Finding the same aligned block free in several link domains at once.

The free devices of a whole allocation are one integer, 64 bits a link domain, so that a shift
and an "and" ask the question of all link domains together.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

DOMAIN = 64
WHOLE_ORDER = 6


@lru_cache(maxsize=64)
def _every(step: int, width: int) -> int:
    """A bit at every multiple of `step` below `width`."""
    return ((1 << width) - 1) // ((1 << step) - 1) if width else 0


def _holes(free: int, order: int, width: int) -> Iterator[int]:
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


def in_run(free: int, places: int, starts: int, order: int, count: int) -> int | None:
    """The first device of a block that is free in `count` places that follow one another.

    free: the devices of `places` link domains, 64 bits each. starts: all bits of the places
    where such a run may begin.
    """
    rest, done = count - 1, 1
    while rest:
        step = min(done, rest)
        free &= free >> (DOMAIN * step)
        done += step
        rest -= step
    for blocks in _holes(free & starts, order, DOMAIN * places):
        return (blocks & -blocks).bit_length() - 1
    return None


def in_any(free: int, places: int, order: int, count: int) -> tuple[list[int], int] | None:
    """Any `count` places where the block at one offset is free, and the offset."""
    width = DOMAIN * places
    once = _every(DOMAIN, width)
    blocks = 0
    for more in _holes(free, order, width):
        blocks |= more
        for offset in range(0, DOMAIN, 1 << order):
            found = blocks >> offset & once
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
