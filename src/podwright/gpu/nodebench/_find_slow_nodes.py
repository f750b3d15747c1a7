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
SLOW_RATE_SHARE = 0.7


class BenchVerdict(NamedTuple):
    """nodes, ways: the slow nodes and connections. unsure: nodes without a verdict. reference: the
    expected rate of a pair, as given, or else the median of each node's best rate."""

    nodes: tuple[str, ...]
    ways: tuple[Pair, ...]
    unsure: tuple[str, ...]
    reference: float


class _ResultTable:
    """The results of all rounds so far."""

    def __init__(self, nodes: Sequence[str], rounds: Sequence[Round], expected_rate: float) -> None:
        self.nodes = tuple(nodes)
        self.results: dict[frozenset[str], list[float]] = {}
        for round_rates in rounds:
            for pair, rate in round_rates.items():
                self.results.setdefault(frozenset(pair), []).append(rate)
        best_rates = sorted(max(rates) for node in nodes if (rates := self._best_rates(node)))
        self.reference = expected_rate or (best_rates[len(best_rates) // 2] if best_rates else 0.0)
        self.slow_threshold = SLOW_RATE_SHARE * self.reference
        self.cleared = {
            candidate
            for candidate in nodes
            if any(rate >= self.slow_threshold for rate in self._best_rates(candidate))
        }
        if not best_rates:
            self.cleared = set()

    def _best_rates(self, node: str) -> list[float]:
        return [max(rates) for pair, rates in self.results.items() if node in pair]

    def partners(self, node: str) -> set[str]:
        return {partner for pair in self.results if node in pair for partner in pair - {node}}

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
        least_partners = min(2, len(self.nodes) - 1)
        return [
            node
            for node in self.nodes
            if (node not in self.cleared and not self._has_cleared_partner(node))
            or len(self.partners(node)) < least_partners
        ]

    def ways(self, slow_count: int) -> list[Pair]:
        """Return pairs of cleared nodes that were measured this often, and were never fast."""
        return sorted(
            _sorted_pair(pair)
            for pair, rates in self.results.items()
            if max(rates) < self.slow_threshold
            and len(rates) == slow_count
            and pair <= self.cleared
        )


def _sorted_pair(pair: frozenset[str]) -> Pair:
    first_node, second_node = sorted(pair)
    return first_node, second_node


def most_rounds(node_count: int) -> int:
    """The largest number of rounds that this many nodes need."""
    return max(1, math.floor(2 * math.log2(node_count))) if node_count > 1 else 0


def next_round(
    nodes: Sequence[str], rounds: Sequence[Round], expected_rate: float = 0.0
) -> tuple[Pair, ...]:
    """The pairs to measure next; empty once everything is known or no further round can help."""
    if len(nodes) < 2 or len(rounds) >= most_rounds(len(nodes)):
        return ()
    round_table = _ResultTable(nodes, rounds, expected_rate)
    unsettled_pairs = round_table.ways(1)
    doubtful_nodes = round_table.doubtful()
    if rounds and not doubtful_nodes and not unsettled_pairs:
        return ()
    free_nodes = [node for node in nodes if not any(node in pair for pair in unsettled_pairs)]
    pairs = list(unsettled_pairs)
    cleared_nodes = round_table.cleared
    # Nodes that are not cleared come first, each paired with a cleared node where there is one.
    ordered_nodes = sorted(
        free_nodes, key=lambda node: (node not in doubtful_nodes, node in cleared_nodes)
    )
    paired_nodes: set[str] = set()
    for node in ordered_nodes:
        if node in paired_nodes:
            continue
        partners = round_table.partners(node)
        candidates = [
            candidate
            for candidate in free_nodes
            if candidate != node and candidate not in paired_nodes and candidate not in partners
        ]
        if not candidates:
            continue
        partner = max(
            candidates,
            key=lambda partner_option: (partner_option in cleared_nodes) != (node in cleared_nodes),
        )
        paired_nodes |= {node, partner}
        pairs.append(_sorted_pair(frozenset((node, partner))))
    return tuple(pairs)


def judge(
    nodes: Sequence[str], rounds: Sequence[Round], expected_rate: float = 0.0
) -> BenchVerdict:
    """Name the slow nodes and connections. expected_rate: the rate that a pair should reach; 0
    takes what most nodes reach.
    """
    round_table = _ResultTable(nodes, rounds, expected_rate)
    slow_nodes = round_table.slow()
    unsure_nodes = [
        node
        for node in round_table.doubtful()
        if node not in slow_nodes and node not in round_table.cleared
    ]
    return BenchVerdict(
        tuple(slow_nodes), tuple(round_table.ways(2)), tuple(unsure_nodes), round_table.reference
    )
