"""The report's drawings. The same report gives the same bytes."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from podwright.replay._outcome import Outcome
from podwright.replay._report import Report
from podwright.replay._report_tables import size_range

mpl.rcParams["svg.hashsalt"] = "podwright"
mpl.rcParams["svg.fonttype"] = "none"

_DAY, _HOUR = 86400.0, 3600.0
#: The limit of jobs that are drawn one by one. A longer trace is drawn only for its first days that
#: have at most that many.
_GANTT = 3000


def used(report: Report) -> Figure:
    """Draw the devices that jobs asked for and had, and those free of no use, over time."""
    outcomes = report.outcomes
    figure = Figure(figsize=(10, 1.7 * len(outcomes) + 0.6), layout="constrained")
    axes = figure.subplots(len(outcomes), 1, sharex=True, squeeze=False)[:, 0]
    last = int(report.trace.span / outcomes[0].series.width) + 1
    for axis, out in zip(axes, outcomes, strict=True):
        width = out.series.width
        parts = [np.asarray(part)[:last] / width for part in _parts(out)]
        days = (np.arange(len(parts[0])) + 0.5) * width / _DAY
        axis.stackplot(
            days,
            *parts,
            labels=("asked for and in use", "rounded up", "free, of no use"),
            colors=("#2a6f97", "#a9d6e5", "#e07a5f"),
            linewidth=0,
        )
        axis.axhline(out.size, color="#444", linewidth=0.8)
        axis.set_title(out.way, loc="left", fontsize=10)
        axis.set_ylim(0, out.size * 1.05)
        axis.set_ylabel("devices")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    axes[-1].set_xlim(0, last * outcomes[0].series.width / _DAY)
    axes[-1].set_xlabel("days")
    return figure


def _parts(out: Outcome) -> list[Any]:
    useful = np.asarray(out.series.useful)
    occupied = np.asarray(out.series.occupied)
    return [useful, np.maximum(0.0, occupied - useful), np.asarray(out.series.stuck)]


def waits(report: Report) -> Figure:
    """Draw the median and the 95th percentile of the waits of each size of jobs."""
    rows = report.figures["ways"]
    sizes = sorted({size["to"] for row in rows for size in row["by_size"]})
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axis = figure.subplots()
    broad = 0.8 / len(rows)
    for row_index, row in enumerate(rows):
        known = {size["to"]: size["wait"] for size in row["by_size"]}
        for key, alpha in (("p95", 0.45), ("p50", 1.0)):
            heights = [known[s][key] / _HOUR if s in known else 0.0 for s in sizes]
            places = np.arange(len(sizes)) - 0.4 + (row_index + 0.5) * broad
            label = f"{row['way']}, {key}"
            axis.bar(places, heights, broad * 0.9, color=f"C{row_index}", alpha=alpha, label=label)
    axis.set_xticks(
        range(len(sizes)), [f"up to {size}" if size > 2 else str(size) for size in sizes]
    )
    axis.set_yscale("symlog", linthresh=0.1)
    axis.set_xlabel("devices")
    axis.set_ylabel("hours")
    figure.legend(loc="outside upper left", fontsize=8, ncols=len(rows))
    return figure


def distribution(report: Report) -> Figure:
    """Draw how many jobs wait at most how long: under each way, and of each size under the first
    way.
    """
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    ways, sizes = figure.subplots(1, 2, sharey=True)
    eligible = np.asarray(report.trace.eligible)
    for out in report.outcomes:
        _share(ways, np.asarray(out.start_times) - eligible, out.way)
    first = report.outcomes[0]
    waited = np.asarray(first.start_times) - eligible
    devices = np.asarray(report.trace.devices)
    for size in report.figures["ways"][0]["by_size"]:
        of_size = (devices >= size["from"]) & (devices <= size["to"])
        _share(sizes, waited[of_size], size_range(size))
    for axis in (ways, sizes):
        axis.set_xscale("log")
        axis.set_xlabel("hours of waiting, at most")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    ways.set_ylabel("% of the jobs")
    ways.set_title("all jobs", loc="left", fontsize=10)
    sizes.set_title(f"by devices, {first.way}", loc="left", fontsize=10)
    return figure


def _share(axis: Any, waits: Any, label: str) -> None:
    values = np.sort(np.maximum(waits[~np.isnan(waits)], 1.0)) / _HOUR
    if not len(values):
        return
    points = np.linspace(0, len(values) - 1, min(500, len(values))).astype(int)
    axis.plot(values[points], 100 * (points + 1) / len(values), label=label)


def gantt(report: Report) -> Figure:
    """Draw devices by time, with a bar for each job, as wide as its devices."""
    out, trace = report.outcomes[0], report.trace
    where = np.asarray(out.where).reshape(-1, 3)[:_GANTT]
    when = np.asarray(out.when).reshape(-1, 2)[:_GANTT] / _DAY
    jobs, left, right = where[:, 0], when[:, 0], when[:, 1]
    low, high = where[:, 1], where[:, 1] + where[:, 2]
    corners = np.stack(
        [np.stack(xy, axis=1) for xy in ((left, low), (right, low), (right, high), (left, high))],
        axis=1,
    )
    users = np.asarray(trace.user)[jobs]
    figure = Figure(figsize=(10, 5), layout="constrained")
    axis = figure.subplots()
    colours = mpl.colormaps["tab20"](users % 20)
    axis.add_collection(
        PolyCollection(list(corners), facecolors=colours, edgecolors="white", linewidths=0.2)
    )
    axis.set_xlim(float(np.nanmin(left)), float(np.nanmax(right)))
    axis.set_ylim(0, out.size)
    axis.set_xlabel("days; a colour for each user" + _first(len(out.where) // 3))
    axis.set_ylabel("device")
    return figure


def _first(bars: int) -> str:
    return f"; the first {_GANTT} of {bars} bars" if bars > _GANTT else ""
