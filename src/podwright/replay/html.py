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
from podwright.replay._report_types import ReportFigures, TraceFigures, UserFigures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE_CSS = """
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

    report_figures = report.figures
    trace_figures = report_figures["trace"]
    title = f"Replay of {trace_figures['source']}"
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
    yield f"<style>{_PAGE_CSS}</style><h1>{html.escape(title)}</h1>"
    yield (
        f"<p>{trace_figures['jobs']} jobs of {trace_figures['users']} users in "
        f"{trace_figures['days']:.1f} days, "
        f"{trace_figures['device_hours']:,.0f} device-hours, up to {trace_figures['largest']} "
        "devices."
    )
    yield "<h2>What to change</h2>"
    yield _list_html(report_figures["what_to_change"])
    yield "<h2>Each way</h2>"
    yield _table_html(WAYS, way_cells(report_figures["ways"]))
    yield "<h2>Devices in use</h2>"
    yield _svg(_drawings.used(report))
    yield "<h2>Waits by size</h2>"
    yield _svg(_drawings.waits(report))
    size_header = ["way", "devices", "jobs", "device-hours", "mean", "p50", "p95", "p99"]
    yield _table_html(
        size_header, size_cells(report_figures["ways"], ("mean", "p50", "p95", "p99"))
    )
    yield "<h2>How long jobs wait</h2>"
    yield _svg(_drawings.distribution(report))
    if len(report.outcomes[0].where):
        first_way = html.escape(report.outcomes[0].way)
        yield f"<h2>Who was where, under {first_way}</h2>"
        yield _svg(_drawings.gantt(report))
    yield "<h2>Who waits most</h2>"
    yield _user_table_html(report_figures["ways"][0]["users"])
    yield from _recorded_html(report_figures)
    yield "<h2>How far to trust this</h2>"
    yield _list_html(
        [
            *_left_out_sentences(trace_figures),
            *trace_figures["notes"],
            *report_figures["deviations"],
            *report_figures["simpler"],
        ]
    )
    yield "</html>"


def _list_html(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(sentence)}" for sentence in sentences) + "</ul>"


def _table_html(header: list[str], rows: Iterable[Cells]) -> str:
    header_html = "".join(f"<th>{html.escape(heading)}" for heading in header)
    rows_html = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}" for cell in row) for row in rows
    )
    return f"<table><tr>{header_html}{rows_html}</table>"


def _user_table_html(users: list[UserFigures]) -> str:
    if not users:
        return "<p>The trace names no users, or none has five jobs."
    user_rows: list[Cells] = [
        [user["user"], user["jobs"], f"{user['device_hours']:,.0f}", duration(user["mean_wait_s"])]
        for user in users
    ]
    return _table_html(["user", "jobs", "device-hours", "mean wait"], user_rows)


def _recorded_html(report_figures: ReportFigures) -> Iterator[str]:
    recorded_figures, distance_figures = report_figures["recorded"], report_figures["distance"]
    if recorded_figures is None or distance_figures is None:
        return
    yield "<h2>As recorded</h2>"
    yield (
        f"<p>{recorded_figures['jobs']} jobs began, {recorded_figures['overlapping']} beside "
        "others; at most "
        f"{recorded_figures['peak']} devices were in use. On the first way's devices "
        f"{recorded_figures['placed']} find "
        f"their place as they began, {recorded_figures['without_shape']} find enough devices and "
        "no shape, "
        f"{recorded_figures['without_room']} too few, {recorded_figures['refused']} are refused. "
        f"Jobs used {recorded_figures['used']:.1%} of these devices; "
        f"{recorded_figures['free_of_no_use']:.1%} were free while a "
        "job found no shape."
        "<p>The simulated Slurm beside the recorded one, on as many devices without shape:"
    )
    yield _table_html(DISTANCE, distance_cells(distance_figures))


def _left_out_sentences(trace_figures: TraceFigures) -> list[str]:
    sentences = [
        f"Left out: {job_count} {reason}."
        for reason, job_count in trace_figures["left_out"].items()
    ]
    if trace_figures["bad_lines"]:
        bad_lines_text = "; ".join(
            f"line {bad_line['number']}: {bad_line['problem']}"
            for bad_line in trace_figures["bad_lines_shown"]
        )
        sentences.append(f"{trace_figures['bad_lines']} lines could not be read: {bad_lines_text}.")
    return sentences


def _svg(figure: Figure) -> str:
    svg_buffer = io.StringIO()
    figure.savefig(svg_buffer, format="svg", metadata={"Date": None})
    return svg_buffer.getvalue()[svg_buffer.getvalue().index("<svg") :]
