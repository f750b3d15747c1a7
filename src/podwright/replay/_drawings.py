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
_GANTT_BAR_LIMIT = 3000


def used(report: Report) -> Figure:
    """Draw the devices that jobs asked for and had, and those free of no use, over time."""
    outcomes = report.outcomes
    figure = Figure(figsize=(10, 1.7 * len(outcomes) + 0.6), layout="constrained")
    axes = figure.subplots(len(outcomes), 1, sharex=True, squeeze=False)[:, 0]
    bin_count = int(report.trace.span / outcomes[0].series.width) + 1
    for axis, outcome in zip(axes, outcomes, strict=True):
        bin_seconds = outcome.series.width
        device_areas = [
            np.asarray(area)[:bin_count] / bin_seconds for area in _device_area_parts(outcome)
        ]
        bin_days = (np.arange(len(device_areas[0])) + 0.5) * bin_seconds / _DAY
        axis.stackplot(
            bin_days,
            *device_areas,
            labels=("asked for and in use", "rounded up", "free, of no use"),
            colors=("#2a6f97", "#a9d6e5", "#e07a5f"),
            linewidth=0,
        )
        axis.axhline(outcome.size, color="#444", linewidth=0.8)
        axis.set_title(outcome.way, loc="left", fontsize=10)
        axis.set_ylim(0, outcome.size * 1.05)
        axis.set_ylabel("devices")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    axes[-1].set_xlim(0, bin_count * outcomes[0].series.width / _DAY)
    axes[-1].set_xlabel("days")
    return figure


def _device_area_parts(outcome: Outcome) -> list[Any]:
    useful = np.asarray(outcome.series.useful)
    occupied = np.asarray(outcome.series.occupied)
    return [useful, np.maximum(0.0, occupied - useful), np.asarray(outcome.series.stuck)]


def waits(report: Report) -> Figure:
    """Draw the median and the 95th percentile of the waits of each size of jobs."""
    way_rows = report.figures["ways"]
    upper_sizes = sorted({size["to"] for way_row in way_rows for size in way_row["by_size"]})
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axis = figure.subplots()
    bar_width = 0.8 / len(way_rows)
    for way_index, way_row in enumerate(way_rows):
        waits_by_size = {size["to"]: size["wait"] for size in way_row["by_size"]}
        for percentile, alpha in (("p95", 0.45), ("p50", 1.0)):
            wait_hours = [
                waits_by_size[upper_size][percentile] / _HOUR
                if upper_size in waits_by_size
                else 0.0
                for upper_size in upper_sizes
            ]
            bar_positions = np.arange(len(upper_sizes)) - 0.4 + (way_index + 0.5) * bar_width
            bar_label = f"{way_row['way']}, {percentile}"
            axis.bar(
                bar_positions,
                wait_hours,
                bar_width * 0.9,
                color=f"C{way_index}",
                alpha=alpha,
                label=bar_label,
            )
    axis.set_xticks(
        range(len(upper_sizes)),
        [f"up to {size}" if size > 2 else str(size) for size in upper_sizes],
    )
    axis.set_yscale("symlog", linthresh=0.1)
    axis.set_xlabel("devices")
    axis.set_ylabel("hours")
    figure.legend(loc="outside upper left", fontsize=8, ncols=len(way_rows))
    return figure


def distribution(report: Report) -> Figure:
    """Draw how many jobs wait at most how long: under each way, and of each size under the first
    way.
    """
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    way_axis, size_axis = figure.subplots(1, 2, sharey=True)
    eligible_times = np.asarray(report.trace.eligible)
    for outcome in report.outcomes:
        _draw_wait_distribution(
            way_axis, np.asarray(outcome.start_times) - eligible_times, outcome.way
        )
    first_outcome = report.outcomes[0]
    first_waits = np.asarray(first_outcome.start_times) - eligible_times
    job_devices = np.asarray(report.trace.devices)
    for size_row in report.figures["ways"][0]["by_size"]:
        size_mask = (job_devices >= size_row["from"]) & (job_devices <= size_row["to"])
        _draw_wait_distribution(size_axis, first_waits[size_mask], size_range(size_row))
    for axis in (way_axis, size_axis):
        axis.set_xscale("log")
        axis.set_xlabel("hours of waiting, at most")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    way_axis.set_ylabel("% of the jobs")
    way_axis.set_title("all jobs", loc="left", fontsize=10)
    size_axis.set_title(f"by devices, {first_outcome.way}", loc="left", fontsize=10)
    return figure


def _draw_wait_distribution(axis: Any, waits: Any, curve_label: str) -> None:
    wait_hours = np.sort(np.maximum(waits[~np.isnan(waits)], 1.0)) / _HOUR
    if not len(wait_hours):
        return
    sample_indices = np.linspace(0, len(wait_hours) - 1, min(500, len(wait_hours))).astype(int)
    axis.plot(
        wait_hours[sample_indices], 100 * (sample_indices + 1) / len(wait_hours), label=curve_label
    )


def gantt(report: Report) -> Figure:
    """Draw devices by time, with a bar for each job, as wide as its devices."""
    outcome, trace = report.outcomes[0], report.trace
    device_rows = np.asarray(outcome.where).reshape(-1, 3)[:_GANTT_BAR_LIMIT]
    time_rows = np.asarray(outcome.when).reshape(-1, 2)[:_GANTT_BAR_LIMIT] / _DAY
    jobs, begin_days, end_days = device_rows[:, 0], time_rows[:, 0], time_rows[:, 1]
    first_device, end_device = device_rows[:, 1], device_rows[:, 1] + device_rows[:, 2]
    bar_corners = np.stack(
        [
            np.stack(corner, axis=1)
            for corner in (
                (begin_days, first_device),
                (end_days, first_device),
                (end_days, end_device),
                (begin_days, end_device),
            )
        ],
        axis=1,
    )
    user_indices = np.asarray(trace.user)[jobs]
    figure = Figure(figsize=(10, 5), layout="constrained")
    axis = figure.subplots()
    bar_colours = mpl.colormaps["tab20"](user_indices % 20)
    axis.add_collection(
        PolyCollection(
            list(bar_corners), facecolors=bar_colours, edgecolors="white", linewidths=0.2
        )
    )
    axis.set_xlim(float(np.nanmin(begin_days)), float(np.nanmax(end_days)))
    axis.set_ylim(0, outcome.size)
    axis.set_xlabel("days; a colour for each user" + _shown_bars_note(len(outcome.where) // 3))
    axis.set_ylabel("device")
    return figure


def _shown_bars_note(bar_count: int) -> str:
    return (
        f"; the first {_GANTT_BAR_LIMIT} of {bar_count} bars"
        if bar_count > _GANTT_BAR_LIMIT
        else ""
    )
