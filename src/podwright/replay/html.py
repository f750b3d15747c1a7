"""The report as one self-contained page: figures in words and tables, drawings as SVG.

matplotlib makes the drawings; it is an optional dependency, `podwright[report]`.
"""

from __future__ import annotations

import html
import importlib.util
import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from podwright.errors import InvalidRequest
from podwright.replay._advice import duration
from podwright.replay._report import Report
from podwright.replay._report_tables import (
    DISTANCE,
    WAYS,
    Cells,
    distance_cells,
    size_cells,
    way_cells,
)
from podwright.replay._report_values import ReportFigures, TraceFigures, UserFigures

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
    yield _table(WAYS, way_cells(figures["ways"]))
    yield "<h2>Devices in use</h2>"
    yield _svg(_drawings.used(report))
    yield "<h2>Waits by size</h2>"
    yield _svg(_drawings.waits(report))
    header = ["way", "devices", "jobs", "device-hours", "mean", "p50", "p95", "p99"]
    yield _table(header, size_cells(figures["ways"], ("mean", "p50", "p95", "p99")))
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


def _table(header: list[str], rows: Iterable[Cells]) -> str:
    head = "".join(f"<th>{html.escape(word)}" for word in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}" for cell in row) for row in rows
    )
    return f"<table><tr>{head}{body}</table>"


def _users(users: list[UserFigures]) -> str:
    if not users:
        return "<p>The trace names no users, or none has five jobs."
    rows: list[Cells] = [
        [user["user"], user["jobs"], f"{user['device_hours']:,.0f}", duration(user["mean_wait_s"])]
        for user in users
    ]
    return _table(["user", "jobs", "device-hours", "mean wait"], rows)


def _recorded(figures: ReportFigures) -> Iterator[str]:
    before, apart = figures["recorded"], figures["distance"]
    if before is None or apart is None:
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
    yield _table(DISTANCE, distance_cells(apart))


def _left_out(trace: TraceFigures) -> list[str]:
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
