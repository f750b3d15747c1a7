"""Which node or cable is slow, by rounds of pairs: the deciding part, pure.

In a round every node is measured with at most one other. A fast result clears both nodes and the
way between them. A node is slow once it was slow with two others, of which one is cleared, and
fast with none. A way is slow once it was slow twice between two cleared nodes. Each round pairs
those that are not cleared with some that are, so one slow node or cable is named within
2·log2(n) rounds; a second one as soon as there are cleared nodes to try it with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Pair = tuple[str, str]
#: One round's results: a rate for each pair, in whatever unit; 0 for one that failed.
Round = Mapping[Pair, float]

#: Below this share of what is expected a result is slow.
SHARE = 0.7


class BenchVerdict(NamedTuple):
    """nodes, ways: named as slow. unsure: nodes of which nothing can be said. reference: what was
    expected of a pair: said, or the median of what each node did best."""

    nodes: tuple[str, ...]
    ways: tuple[Pair, ...]
    unsure: tuple[str, ...]
    reference: float


class _Table:
    """What all rounds so far say."""

    def __init__(self, nodes: Sequence[str], rounds: Sequence[Round], expected: float) -> None:
        self.nodes = tuple(nodes)
        self.results: dict[frozenset[str], list[float]] = {}
        for one in rounds:
            for pair, rate in one.items():
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
        return [node for node in self.nodes if node not in self.cleared and self._proven(node)]

    def _proven(self, node: str) -> bool:
        partners = self.partners(node)
        return len(partners) > 1 and bool(partners & self.cleared)

    def doubtful(self) -> list[str]:
        """Nodes of which it is not known yet."""
        least = min(2, len(self.nodes) - 1)
        return [
            node
            for node in self.nodes
            if (node not in self.cleared and not self._proven(node))
            or len(self.partners(node)) < least
        ]

    def ways(self, times: int) -> list[Pair]:
        """Pairs of cleared nodes that were slow so many times, and never fast."""
        return sorted(
            _ordered(pair)
            for pair, rates in self.results.items()
            if max(rates) < self.bar and len(rates) == times and pair <= self.cleared
        )


def _ordered(pair: frozenset[str]) -> Pair:
    one, other = sorted(pair)
    return one, other


def most_rounds(count: int) -> int:
    """How many rounds there are at most, for so many nodes."""
    return max(1, math.floor(2 * math.log2(count))) if count > 1 else 0


def next_round(
    nodes: Sequence[str], rounds: Sequence[Round], expected: float = 0.0
) -> tuple[Pair, ...]:
    """The pairs to measure now; none once all is known, or can be with no more rounds."""
    if len(nodes) < 2 or len(rounds) >= most_rounds(len(nodes)):
        return ()
    table = _Table(nodes, rounds, expected)
    again = table.ways(1)
    doubtful = table.doubtful()
    if rounds and not doubtful and not again:
        return ()
    free = [node for node in nodes if not any(node in pair for pair in again)]
    pairs = list(again)
    known = table.cleared
    # Those of whom nothing good is known first, each with one that is cleared if there is any.
    order = sorted(free, key=lambda node: (node not in doubtful, node in known))
    taken: set[str] = set()
    for node in order:
        if node in taken:
            continue
        met = table.partners(node)
        others = [one for one in free if one != node and one not in taken and one not in met]
        if not others:
            continue
        other = max(others, key=lambda one: (one in known) != (node in known))
        taken |= {node, other}
        pairs.append(_ordered(frozenset((node, other))))
    return tuple(pairs)


def judge(nodes: Sequence[str], rounds: Sequence[Round], expected: float = 0.0) -> BenchVerdict:
    """Who is slow. expected: the rate that a pair should have; 0: what most nodes do."""
    table = _Table(nodes, rounds, expected)
    slow = table.slow()
    unsure = [node for node in table.doubtful() if node not in slow and node not in table.cleared]
    return BenchVerdict(tuple(slow), tuple(table.ways(2)), tuple(unsure), table.reference)
