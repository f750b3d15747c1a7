"""One slow node or cable is named, no other, within 2·log2(n) rounds, whatever the rest does."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.gpu.nodebench._find_slow_nodes import (
    BenchVerdict,
    Pair,
    Round,
    judge,
    most_rounds,
    next_round,
)


def play(
    nodes: list[str], rate: Callable[[str, str], float], expected: float = 0.0
) -> tuple[BenchVerdict, int]:
    rounds: list[Round] = []
    while pairs := next_round(nodes, rounds, expected):
        flat = [node for pair in pairs for node in pair]
        assert len(flat) == len(set(flat)), "a node is in two pairs at once"
        rounds.append({pair: rate(*pair) for pair in pairs})
        assert len(rounds) <= max(1, math.floor(2 * math.log2(len(nodes))))
    return judge(nodes, rounds, expected), len(rounds)


def names(count: int) -> list[str]:
    return [f"n{k:02d}" for k in range(count)]


def noisy(chance: random.Random, slow: set[str], ways: set[Pair]) -> Callable[[str, str], float]:
    """100 with some noise; 40 with a slow node or over a slow way."""

    def rate(one: str, other: str) -> float:
        bad = slow & {one, other} or (one, other) in ways or (other, one) in ways
        return (40 if bad else 100) * chance.uniform(0.9, 1.1)

    return rate


@given(st.integers(3, 70), st.randoms(use_true_random=False))
def test_one_slow_node_is_named(count: int, chance: random.Random) -> None:
    nodes = names(count)
    slow = chance.choice(nodes)
    verdict, _ = play(nodes, noisy(chance, {slow}, set()))
    assert (verdict.nodes, verdict.ways, verdict.unsure) == ((slow,), (), ())


@given(st.integers(4, 70), st.randoms(use_true_random=False))
def test_one_slow_cable_is_named_where_it_was_met(count: int, chance: random.Random) -> None:
    """A cable between two nodes alone is met only by their pair: those of the first rounds are."""
    nodes = names(count)
    way = chance.choice(next_round(nodes, []))
    verdict, _ = play(nodes, noisy(chance, set(), {way}))
    assert (verdict.nodes, verdict.ways, verdict.unsure) == ((), (way,), ())


@given(st.integers(2, 70), st.randoms(use_true_random=False))
def test_nobody_is_named_where_all_are_alike(count: int, chance: random.Random) -> None:
    verdict, used = play(names(count), noisy(chance, set(), set()))
    assert (verdict.nodes, verdict.ways) == ((), ())
    assert used <= 3  # of an odd number one sits out at first


@given(st.integers(8, 64), st.randoms(use_true_random=False), st.integers(2, 4))
def test_several_slow_nodes(count: int, chance: random.Random, many: int) -> None:
    nodes = names(count)
    slow = set(chance.sample(nodes, min(many, count // 4)))
    verdict, _ = play(nodes, noisy(chance, slow, set()))
    assert set(verdict.nodes) <= slow
    assert slow <= set(verdict.nodes) | set(verdict.unsure)


def test_a_node_that_does_not_answer_is_slow() -> None:
    verdict, _ = play(names(8), lambda a, b: 0.0 if "n05" in (a, b) else 100.0)
    assert verdict.nodes == ("n05",)


def test_a_pair_that_was_slow_once_only_is_not_named() -> None:
    seen: list[Pair] = []

    def rate(a: str, b: str) -> float:
        seen.append((a, b))
        return 30.0 if len(seen) == 1 else 100.0

    verdict, _ = play(names(8), rate)
    assert (verdict.nodes, verdict.ways, verdict.unsure) == ((), (), ())


def test_all_below_what_the_hardware_should_give() -> None:
    verdict, used = play(names(8), lambda a, b: 40.0, expected=100)
    assert (verdict.nodes, verdict.ways) == ((), ())
    assert verdict.unsure == tuple(names(8))
    assert used == most_rounds(8)


@pytest.mark.parametrize("count", [0, 1])
def test_too_few(count: int) -> None:
    assert next_round(names(count), []) == ()
    assert judge(names(count), []).nodes == ()


def test_two_nodes_cannot_be_told_apart() -> None:
    verdict, _ = play(names(2), lambda a, b: 40.0, expected=100)
    assert verdict == ((), (), ("n00", "n01"), 100)
