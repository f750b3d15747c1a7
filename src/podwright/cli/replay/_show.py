"""A replay's report as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from podwright.cli.shared._tables import printable, table
from podwright.replay import duration


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Return the report's lines, the advice first."""
    trace = report["trace"]
    yield (
        f"{printable(trace['source'])}: {trace['jobs']} jobs of {trace['users']} users in "
        f"{trace['days']:.1f} days, {trace['device_hours']:,.0f} device-hours, "
        f"up to {trace['largest']} devices"
    )
    yield from left_out(trace)
    yield ""
    yield "What to change"
    for sentence in report["what_to_change"]:
        yield from item(sentence)
    yield ""
    yield from _ways(report["ways"])
    yield ""
    yield from _sizes(report["ways"])
    yield from _users(report["ways"][0])
    yield from _recorded(report)
    yield ""
    yield "How far to trust this"
    for note in (*trace["notes"], *report["deviations"], *report["simpler"]):
        yield from item(note)


def item(text: str) -> Iterator[str]:
    """Return a point of a list, in lines."""
    yield from textwrap.wrap(text, 96, initial_indent="- ", subsequent_indent="  ")


def left_out(trace: Mapping[str, Any]) -> Iterator[str]:
    """Return the lines about what the jobs do not include, and why."""
    for reason, count in trace["left_out"].items():
        yield f"left out: {count} {reason}"
    if trace["bad_lines"]:
        yield f"{trace['bad_lines']} lines could not be read:"
        for line in trace["bad_lines_shown"]:
            yield f"  line {line['number']}: {line['problem']}: {printable(line['text'])}"
        if trace["bad_lines"] > len(trace["bad_lines_shown"]):
            yield "  ..."


def _ways(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    header = (
        "way", "devices", "jobs", "refused", "used", "held", "free, of no use",
        "mean wait", "p50", "p95", "p99", "slowdown", "moves",
    )  # fmt: skip
    yield table(
        header,
        (
            (
                row["way"],
                row["devices"],
                row["jobs"],
                sum(row["refused"].values()),
                f"{row['used']:.1%}",
                f"{row['held']:.1%}",
                f"{row['free_of_no_use']:.1%}",
                *(duration(row["wait"][key]) for key in ("mean", "p50", "p95", "p99")),
                f"{row['bounded_slowdown']['mean']:.1f}",
                row.get("moves", 0),
            )
            for row in rows
        ),
    )


def _sizes(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    body = []
    for row in rows:
        for size in row["by_size"]:
            low, high = size["from"], size["to"]
            waits = (duration(size["wait"][key]) for key in ("p50", "p95", "p99"))
            name = str(high) if low == high else f"{low}-{high}"
            body.append((row["way"], name, size["jobs"], f"{size['device_hours']:,.0f}", *waits))
    yield table(("way", "devices", "jobs", "device-hours", "wait p50", "p95", "p99"), body)


def _users(row: Mapping[str, Any]) -> Iterator[str]:
    if not row["users"]:
        return
    yield ""
    yield f"Who waits most ({row['way']})"
    yield table(
        ("user", "jobs", "device-hours", "mean wait"),
        (
            (
                printable(user["user"]),
                user["jobs"],
                f"{user['device_hours']:,.0f}",
                duration(user["mean_wait_s"]),
            )
            for user in row["users"]
        ),
    )


def _recorded(recorded: Mapping[str, Any]) -> Iterator[str]:
    before, apart = recorded["recorded"], recorded["distance"]
    if not before:
        return
    yield ""
    yield "As recorded"
    yield (
        f"{before['jobs']} jobs began, {before['overlapping']} of them beside others; at most "
        f"{before['peak']} devices were in use at once."
    )
    yield (
        f"Given {recorded['ways'][0]['way']}'s devices when they began: {before['placed']} find "
        f"their place, {before['without_shape']} find enough devices and no shape, "
        f"{before['without_room']} too few, {before['refused']} are refused. Jobs used "
        f"{before['used']:.1%} of these devices; {before['free_of_no_use']:.1%} were free while a "
        "job found no shape."
    )
    yield "The simulated Slurm beside the recorded one, on as many devices without shape:"
    yield table(
        ("figure", "recorded", "simulated"),
        (
            ("wait p50", *map(duration, apart["wait_p50_s"])),
            ("wait p95", *map(duration, apart["wait_p95_s"])),
            ("bounded slowdown, mean", *(f"{v:.1f}" for v in apart["bounded_slowdown_mean"])),
            ("used", *(f"{v:.1%}" for v in apart["used"])),
        ),
    )
