"""The tables that the report's text and its page have in common, as headers and cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from podwright.replay._advice import duration
from podwright.replay._report_types import Distance, SizeFigures, WayFigures

Cells = list[object]
WAYS = [
    *("way", "devices", "jobs", "refused", "used", "held", "free, of no use"),
    *("mean wait", "p50", "p95", "p99", "slowdown", "moves"),
]
DISTANCE = ["figure", "recorded", "simulated"]


def way_cells(way_rows: Iterable[WayFigures]) -> Iterator[Cells]:
    """Yield a row for each way, below WAYS."""
    for way_row in way_rows:
        yield [
            way_row["way"],
            way_row["devices"],
            way_row["jobs"],
            sum(way_row["refused"].values()),
            *(
                f"{used_share:.1%}"
                for used_share in (way_row["used"], way_row["held"], way_row["free_of_no_use"])
            ),
            *(duration(way_row["wait"][wait_key]) for wait_key in ("mean", "p50", "p95", "p99")),
            f"{way_row['bounded_slowdown']['mean']:.1f}",
            way_row.get("moves", 0),
        ]


def size_cells(way_rows: Iterable[WayFigures], wait_keys: Iterable[str]) -> Iterator[Cells]:
    """Yield a row for each range of sizes under each way. wait_keys: those of a wait's figures that
    stand at its end.
    """
    for way_row in way_rows:
        for size_row in way_row["by_size"]:
            yield [
                way_row["way"],
                size_range(size_row),
                size_row["jobs"],
                f"{size_row['device_hours']:,.0f}",
                *(duration(size_row["wait"][wait_key]) for wait_key in wait_keys),
            ]


def size_range(size_row: SizeFigures) -> str:
    """Return the sizes of a row: `8`, `3-4`."""
    low, high = size_row["from"], size_row["to"]
    return str(high) if low == high else f"{low}-{high}"


def distance_cells(distance: Distance) -> list[Cells]:
    """Return a row for each figure, below DISTANCE."""
    return [
        ["wait p50", *map(duration, distance["wait_p50_s"])],
        ["wait p95", *map(duration, distance["wait_p95_s"])],
        [
            "bounded slowdown, mean",
            *(f"{figure_value:.1f}" for figure_value in distance["bounded_slowdown_mean"]),
        ],
        ["used", *(f"{figure_value:.1%}" for figure_value in distance["used"])],
    ]
