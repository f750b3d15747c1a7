"""The tables of a report, as headers and cells. A column has one unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podwright.replay._report_types import ReportFigures, WayFigures

Cells = list[object]
_UNITS = (("s", 1, 90), ("min", 60, 5400), ("h", 3600, 172800), ("d", 86400, float("inf")))
_WAITS = (("mean wait", "mean"), ("p50", "p50"), ("p95", "p95"), ("p99", "p99"))


def _unit(values: Iterable[float]) -> tuple[str, int]:
    """Return the unit in which the largest of these seconds is read best, and its seconds."""
    largest = max(map(abs, values), default=0.0)
    return next((name, seconds) for name, seconds, end in _UNITS if largest < end)


def _number(value: float, digits: int = 3) -> str:
    """Return a number with so many digits that count, and none of them as an exponent."""
    whole_digits = len(f"{abs(value):.0f}")
    return f"{value:,.{max(0, digits - whole_digits)}f}"


def refused_table(way_rows: Sequence[WayFigures]) -> tuple[list[str], list[Cells]]:
    """Return a row for each way that refuses jobs: the reason is that of most of them."""
    header = ["way", "runs", "refuses", "device-hours refused", "most often"]
    rows: list[Cells] = [
        [
            way["way"],
            way["jobs"],
            sum(way["refused"].values()),
            f"{way['refused_device_hours']:,.0f}",
            max(way["refused"], key=lambda reason: way["refused"][reason]),
        ]
        for way in way_rows
        if way["refused"]
    ]
    return header, rows


def way_table(way_rows: Sequence[WayFigures]) -> tuple[list[str], list[Cells]]:
    """Return a row for each way."""
    columns: list[tuple[str, list[object]]] = [
        ("way", [way["way"] for way in way_rows]),
        ("devices", [way["devices"] for way in way_rows]),
        ("used", [f"{way['used']:.1%}" for way in way_rows]),
        ("held", [f"{way['held']:.1%}" for way in way_rows]),
        ("free, of no use", [f"{way['free_of_no_use']:.1%}" for way in way_rows]),
    ]
    for title, key in _WAITS:
        columns.append(_seconds_column(title, [way["wait"][key] for way in way_rows]))
    slowdowns = [way["bounded_slowdown"]["mean"] for way in way_rows]
    columns.append(("slowdown", [_number(value) for value in slowdowns]))
    for title, counts in (
        ("moves", [way.get("moves", 0) for way in way_rows]),
        ("ended by failures", [way.get("ended_by_failures", 0) for way in way_rows]),
    ):
        if any(counts):
            columns.append((title, list(counts)))
    return _by_rows(columns)


def difference_table(report: ReportFigures) -> tuple[list[str], list[Cells]]:
    """Return a row for each way but the first: how its means differ, in all and in each half."""
    differences = report["differences"]
    columns: list[tuple[str, list[object]]] = [("way", [row["way"] for row in differences])]
    values = [value for row in differences for value in row["wait_s"]]
    unit, seconds = _unit(values)
    for place, title in enumerate((f"mean wait ({unit})", "1st half", "2nd half")):
        cells = [f"{row['wait_s'][place] / seconds:+.2f}" for row in differences]
        columns.append((title, list(cells)))
    for place, title in enumerate(("slowdown", "1st half", "2nd half")):
        cells = [f"{row['bounded_slowdown'][place]:+.2f}" for row in differences]
        columns.append((title, list(cells)))
    return _by_rows(columns)


def _seconds_column(title: str, values: Sequence[float]) -> tuple[str, list[object]]:
    unit, seconds = _unit(values)
    return f"{title} ({unit})", [_number(value / seconds) for value in values]


def _by_rows(columns: Sequence[tuple[str, list[object]]]) -> tuple[list[str], list[Cells]]:
    rows = [list(row) for row in zip(*(cells for _, cells in columns), strict=True)]
    return [title for title, _ in columns], rows
