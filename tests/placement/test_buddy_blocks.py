"""Block licences are exact: what Slurm's counts allow has a place, and nothing else has."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from podwright.placement.buddy_blocks import BuddyBlocks, bits, block, every, fit, soonest

LINE = 128
#: Pods with machines missing: any set of groups of four.
PODS = st.lists(st.integers(0, LINE // 4 - 1), min_size=1, unique=True).map(
    lambda groups: bits(4 * group + i for group in groups for i in range(4))
)


def naive(free: int, order: int) -> list[int]:
    size = 1 << order
    return [at for at in range(0, LINE, size) if free & block(at, order) == block(at, order)]


def worn(capacity: int, seed: int) -> BuddyBlocks:
    """A pod in which jobs came and went."""
    pod, rng = BuddyBlocks(capacity), random.Random(seed)
    held: list[tuple[int, int]] = []
    for _ in range(rng.randrange(60)):
        order = rng.randrange(pod.orders)
        start = pod.find(order)
        if start is not None and rng.random() < 0.7:
            pod.take(start, order)
            held.append((start, order))
        elif held:
            pod.give(*held.pop(rng.randrange(len(held))))
    return pod


@given(PODS, st.integers(0, 2**32))
def test_counts_are_those_of_looking_at_every_block(capacity: int, seed: int) -> None:
    pod = worn(capacity, seed)
    for order in range(pod.orders):
        assert (
            pod.whole(order)
            == pod.whole_counts_by_order()[order]
            == len(naive(pod.free, order)) << order
        )


@given(PODS, st.integers(0, 2**32), st.lists(st.integers(0, 7), max_size=80))
def test_what_the_counts_allow_is_placed_in_whatever_order(
    capacity: int, seed: int, asked: list[int]
) -> None:
    pod = worn(capacity, seed)
    left = pod.whole_counts_by_order()
    for order in asked:
        size = 1 << order
        if order >= len(left) or any(left[k] < size for k in range(order + 1)):
            if (
                left == pod.whole_counts_by_order()
            ):  # nothing was started since the counts were told
                assert order >= pod.orders or pod.find(order) is None
            continue
        left = [count - size if k <= order else count for k, count in enumerate(left)]
        start = pod.find(order)
        assert start is not None
        assert start % size == 0
        assert pod.free & block(start, order) == block(start, order)
        pod.take(start, order)


@given(PODS, st.integers(0, 2**32))
def test_a_block_is_broken_only_where_no_smaller_one_would_do(capacity: int, seed: int) -> None:
    pod = worn(capacity, seed)
    for order in range(pod.orders):
        start = pod.find(order)
        if start is None:
            assert not naive(pod.free, order)
            continue
        inside = [k for k in range(pod.orders) if start & ~((1 << k) - 1) in naive(pod.free, k)]
        hole = max(k for k in inside if k >= order)
        for smaller in range(order, hole):
            halves = {at & ~((2 << smaller) - 1) for at in naive(pod.free, smaller)}
            assert halves <= set(naive(pod.free, smaller + 1))


def test_a_grid_has_the_multiples() -> None:
    for order in range(8):
        for length in (1, 3, 64, 100, 129):
            grid = every(order, length)
            within = [at for at in range(length) if grid >> at & 1]
            assert within == list(range(0, length, 1 << order))


def soonest_by_looking(pod: BuddyBlocks, away: int, held: list[tuple[int, int]], order: int) -> int:
    best: tuple[int, int, int] | None = None
    for start in range(0, LINE, 1 << order):
        whole = block(start, order)
        if whole & ~pod.capacity or whole & away:
            continue
        inside = [(taken, end) for taken, end in held if taken & whole]
        last = max((end for _, end in inside), default=0)
        count = sum((taken & whole).bit_count() for taken, _ in inside)
        best = min(best or (last, count, start), (last, count, start))
    return block(best[2], order) if best else 0


@given(PODS, st.integers(0, 2**32), st.integers(0, 6))
def test_the_block_that_is_free_soonest_is_that_of_looking_at_every_one(
    capacity: int, seed: int, order: int
) -> None:
    rng = random.Random(seed)
    pod = worn(capacity, seed)
    held: list[tuple[int, int]] = []
    while (start := pod.find(wanted := rng.randrange(5))) is not None and rng.random() < 0.95:
        pod.take(start, wanted)
        held.append((block(start, wanted), rng.randrange(1, 9)))
    away = pod.free & bits(rng.sample(range(LINE), 2))
    found = soonest(capacity, away, held, [order], first=0)
    assert found == soonest_by_looking(pod, away, held, order)


def test_several_blocks_are_chosen_apart_or_none() -> None:
    pod = BuddyBlocks((1 << 16) - 1)
    pod.take(0, 3)
    held = [(block(0, 3), 5)]
    assert soonest(pod.capacity, 0, held, [3, 3], first=0) == pod.capacity
    assert soonest(pod.capacity, 0, held, [3, 3, 0], first=0) == 0
    assert fit(pod, [3])
    assert not fit(pod, [3, 0])
    assert pod.free == block(8, 3), "asking changes nothing"
