"""What to move, so that a request that fits by count fits by shape as well. Pure.

Of all places of its shape the one is emptied that costs least: devices times the seconds that each
in it loses by a move. Nothing moves that cannot, that was asked to twice within an hour, or that
has no other place meanwhile; and nothing at all where a place would be free by itself before the
moves have paid.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple, TypeVar

from podwright.placement.buddy_blocks import Blocks, block, every, fit, soonest

MOST_PER_HOUR: Final = 2  #: times that one is asked to move
HOUR: Final = 3600.0
TRIED: Final = 64  #: places for which it is looked where what stands in them could go

H = TypeVar("H", bound=Hashable)


class InTheWay(NamedTuple):
    """Somebody who holds devices. size: how many in all. seconds: what a move loses; infinite for
    who cannot be moved now."""

    size: int
    seconds: float


class MovePlan(NamedTuple):
    """devices: the block that comes free. jobs: who moves, each with the order of its block, in
    the order in which they are placed anew."""

    devices: int
    jobs: tuple[tuple[int, int], ...]


def may_be_asked(asked_at: Iterable[float], now: float) -> bool:
    """Whether one that was asked to move at these times may be asked now."""
    return sum(at > now - HOUR for at in asked_at) < MOST_PER_HOUR


def likely_end(until: float, began: float, now: float) -> tuple[float, bool]:
    """When somebody's devices may be free, and whether that was said. Where it was not, or was
    wrong, our guess: it lasts as long as it has so far. until: 0 or infinite for not said."""
    if now < until < math.inf:
        return until, True
    return now + max(1.0, now - began), False


def cheapest(
    places: Iterable[Mapping[H, int]], known: Mapping[H, InTheWay], worth: float
) -> Iterator[tuple[int, list[H]]]:
    """The places that are worth emptying, by their numbers, the cheapest first, and who leaves
    each, the largest first.

    places: who has how many devices of each. worth: device-seconds that are won.
    """
    costs = {name: one.size * one.seconds for name, one in known.items()}
    priced: list[tuple[float, int, Mapping[H, int]]] = []
    for at, inside in enumerate(places):
        cost = sum(costs[name] for name in inside)
        if inside and cost < worth:
            priced.append((cost, at, inside))
    for _, at, inside in nsmallest(TRIED, priced, key=lambda one: one[:2]):
        yield at, sorted(inside, key=lambda name: (-known[name].size, name))


def plan_moves(
    blocks: Blocks,
    order: int,
    held: Mapping[int, tuple[int, float]],
    seconds: Mapping[int, float],
    *,
    now: float,
    away: int = 0,
) -> MovePlan | None:
    """The cheapest way to a free block of 2**order devices of a pod; None: there is none that pays.

    blocks: what is free. held: the devices of each job, and its `likely_end`. seconds: what a move
    loses, of those that can be moved now. away: devices that nobody can have.
    """
    movers: list[tuple[int, int]] = []
    usable = blocks.capacity & ~away
    for job, (bits, _) in held.items():
        if job in seconds:
            movers.append((job, bits))
        else:
            usable &= ~bits
    places = _whole(usable, order)
    inside: dict[int, dict[int, int]] = {}
    for job, bits in movers:
        for at in range(_first(bits) >> order, (bits.bit_length() - 1 >> order) + 1):
            if places >> (at << order) & 1:
                inside.setdefault(at, {})[job] = (bits & block(at << order, order)).bit_count()
    if not inside:
        return None  # before it is asked what would be free soon, which takes longest
    numbers = sorted(inside)
    known = {job: InTheWay(bits.bit_count(), seconds[job]) for job, bits in movers}
    soon = soonest(blocks.capacity, away, held.values(), [order], first=now)
    free_at = max((end for bits, end in held.values() if bits & soon), default=now)
    worth = (free_at - now) * (1 << order)
    for number, jobs in cheapest([inside[at] for at in numbers], known, worth):
        at = numbers[number]
        devices = block(at << order, order)
        if (blocks.free & devices).bit_count() + sum(inside[at].values()) < 1 << order:
            continue  # what is neither free nor theirs is somebody's who is leaving
        orders = [(known[job].size - 1).bit_length() for job in jobs]
        if _placed(blocks, devices, orders):
            return MovePlan(devices, tuple(zip(jobs, orders, strict=True)))
    return None


def _whole(bits: int, order: int) -> int:
    """The starts of the blocks of 2**order that lie in these devices."""
    for below in range(order):
        bits &= bits >> (1 << below)
    return bits & every(order, bits.bit_length())


def _first(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _placed(blocks: Blocks, without: int, orders: Sequence[int]) -> bool:
    """Do blocks of these orders, the largest first, find a place outside?"""
    rest = Blocks(blocks.capacity, grid=blocks)
    rest.free = blocks.free & ~without
    return fit(rest, orders)
