"""A measurement of nodes as text for people and as data for JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.gpu.nodebench._bench import Bench
from podwright.gpu.nodebench._history import Change, rates
from podwright.tables import table


def as_text(bench: Bench, changed: Sequence[Change]) -> str:
    """Return who is slow, what has changed, what failed, and the rates of each node in Gb/s."""
    rates_by_node = rates(bench)
    text_lines = [_verdict_headline(bench)]
    for slow in bench.slow:
        text_lines.append(
            f"SLOW  {slow.part}, {slow.what}: {slow.rate:.2f} Gb/s, not {slow.reference:.2f}"
        )
    for change in changed:
        text_lines.append(
            f"CHANGED  {change.node}, {change.what}: {change.now:.2f}, before {change.before:.2f}"
        )
    for node, error in bench.errors.items():
        text_lines.append(f"ERROR  {node}: {error}")
    measurements = list(
        dict.fromkeys(
            measurement for node_rates in rates_by_node.values() for measurement in node_rates
        )
    )
    table_rows = [
        (
            node,
            *(
                f"{node_rates[column]:.2f}" if column in node_rates else ""
                for column in measurements
            ),
        )
        for node, node_rates in rates_by_node.items()
    ]
    return "\n".join([*text_lines, "", table(("Gb/s", *measurements), table_rows)])


def as_json(bench: Bench, changed: Sequence[Change]) -> dict[str, object]:
    """Return all measurements, the verdict, and what has changed."""
    return {
        **bench._asdict(),
        "rates": rates(bench),
        "rounds": [
            [{"pair": list(pair), "gbps": rate} for pair, rate in round_rates.items()]
            for round_rates in bench.rounds
        ],
        "verdict": bench.verdict._asdict(),
        "slow": [slow._asdict() for slow in bench.slow],
        "changes": [change._asdict() for change in changed],
    }


def _verdict_headline(bench: Bench) -> str:
    node_count, round_count = len(bench.nodes), len(bench.rounds)
    method_text = f"{round_count} rounds of pairs by {bench.way}" if bench.way else "each by itself"
    extent_text = f"({node_count} nodes, {method_text})"
    if bench.slow:
        parts_text = ", ".join(dict.fromkeys(slow.part for slow in bench.slow))
        return f"Slow: {parts_text} {extent_text}."
    if bench.verdict.unsure:
        names_text = ", ".join(bench.verdict.unsure)
        return (
            f"Nobody can be told from others, but below what is expected: {names_text} "
            f"{extent_text}."
        )
    return f"All are as fast as each other {extent_text}."
