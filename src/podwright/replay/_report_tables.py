"""The tables that the report's text and its page have in common, as headers and cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from podwright.replay._advice import duration
from podwright.replay._report_values import Distance, SizeFigures, WayFigures

Cells = list[object]
WAYS = [
    *("way", "devices", "jobs", "refused", "used", "held", "free, of no use"),
    *("mean wait", "p50", "p95", "p99", "slowdown", "moves"),
]
DISTANCE = ["figure", "recorded", "simulated"]


def way_cells(rows: Iterable[WayFigures]) -> Iterator[Cells]:
    """Yield a row for each way, below WAYS."""
    for row in rows:
        yield [
            row["way"],
            row["devices"],
            row["jobs"],
            sum(row["refused"].values()),
            *(f"{share:.1%}" for share in (row["used"], row["held"], row["free_of_no_use"])),
            *(duration(row["wait"][key]) for key in ("mean", "p50", "p95", "p99")),
            f"{row['bounded_slowdown']['mean']:.1f}",
            row.get("moves", 0),
        ]


def size_cells(rows: Iterable[WayFigures], waits: Iterable[str]) -> Iterator[Cells]:
    """Yield a row for each range of sizes under each way. waits: those of a wait's figures that
    stand at its end.
    """
    for row in rows:
        for size in row["by_size"]:
            yield [
                row["way"],
                size_range(size),
                size["jobs"],
                f"{size['device_hours']:,.0f}",
                *(duration(size["wait"][key]) for key in waits),
            ]


def size_range(size: SizeFigures) -> str:
    """Return the sizes of a row: `8`, `3-4`."""
    low, high = size["from"], size["to"]
    return str(high) if low == high else f"{low}-{high}"


def distance_cells(distance: Distance) -> list[Cells]:
    """Return a row for each figure, below DISTANCE."""
    return [
        ["wait p50", *map(duration, distance["wait_p50_s"])],
        ["wait p95", *map(duration, distance["wait_p95_s"])],
        ["bounded slowdown, mean", *(f"{v:.1f}" for v in distance["bounded_slowdown_mean"])],
        ["used", *(f"{v:.1%}" for v in distance["used"])],
    ]
