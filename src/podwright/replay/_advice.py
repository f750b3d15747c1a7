"""The advice of a report: what to change, in sentences with the number behind each. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from podwright.replay._ranking import Measures, differ, measures, winner
from podwright.replay._report_values import WayFigures
from podwright.replay.traces._trace import Trace


def advice(
    trace: Trace,
    ways: Sequence[WayFigures],
    tried: Mapping[str, WayFigures],
    base: WayFigures,
    *,
    noise: Measures,
    rounds: bool = True,
) -> list[str]:
    """Return sentences of advice.

    ways: the figures of each way. tried: the figures of `base`, which is one of the ways, with one
    thing changed. noise: the differences that do not count. rounds: whether the ways round sizes up
    to powers of two.
    """
    out = [
        *_best(ways, noise),
        *(_rounding(trace) if rounds else ()),
        *_refused(ways),
        *_tried(base, tried),
        *_limits(trace),
        *_waits(ways),
    ]
    wait = base["wait"]
    return out or [
        f"Nothing stands out. Under {base['way']}, half of the jobs wait up to "
        f"{duration(wait['p50'])}, and one in twenty longer than {duration(wait['p95'])}."
    ]


def _best(ways: Sequence[WayFigures], noise: Measures) -> list[str]:
    # These two serve as measures only: IPUs support neither.
    ways = [row for row in ways if not row["way"].endswith((", trim", ", no-shape"))]
    all_measures = [measures(row) for row in ways]
    if not differ(all_measures, noise):
        return []
    small = (
        f"Differences of up to {noise.used:.1%} of use, {duration(noise.wait)} of mean wait and "
        f"{noise.slowdown:.2g} of mean slowdown are within this trace's noise."
    )
    best = winner(all_measures, noise)
    if best is None:
        listed = "; ".join(_measured(row) for row in ways)
        return [f"No clear winner: {listed}. {small}"]
    second = min(
        (row for row in ways if row is not ways[best]), key=lambda row: row["wait"]["mean"]
    )
    return [
        f"Take {ways[best]['way']}. {_measured(ways[best])}. The runner-up: "
        f"{_measured(second)}. {small}"
    ]


def _measured(row: WayFigures) -> str:
    measured = measures(row)
    return (
        f"{row['way']} uses {measured.used:.1%} of the devices, with a mean wait of "
        f"{duration(measured.wait)} and a mean slowdown of {measured.slowdown:.3g}"
    )


def _rounding(trace: Trace) -> list[str]:
    requested = extra = 0.0
    odd: dict[int, float] = {}
    count = 0
    for devices, runtime in zip(trace.devices, trace.runtime, strict=True):
        requested += devices * runtime
        rounded_size = 1 << (devices - 1).bit_length()
        if rounded_size != devices:
            count += 1
            extra += (rounded_size - devices) * runtime
            odd[devices] = odd.get(devices, 0.0) + (rounded_size - devices) * runtime
    out = []
    if extra > 0.01 * requested:
        costliest_sizes = sorted(odd, key=lambda size: (-odd[size], size))[:3]
        out.append(
            f"{count / len(trace):.1%} of the jobs ask for sizes that are not a power of two. "
            f"Rounded up, all hold {extra / requested:.1%} more device-hours than they asked for; "
            f"most of that is jobs of {', '.join(map(str, costliest_sizes))}."
        )
    return out


def _refused(ways: Sequence[WayFigures]) -> list[str]:
    out = []
    for row in ways:
        refused = sum(row["refused"].values())
        if refused:
            reason = max(row["refused"], key=lambda word: row["refused"][word])
            out.append(
                f"{row['way']} refuses {refused} jobs ({row['refused_device_hours']:,.0f} "
                f"device-hours): {reason}."
            )
    return out


def _tried(first: WayFigures, tried: Mapping[str, WayFigures]) -> list[str]:
    out = []
    for words, outcomes in tried.items():
        used = outcomes["used"] * outcomes["devices"] - first["used"] * first["devices"]
        share = used / max(1e-9, first["used"] * first["devices"])
        wait = outcomes["wait"]["mean"] - first["wait"]["mean"]
        if abs(share) < 0.002 and abs(wait) < max(60.0, 0.02 * first["wait"]["mean"]):
            out.append(f"{words}: no difference worth naming.")
            continue
        more = "more" if share >= 0 else "less"
        out.append(
            f"{words}: {abs(share):.1%} {more} work done in the same time than under "
            f"{first['way']}, and a mean wait of {duration(outcomes['wait']['mean'])} where it is "
            f"{duration(first['wait']['mean'])}."
        )
    return out


def _limits(trace: Trace) -> list[str]:
    shares = [
        min(1.0, runtime / limit)
        for limit, runtime in zip(trace.limit, trace.runtime, strict=True)
        if 0 < limit < math.inf and runtime > 0
    ]
    if len(shares) < 10:
        return []
    half = median(shares)
    out = []
    if half < 0.5:
        out.append(
            f"Half of the jobs use less than {half:.0%} of their time limit. Slurm plans by "
            "limits: closer ones let it fill gaps."
        )
    endless = 1 - sum(limit < math.inf for limit in trace.limit) / len(trace)
    if endless > 0.05:
        out.append(f"{endless:.0%} of the jobs have no time limit: Slurm cannot plan around them.")
    return out


def _waits(ways: Sequence[WayFigures]) -> list[str]:
    first = ways[0]
    rows = [row for row in first["by_size"] if row["jobs"] >= 5]
    if not rows:
        return []
    worst = max(rows, key=lambda row: row["wait"]["p95"])
    if worst["wait"]["p95"] < 4 * max(60.0, first["wait"]["p95"] / 4):
        return []
    sizes = str(worst["to"]) if worst["from"] == worst["to"] else f"{worst['from']}-{worst['to']}"
    return [
        f"Under {first['way']}, jobs of {sizes} devices wait longest: one in twenty more than "
        f"{duration(worst['wait']['p95'])} ({worst['jobs']} jobs)."
    ]


def duration(seconds: float) -> str:
    """Return a time for people: `45 s`, `12 min`, `3.4 h`, `5.2 d`."""
    for unit, length, until in (("s", 1, 90), ("min", 60, 5400), ("h", 3600, 172800)):
        if seconds < until:
            value = seconds / length
            return f"{value:.1f} {unit}" if unit == "h" else f"{value:.0f} {unit}"
    return f"{seconds / 86400:.1f} d"
