"""A replay's report as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from podwright.ground.plural import counted
from podwright.ground.tables import printable, table
from podwright.replay._report_tables import difference_table, refused_table, way_table
from podwright.replay._report_types import ReportFigures
from podwright.replay.traces._trace import SkippedFigures


def report_lines(report: ReportFigures) -> Iterator[str]:
    """Return the report's lines: refusals first, then the ways on the jobs that all of them run."""
    trace = report["trace"]
    yield (
        f"{printable(trace['source'])}: {counted(trace['jobs'], 'job')} of "
        f"{counted(trace['users'], 'user')} in "
        f"{trace['days']:.1f} days, {trace['device_hours']:,.0f} device-hours, "
        f"up to {trace['largest']} devices"
    )
    yield from left_out(trace)
    yield ""
    header, rows = refused_table(report["ways"])
    if rows:
        yield "Jobs that a way refuses"
        yield table(header, rows)
        yield "A way that refuses jobs has an emptier pod for the others."
    else:
        yield "No way refuses a job."
    yield ""
    yield f"Waits and slowdowns of the {report['common_jobs']} jobs that all ways run"
    yield table(*way_table(report["ways"]))
    if report["differences"]:
        yield ""
        yield f"Beside {report['ways'][0]['way']}, and in each half of these jobs"
        yield table(*difference_table(report))
        yield "Where the halves disagree, the jobs tell nothing about the two ways."
    yield ""
    yield "How far to trust this"
    for note in (*trace["notes"], *report["deviations"], *report["simpler"]):
        yield from item(note)


def item(point_text: str) -> Iterator[str]:
    """Return a point of a list, in lines."""
    yield from textwrap.wrap(point_text, 96, initial_indent="- ", subsequent_indent="  ")


def left_out(trace: SkippedFigures) -> Iterator[str]:
    """Return the lines about what the jobs do not include, and why."""
    for reason, count in trace["left_out"].items():
        yield f"left out: {count} {reason}"
    if trace["bad_lines"]:
        yield f"{counted(trace['bad_lines'], 'line')} could not be read:"
        for line in trace["bad_lines_shown"]:
            yield (f"  line {line['number']}: {line['problem']}: {printable(line['text'])}")
        if trace["bad_lines"] > len(trace["bad_lines_shown"]):
            yield "  ..."
