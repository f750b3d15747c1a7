"""Which jobs to move, so that one that fits by count fits by shape as well. Pure.

Of all aligned blocks of the size the one is emptied that costs least: devices times the time that
each job in it loses. Nothing moves that may not, that moved a while ago, or that has no other
place; and nothing at all where the block would be free by itself before the move has paid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from podwright.placement.buddy_blocks import Blocks, block


class MovePlan(NamedTuple):
    """devices: the block that comes free. jobs: who moves, each with the order of its block, in
    the order in which they are placed anew. cost: device-seconds."""

    devices: int
    jobs: tuple[tuple[int, int], ...]
    cost: float


def plan_moves(
    blocks: Blocks,
    order: int,
    held: Mapping[int, tuple[int, float]],
    *,
    lost: Callable[[int], float],
    now: float,
    away: int = 0,
) -> MovePlan | None:
    """The cheapest way to a free block of 2**order devices; None where there is none that pays.

    blocks: what is free. held: the devices of each job and when its time is over (infinite where
    it has no limit). lost: seconds that a job loses by a move; infinite for one that may not be
    moved. away: devices that nobody can have.
    """
    inside: dict[int, list[int]] = {}
    cost: dict[int, float] = {}
    ends: dict[int, float] = {}
    for job, (bits, end) in held.items():
        low = (bits & -bits).bit_length() - 1 >> order
        for at in range(low, (bits.bit_length() - 1 >> order) + 1):
            inside.setdefault(at, []).append(job)
            larger = bits.bit_count() > 1 << order
            mine = math.inf if larger else bits.bit_count() * lost(job)
            cost[at] = cost.get(at, 0.0) + mine
            ends[at] = max(ends.get(at, 0.0), end)
    barred = ~blocks.capacity | away
    room = blocks.free.bit_count()
    for at in sorted(cost, key=lambda one: (cost[one], one)):
        if cost[at] == math.inf:
            return None
        devices = block(at << order, order)
        if devices & barred or cost[at] >= (ends[at] - now) * (1 << order):
            continue
        jobs = sorted(inside[at], key=lambda job: (-held[job][0].bit_count(), job))
        sizes = [held[job][0].bit_count() for job in jobs]
        if sum(sizes) > room - (blocks.free & devices).bit_count():
            continue
        orders = [size.bit_length() - 1 for size in sizes]
        if _placed(blocks, devices, orders):
            return MovePlan(devices, tuple(zip(jobs, orders, strict=True)), cost[at])
    return None


def _placed(blocks: Blocks, without: int, orders: list[int]) -> bool:
    """Do blocks of these orders, the largest first, find a place outside?"""
    trial = Blocks(blocks.capacity, grid=blocks)
    trial.free = blocks.free & ~without
    for order in orders:
        start = trial.find(order)
        if start is None:
            return False
        trial.take(start, order)
    return True
