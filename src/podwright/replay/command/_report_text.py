"""A replay's report as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from podwright.replay._advice import duration
from podwright.replay._report_tables import DISTANCE, WAYS, distance_cells, size_cells, way_cells
from podwright.replay._report_types import ReportFigures, WayFigures
from podwright.replay.traces._trace import SkippedFigures
from podwright.tables import printable, table


def report_lines(report: ReportFigures) -> Iterator[str]:
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
    yield table(WAYS, way_cells(report["ways"]))
    yield ""
    table_header = ("way", "devices", "jobs", "device-hours", "wait p50", "p95", "p99")
    yield table(table_header, size_cells(report["ways"], ("p50", "p95", "p99")))
    yield from _user_wait_lines(report["ways"][0])
    yield from _recorded_lines(report)
    yield ""
    yield "How far to trust this"
    for note in (*trace["notes"], *report["deviations"], *report["simpler"]):
        yield from item(note)


def item(point_text: str) -> Iterator[str]:
    """Return a point of a list, in lines."""
    yield from textwrap.wrap(point_text, 96, initial_indent="- ", subsequent_indent="  ")


def left_out(trace: SkippedFigures) -> Iterator[str]:
    """Return the lines about what the jobs do not include, and why."""
    for reason, job_count in trace["left_out"].items():
        yield f"left out: {job_count} {reason}"
    if trace["bad_lines"]:
        yield f"{trace['bad_lines']} lines could not be read:"
        for bad_line in trace["bad_lines_shown"]:
            yield (
                f"  line {bad_line['number']}: {bad_line['problem']}: {printable(bad_line['text'])}"
            )
        if trace["bad_lines"] > len(trace["bad_lines_shown"]):
            yield "  ..."


def _user_wait_lines(way_figures: WayFigures) -> Iterator[str]:
    if not way_figures["users"]:
        return
    yield ""
    yield f"Who waits most ({way_figures['way']})"
    yield table(
        ("user", "jobs", "device-hours", "mean wait"),
        (
            (
                printable(user["user"]),
                user["jobs"],
                f"{user['device_hours']:,.0f}",
                duration(user["mean_wait_s"]),
            )
            for user in way_figures["users"]
        ),
    )


def _recorded_lines(report: ReportFigures) -> Iterator[str]:
    recorded_figures, distance_figures = report["recorded"], report["distance"]
    if recorded_figures is None or distance_figures is None:
        return
    yield ""
    yield "As recorded"
    yield (
        f"{recorded_figures['jobs']} jobs began, {recorded_figures['overlapping']} of them beside "
        "others; at most "
        f"{recorded_figures['peak']} devices were in use at once."
    )
    yield (
        f"Given {report['ways'][0]['way']}'s devices when they began: {recorded_figures['placed']} "
        f"find their place, {recorded_figures['without_shape']} find enough devices and no shape, "
        f"{recorded_figures['without_room']} too few, {recorded_figures['refused']} are refused. "
        f"Jobs used {recorded_figures['used']:.1%} of these devices; "
        f"{recorded_figures['free_of_no_use']:.1%} were free while a "
        "job found no shape."
    )
    yield "The simulated Slurm beside the recorded one, on as many devices without shape:"
    yield table(DISTANCE, distance_cells(distance_figures))
