"""A measurement of nodes as text for people and as data for JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.gpu.nodebench._bench import Bench
from podwright.gpu.nodebench._history import Change, rates
from podwright.tables import table


def as_text(bench: Bench, changed: Sequence[Change]) -> str:
    """Return who is slow, what has changed, what failed, and the rates of each node in Gb/s."""
    now = rates(bench)
    lines = [_head(bench)]
    for slow in bench.slow:
        lines.append(
            f"SLOW  {slow.part}, {slow.what}: {slow.rate:.2f} Gb/s, not {slow.reference:.2f}"
        )
    for change in changed:
        lines.append(
            f"CHANGED  {change.node}, {change.what}: {change.now:.2f}, before {change.before:.2f}"
        )
    for node, error in bench.errors.items():
        lines.append(f"ERROR  {node}: {error}")
    kinds = list(dict.fromkeys(kind for by_kind in now.values() for kind in by_kind))
    rows = [
        (node, *(f"{by_kind[k]:.2f}" if k in by_kind else "" for k in kinds))
        for node, by_kind in now.items()
    ]
    return "\n".join([*lines, "", table(("Gb/s", *kinds), rows)])


def as_json(bench: Bench, changed: Sequence[Change]) -> dict[str, object]:
    """Return all measurements, the verdict, and what has changed."""
    return {
        **bench._asdict(),
        "rates": rates(bench),
        "rounds": [
            [{"pair": list(pair), "gbps": rate} for pair, rate in of_round.items()]
            for of_round in bench.rounds
        ],
        "verdict": bench.verdict._asdict(),
        "slow": [slow._asdict() for slow in bench.slow],
        "changes": [change._asdict() for change in changed],
    }


def _head(bench: Bench) -> str:
    count, rounds = len(bench.nodes), len(bench.rounds)
    method = f"{rounds} rounds of pairs by {bench.way}" if bench.way else "each by itself"
    extent = f"({count} nodes, {method})"
    if bench.slow:
        parts = ", ".join(dict.fromkeys(slow.part for slow in bench.slow))
        return f"Slow: {parts} {extent}."
    if bench.verdict.unsure:
        names = ", ".join(bench.verdict.unsure)
        return f"Nobody can be told from others, but below what is expected: {names} {extent}."
    return f"All are as fast as each other {extent}."
