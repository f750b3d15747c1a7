"""Finds the slow node or cable by rounds of pairs. This is the deciding part, pure.

In a round every node is measured with at most one other. A fast result clears both nodes and the
connection between them. A node is slow once it was slow with two others, of which one is cleared,
and fast with none. A connection is slow once it was slow twice between two cleared nodes. Each
round pairs nodes that are not cleared with cleared ones. So one slow node or cable is named within
2·log2(n) rounds, and a second one as soon as there are cleared nodes to pair it with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Pair = tuple[str, str]
#: The results of one round: a rate for each pair, in any unit; 0 for one that failed.
Round = Mapping[Pair, float]

#: A result below this share of the expected rate is slow.
SHARE = 0.7


class BenchVerdict(NamedTuple):
    """nodes, ways: the slow nodes and connections. unsure: nodes without a verdict. reference: the
    expected rate of a pair, as given, or else the median of each node's best rate."""

    nodes: tuple[str, ...]
    ways: tuple[Pair, ...]
    unsure: tuple[str, ...]
    reference: float


class _Table:
    """The results of all rounds so far."""

    def __init__(self, nodes: Sequence[str], rounds: Sequence[Round], expected: float) -> None:
        self.nodes = tuple(nodes)
        self.results: dict[frozenset[str], list[float]] = {}
        for round_rates in rounds:
            for pair, rate in round_rates.items():
                self.results.setdefault(frozenset(pair), []).append(rate)
        best = sorted(max(rates) for node in nodes if (rates := self._rates(node)))
        self.reference = expected or (best[len(best) // 2] if best else 0.0)
        self.bar = SHARE * self.reference
        self.cleared = {n for n in nodes if any(rate >= self.bar for rate in self._rates(n))}
        if not best:
            self.cleared = set()

    def _rates(self, node: str) -> list[float]:
        return [max(rates) for pair, rates in self.results.items() if node in pair]

    def partners(self, node: str) -> set[str]:
        return {other for pair in self.results if node in pair for other in pair - {node}}

    def slow(self) -> list[str]:
        return [
            node
            for node in self.nodes
            if node not in self.cleared and self._has_cleared_partner(node)
        ]

    def _has_cleared_partner(self, node: str) -> bool:
        partners = self.partners(node)
        return len(partners) > 1 and bool(partners & self.cleared)

    def doubtful(self) -> list[str]:
        """Return the nodes without a verdict."""
        least = min(2, len(self.nodes) - 1)
        return [
            node
            for node in self.nodes
            if (node not in self.cleared and not self._has_cleared_partner(node))
            or len(self.partners(node)) < least
        ]

    def ways(self, times: int) -> list[Pair]:
        """Return pairs of cleared nodes that were slow at least that often, and never fast."""
        return sorted(
            _ordered(pair)
            for pair, rates in self.results.items()
            if max(rates) < self.bar and len(rates) == times and pair <= self.cleared
        )


def _ordered(pair: frozenset[str]) -> Pair:
    first, second = sorted(pair)
    return first, second


def most_rounds(count: int) -> int:
    """The largest number of rounds that this many nodes need."""
    return max(1, math.floor(2 * math.log2(count))) if count > 1 else 0


def next_round(
    nodes: Sequence[str], rounds: Sequence[Round], expected: float = 0.0
) -> tuple[Pair, ...]:
    """The pairs to measure next; empty once everything is known or no further round can help."""
    if len(nodes) < 2 or len(rounds) >= most_rounds(len(nodes)):
        return ()
    table = _Table(nodes, rounds, expected)
    unsettled = table.ways(1)
    doubtful = table.doubtful()
    if rounds and not doubtful and not unsettled:
        return ()
    free = [node for node in nodes if not any(node in pair for pair in unsettled)]
    pairs = list(unsettled)
    known = table.cleared
    # Nodes that are not cleared come first, each paired with a cleared node where there is one.
    order = sorted(free, key=lambda node: (node not in doubtful, node in known))
    paired: set[str] = set()
    for node in order:
        if node in paired:
            continue
        met = table.partners(node)
        candidates = [
            candidate
            for candidate in free
            if candidate != node and candidate not in paired and candidate not in met
        ]
        if not candidates:
            continue
        other = max(candidates, key=lambda node_: (node_ in known) != (node in known))
        paired |= {node, other}
        pairs.append(_ordered(frozenset((node, other))))
    return tuple(pairs)


def judge(nodes: Sequence[str], rounds: Sequence[Round], expected: float = 0.0) -> BenchVerdict:
    """Name the slow nodes and connections. expected: the rate that a pair should reach; 0 takes
    what most nodes reach."""
    table = _Table(nodes, rounds, expected)
    slow = table.slow()
    unsure = [node for node in table.doubtful() if node not in slow and node not in table.cleared]
    return BenchVerdict(tuple(slow), tuple(table.ways(2)), tuple(unsure), table.reference)
