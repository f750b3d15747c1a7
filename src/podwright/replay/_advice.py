"""What to change, in words, each with the number behind it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from podwright.replay._trace import Trace


def advice(
    trace: Trace,
    ways: Sequence[Mapping[str, Any]],
    tried: Mapping[str, Mapping[str, Any]],
    base: Mapping[str, Any],
    *,
    rounds: bool = True,
) -> list[str]:
    """Sentences. ways: the figures of each; tried: of `base`, one of these, with one thing
    changed. rounds: do they round sizes up to powers of two?"""
    out = [
        *_best(ways),
        *(_rounding(trace) if rounds else ()),
        *_refused(ways),
        *_tried(base, tried),
        *_limits(trace),
        *_waits(ways),
    ]
    return out or ["Nothing stands out: no way wastes more than another, and few jobs wait."]


def _best(ways: Sequence[Mapping[str, Any]]) -> list[str]:
    # The others are measures: no IPU does so.
    ways = [one for one in ways if not one["way"].endswith((", trim", ", no-shape"))]
    if len(ways) < 2:
        return []
    best = max(ways, key=lambda one: (one["used"], -one["wait"]["mean"]))
    worst = min(ways, key=lambda one: (one["used"], -one["wait"]["mean"]))
    gain = best["used"] - worst["used"]
    if gain < 0.005:
        return []
    return [
        f"Take {best['way']}: it does {best['used']:.1%} of what the devices can, "
        f"{worst['way']} {worst['used']:.1%}; jobs wait {duration(best['wait']['mean'])} on "
        f"average, against {duration(worst['wait']['mean'])}."
    ]


def _rounding(trace: Trace) -> list[str]:
    asked = extra = 0.0
    odd: dict[int, float] = {}
    count = 0
    for devices, runtime in zip(trace.devices, trace.runtime, strict=True):
        asked += devices * runtime
        up = 1 << (devices - 1).bit_length()
        if up != devices:
            count += 1
            extra += (up - devices) * runtime
            odd[devices] = odd.get(devices, 0.0) + (up - devices) * runtime
    out = []
    if extra > 0.01 * asked:
        most = sorted(odd, key=lambda size: (-odd[size], size))[:3]
        out.append(
            f"{count / len(trace):.1%} of the jobs ask for sizes that are no power of two. Rounded "
            f"up, all hold {extra / asked:.1%} more device-hours than they asked for; most of that "
            f"is jobs of {', '.join(map(str, most))}."
        )
    return out


def _refused(ways: Sequence[Mapping[str, Any]]) -> list[str]:
    out = []
    for one in ways:
        refused = sum(one["refused"].values())
        if refused:
            reason = max(one["refused"], key=lambda word: one["refused"][word])
            out.append(
                f"{one['way']} refuses {refused} jobs ({one['refused_device_hours']:,.0f} "
                f"device-hours): {reason}."
            )
    return out


def _tried(first: Mapping[str, Any], tried: Mapping[str, Mapping[str, Any]]) -> list[str]:
    out = []
    for words, found in tried.items():
        used = found["used"] * found["devices"] - first["used"] * first["devices"]
        share = used / max(1e-9, first["used"] * first["devices"])
        wait = found["wait"]["mean"] - first["wait"]["mean"]
        if abs(share) < 0.002 and abs(wait) < max(60.0, 0.02 * first["wait"]["mean"]):
            out.append(f"{words}: no difference worth naming.")
            continue
        more = "more" if share >= 0 else "less"
        out.append(
            f"{words}: {abs(share):.1%} {more} work done in the same time than under "
            f"{first['way']}, and a mean wait of {duration(found['wait']['mean'])} where it is "
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


def _waits(ways: Sequence[Mapping[str, Any]]) -> list[str]:
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
    """A time for people: `45 s`, `12 min`, `3.4 h`, `5.2 d`."""
    for unit, length, until in (("s", 1, 90), ("min", 60, 5400), ("h", 3600, 172800)):
        if seconds < until:
            value = seconds / length
            return f"{value:.1f} {unit}" if unit == "h" else f"{value:.0f} {unit}"
    return f"{seconds / 86400:.1f} d"
