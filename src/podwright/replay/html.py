"""The report as one self-contained page: figures in words and tables, drawings as SVG.

matplotlib makes the drawings; it is an optional dependency, `podwright[report]`.
"""

from __future__ import annotations

import html
import importlib.util
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from podwright.errors import InvalidRequest
from podwright.replay._advice import duration
from podwright.replay._report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 68rem; margin: 2rem auto;
  padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .2rem .5rem; border-bottom: 1px solid #ddd }
td { white-space: nowrap }
th:first-child, td:first-child { text-align: left }
svg { max-width: 100%; height: auto } .small { color: #666; font-size: .9em }
@media (prefers-color-scheme: dark) { body { background: #fff } }
"""


def check() -> None:
    """Raise InvalidRequest when matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidRequest(
            "matplotlib is not installed",
            operation="draw the report's page",
            would_work="pip install 'podwright[report]'; the text and --json work without it",
        )


def page(report: Report) -> str:
    """Return the whole page. Raises InvalidRequest when matplotlib is missing."""
    check()
    return "\n".join(_page(report))


def _page(report: Report) -> Iterator[str]:
    from podwright.replay import _drawings

    figures = report.figures
    trace = figures["trace"]
    title = f"Replay of {trace['source']}"
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
    yield f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>"
    yield (
        f"<p>{trace['jobs']} jobs of {trace['users']} users in {trace['days']:.1f} days, "
        f"{trace['device_hours']:,.0f} device-hours, up to {trace['largest']} devices."
    )
    yield "<h2>What to change</h2>"
    yield _list(figures["what_to_change"])
    yield "<h2>Each way</h2>"
    yield _ways(figures["ways"])
    yield "<h2>Devices in use</h2>"
    yield _svg(_drawings.used(report))
    yield "<h2>Waits by size</h2>"
    yield _svg(_drawings.waits(report))
    yield _sizes(figures["ways"])
    yield "<h2>How long jobs wait</h2>"
    yield _svg(_drawings.distribution(report))
    if len(report.outcomes[0].where):
        first = html.escape(report.outcomes[0].way)
        yield f"<h2>Who was where, under {first}</h2>"
        yield _svg(_drawings.gantt(report))
    yield "<h2>Who waits most</h2>"
    yield _users(figures["ways"][0]["users"])
    yield from _recorded(figures)
    yield "<h2>How far to trust this</h2>"
    yield _list([*_left_out(trace), *trace["notes"], *figures["deviations"], *figures["simpler"]])
    yield "</html>"


def _list(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(sentence)}" for sentence in sentences) + "</ul>"


def _table(header: list[str], rows: list[list[Any]]) -> str:
    head = "".join(f"<th>{html.escape(word)}" for word in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}" for cell in row) for row in rows
    )
    return f"<table><tr>{head}{body}</table>"


def _ways(rows: list[dict[str, Any]]) -> str:
    header = ["way", "devices", "jobs", "refused", "used", "held", "free, of no use"]
    header += ["mean wait", "p50", "p95", "p99", "slowdown", "moves"]
    body = [
        [
            row["way"],
            row["devices"],
            row["jobs"],
            sum(row["refused"].values()),
            *(f"{row[key]:.1%}" for key in ("used", "held", "free_of_no_use")),
            *(duration(row["wait"][key]) for key in ("mean", "p50", "p95", "p99")),
            f"{row['bounded_slowdown']['mean']:.1f}",
            row.get("moves", 0),
        ]
        for row in rows
    ]
    return _table(header, body)


def _sizes(rows: list[dict[str, Any]]) -> str:
    body = [
        [
            row["way"],
            str(size["to"]) if size["from"] == size["to"] else f"{size['from']}-{size['to']}",
            size["jobs"],
            f"{size['device_hours']:,.0f}",
            *(duration(size["wait"][key]) for key in ("mean", "p50", "p95", "p99")),
        ]
        for row in rows
        for size in row["by_size"]
    ]
    return _table(["way", "devices", "jobs", "device-hours", "mean", "p50", "p95", "p99"], body)


def _users(users: list[dict[str, Any]]) -> str:
    if not users:
        return "<p>The trace names no users, or none has five jobs."
    rows = [
        [user["user"], user["jobs"], f"{user['device_hours']:,.0f}", duration(user["mean_wait_s"])]
        for user in users
    ]
    return _table(["user", "jobs", "device-hours", "mean wait"], rows)


def _recorded(recorded: dict[str, Any]) -> Iterator[str]:
    before, apart = recorded["recorded"], recorded["distance"]
    if not before:
        return
    yield "<h2>As recorded</h2>"
    yield (
        f"<p>{before['jobs']} jobs began, {before['overlapping']} beside others; at most "
        f"{before['peak']} devices were in use. On the first way's devices {before['placed']} find "
        f"their place as they began, {before['without_shape']} find enough devices and no shape, "
        f"{before['without_room']} too few, {before['refused']} are refused. Jobs used "
        f"{before['used']:.1%} of these devices; {before['free_of_no_use']:.1%} were free while a "
        "job found no shape."
        "<p>The simulated Slurm beside the recorded one, on as many devices without shape:"
    )
    rows: list[list[Any]] = [
        ["wait p50", *map(duration, apart["wait_p50_s"])],
        ["wait p95", *map(duration, apart["wait_p95_s"])],
        ["bounded slowdown, mean", *(f"{v:.1f}" for v in apart["bounded_slowdown_mean"])],
        ["used", *(f"{v:.1%}" for v in apart["used"])],
    ]
    yield _table(["figure", "recorded", "simulated"], rows)


def _left_out(trace: dict[str, Any]) -> list[str]:
    out = [f"Left out: {count} {reason}." for reason, count in trace["left_out"].items()]
    if trace["bad_lines"]:
        listed = "; ".join(
            f"line {line['number']}: {line['problem']}" for line in trace["bad_lines_shown"]
        )
        out.append(f"{trace['bad_lines']} lines could not be read: {listed}.")
    return out


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()[out.getvalue().index("<svg") :]
