"""The cheapest moves that pay, and that leave all other jobs in place."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from itertools import permutations
from typing import NamedTuple

from podwright.placement.buddy_blocks import BuddyBlocks, block
from podwright.placement.move_plans import (
    MovePlan,
    cheapest_places,
    likely_end_time,
    may_be_asked,
    plan_moves,
)

TRIES = 400


class Busy(NamedTuple):
    """A pod of 16 devices, and its jobs: their devices and ends, and what a move loses."""

    blocks: BuddyBlocks
    held: dict[int, tuple[int, float]]
    seconds: dict[int, float]


def busy(rng: random.Random) -> Busy:
    """Jobs that came in turn until the pod was full; of some only the hole is left."""
    blocks = BuddyBlocks((1 << 16) - 1)
    held: dict[int, tuple[int, float]] = {}
    gone, seconds = 0, {}
    for number in range(40):
        order = rng.choice((0, 0, 0, 1, 1, 2)) if number < 20 else 0
        start = blocks.find(order)
        if start is not None:
            blocks.take(start, order)
            if rng.random() < 0.7:
                held[number] = block(start, order), 100.0 + number
            else:
                gone |= block(start, order)
            if rng.random() < 0.8:
                seconds[number] = rng.choice((5.0, 7.0, 9.0))
    blocks.free |= gone
    return Busy(blocks, held, seconds)


def cost(pod: Busy, jobs: Mapping[int, object]) -> float:
    return sum(pod.held[one][0].bit_count() * pod.seconds.get(one, math.inf) for one in jobs)


def possible(pod: Busy, order: int) -> dict[int, float]:
    """Return the cost of emptying each block that can be emptied, by trying every order of
    moves.
    """
    found: dict[int, float] = {}
    for start in range(0, 16, 1 << order):
        devices = block(start, order)
        inside = [one for one, (bits, _) in pod.held.items() if bits & devices]
        if not inside or cost(pod, dict.fromkeys(inside)) == math.inf:
            continue
        for turn in permutations(inside):
            free = pod.blocks.free & ~devices
            for one in turn:
                size = pod.held[one][0].bit_count()
                places = [
                    block(at, size.bit_length() - 1)
                    for at in range(0, 16, size)
                    if not ~free & block(at, size.bit_length() - 1)
                ]
                if not places:
                    break
                free &= ~places[0]
            else:
                found[devices] = cost(pod, dict.fromkeys(inside))
                break
    return found


def plan(pod: Busy, order: int) -> MovePlan | None:
    return plan_moves(pod.blocks, order, pod.held, pod.seconds, now=0.0)


def test_the_cheapest_block_that_can_be_emptied_is() -> None:
    rng, planned = random.Random(4), 0
    for _ in range(TRIES):
        pod, order = busy(rng), rng.randrange(1, 3)
        found, can = plan(pod, order), possible(pod, order)
        if found is None:
            assert not can or pod.blocks.find(order) is not None
            continue
        planned += 1
        least = min(can.values())
        assert can[found.devices] == least == cost(pod, dict(found.jobs))
    assert planned > TRIES / 10


def test_all_others_stay_where_they_are() -> None:
    rng = random.Random(5)
    for _ in range(TRIES):
        pod, order = busy(rng), rng.randrange(1, 3)
        found = plan(pod, order)
        if found is None:
            continue
        assert found.devices & ~pod.blocks.free, "nothing moves for what is free"
        trial = BuddyBlocks(pod.blocks.capacity)
        trial.free = pod.blocks.free & ~found.devices
        for one, size in found.jobs:
            assert one in pod.seconds
            start = trial.find(size)
            assert start is not None
            trial.take(start, size)
        movers = dict(found.jobs)
        stay = [bits for one, (bits, _) in pod.held.items() if one not in movers]
        assert not any(bits & found.devices for bits in stay)


def test_nothing_moves_at_a_loss() -> None:
    """Eight devices, two jobs of one each, which keep both blocks of four from being free."""
    blocks = BuddyBlocks((1 << 8) - 1)
    blocks.free = 0b1101_1101
    held = {1: (0b0010_0000, 50.0), 2: (0b0000_0010, 5000.0)}
    found = plan_moves(blocks, 2, held, {1: 40.0, 2: 50.0}, now=0.0)
    assert found == MovePlan(0b1111_0000, ((1, 0),))
    assert plan_moves(blocks, 2, held, {}, now=0.0) is None
    assert plan_moves(blocks, 2, held, {2: 199.0}, now=0.0) is not None, "four devices for 50 s"
    assert plan_moves(blocks, 2, held, {1: 200.0, 2: 200.0}, now=0.0) is None
    assert plan_moves(blocks, 2, held, {1: 40.0}, now=0.0, unusable_bits=1 << 7) is None


def test_devices_that_somebody_leaves_are_not_free_yet() -> None:
    blocks = BuddyBlocks((1 << 8) - 1)
    blocks.free = 0b1101_1101 & ~0b0100_0000  # of that one nobody is known
    held = {1: (0b0010_0000, 500.0), 2: (0b0000_0010, 500.0)}
    found = plan_moves(blocks, 2, held, {1: 1.0, 2: 2.0}, now=0.0)
    assert found == MovePlan(0b0000_1111, ((2, 0),))


def test_nobody_is_asked_more_than_twice_an_hour() -> None:
    assert may_be_asked((), 5000.0)
    assert may_be_asked((1000.0, 4000.0), 5000.0)
    assert not may_be_asked((2000.0, 4000.0), 5000.0)


def test_an_end_that_nobody_said_is_guessed() -> None:
    assert likely_end_time(70.0, 0.0, 60.0) == (70.0, True)
    for until in (0.0, 50.0, math.inf):
        assert likely_end_time(until, 20.0, 60.0) == (100.0, False)


def test_what_nobody_is_in_needs_no_moves() -> None:
    assert list(cheapest_places([{}, {}], {}, math.inf)) == []
