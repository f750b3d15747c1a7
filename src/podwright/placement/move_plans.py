"""What to move, so that a request that fits by count fits by shape as well. Pure functions.

The place of the request's shape that is cheapest to empty is chosen. The cost of a move is the
number of devices times the seconds that the job loses. A job does not move if it cannot, if it was
asked twice within an hour, or if it has no other place meanwhile. Nothing moves at all where a
place would be free by itself before the moves have paid.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple, TypeVar

from podwright.placement.buddy_blocks import Blocks, block, every, fit, soonest

MOST_PER_HOUR: Final = 2  #: how often one job may be asked to move within an hour
HOUR: Final = 3600.0
TRIED: Final = 64  #: how many places are examined for where their jobs could go

H = TypeVar("H", bound=Hashable)


class InTheWay(NamedTuple):
    """A job that occupies devices.

    size: number of its devices. seconds: what it loses by a move; infinite if it cannot be moved
    now.
    """

    size: int
    seconds: float


class MovePlan(NamedTuple):
    """A plan. devices: the block that becomes free, as bits.

    jobs: the jobs that move, each with the order of its block, in the order in which they are
    placed.
    """

    devices: int
    jobs: tuple[tuple[int, int], ...]


def may_be_asked(asked_at: Iterable[float], now: float) -> bool:
    """Return whether a job that was asked to move at these times may be asked again now."""
    return sum(request_time > now - HOUR for request_time in asked_at) < MOST_PER_HOUR


def likely_end(until: float, began: float, now: float) -> tuple[float, bool]:
    """Return when a job's devices may be free, and whether the job itself announced that time.

    until: the announced end; 0 or infinite for none. Without an announcement, or after its time,
    the estimate is that the job lasts as long again as it has so far.
    """
    if now < until < math.inf:
        return until, True
    return now + max(1.0, now - began), False


def cheapest(
    places: Iterable[Mapping[H, int]], known: Mapping[H, InTheWay], worth: float
) -> Iterator[tuple[int, list[H]]]:
    """Yield (index, jobs, the largest first) of places that are worth emptying, cheapest first.

    places: for each place, how many of its devices each job has. worth: device-seconds that are
    gained.
    """
    costs = {name: block.size * block.seconds for name, block in known.items()}
    priced: list[tuple[float, int, Mapping[H, int]]] = []
    for place_index, occupants in enumerate(places):
        cost = sum(costs[name] for name in occupants)
        if occupants and cost < worth:
            priced.append((cost, place_index, occupants))
    for _, place_index, occupants in nsmallest(TRIED, priced, key=lambda row: row[:2]):
        yield place_index, sorted(occupants, key=lambda name: (-known[name].size, name))


def plan_moves(
    blocks: Blocks,
    order: int,
    occupied: Mapping[int, tuple[int, float]],
    seconds: Mapping[int, float],
    *,
    now: float,
    unusable: int = 0,
) -> MovePlan | None:
    """Return the cheapest way to a free block of 2**order devices of a pod; None if none pays.

    blocks: what is free. occupied: the devices of each job, and its `likely_end`. seconds: what a
    move loses, for each job that can be moved now. unusable: devices that nobody can use.
    """
    movers: list[tuple[int, int]] = []
    usable = blocks.capacity & ~unusable
    for job, (bits, _) in occupied.items():
        if job in seconds:
            movers.append((job, bits))
        else:
            usable &= ~bits
    places = _whole(usable, order)
    occupied_counts: dict[int, dict[int, int]] = {}
    for job, bits in movers:
        for block_index in range(_first(bits) >> order, (bits.bit_length() - 1 >> order) + 1):
            if places >> (block_index << order) & 1:
                occupied_counts.setdefault(block_index, {})[job] = (
                    bits & block(block_index << order, order)
                ).bit_count()
    if not occupied_counts:
        return None  # this skips `soonest`, which takes longest
    numbers = sorted(occupied_counts)
    known = {job: InTheWay(bits.bit_count(), seconds[job]) for job, bits in movers}
    soon = soonest(blocks.capacity, unusable, occupied.values(), [order], first=now)
    free_at = max((end for bits, end in occupied.values() if bits & soon), default=now)
    worth = (free_at - now) * (1 << order)
    for number, jobs in cheapest(
        [occupied_counts[block_index] for block_index in numbers], known, worth
    ):
        block_index = numbers[number]
        devices = block(block_index << order, order)
        if (blocks.free & devices).bit_count() + sum(
            occupied_counts[block_index].values()
        ) < 1 << order:
            continue  # the rest belongs to a job that is ending
        orders = [(known[job].size - 1).bit_length() for job in jobs]
        if _placed(blocks, devices, orders):
            return MovePlan(devices, tuple(zip(jobs, orders, strict=True)))
    return None


def _whole(bits: int, order: int) -> int:
    """Return the starts of the blocks of 2**order that lie in these devices, as bits."""
    for below in range(order):
        bits &= bits >> (1 << below)
    return bits & every(order, bits.bit_length())


def _first(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _placed(blocks: Blocks, without: int, orders: Sequence[int]) -> bool:
    """Return whether blocks of these orders, the largest first, fit outside `without`."""
    rest = Blocks(blocks.capacity, grid=blocks)
    rest.free = blocks.free & ~without
    return fit(rest, orders)
