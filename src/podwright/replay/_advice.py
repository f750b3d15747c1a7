"""The advice of a report: what to change, in sentences with the number behind each. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from podwright.replay._ranking import WayMeasures, clear_winner_index, differ, measures
from podwright.replay._report_types import WayFigures
from podwright.replay.traces._trace import Trace


def advice(
    trace: Trace,
    way_rows: Sequence[WayFigures],
    changed_rows: Mapping[str, WayFigures],
    base_row: WayFigures,
    *,
    noise: WayMeasures,
    rounds: bool = True,
) -> list[str]:
    """Return sentences of advice.

    way_rows: the figures of each way. changed_rows: the figures of `base_row`, which is one of the
    ways, with one thing changed. noise: the differences that do not count. rounds: whether the ways
    round sizes up to powers of two.
    """
    sentences = [
        *_best(way_rows, noise),
        *(_rounding_advice(trace) if rounds else ()),
        *_refused_jobs_advice(way_rows),
        *_what_if_advice(base_row, changed_rows),
        *_time_limit_advice(trace),
        *_longest_wait_advice(way_rows),
    ]
    base_wait = base_row["wait"]
    return sentences or [
        f"Nothing stands out. Under {base_row['way']}, half of the jobs wait up to "
        f"{duration(base_wait['p50'])}, and one in twenty longer than {duration(base_wait['p95'])}."
    ]


def _best(way_rows: Sequence[WayFigures], noise: WayMeasures) -> list[str]:
    # These two serve as measures only: IPUs support neither.
    way_rows = [
        way_row for way_row in way_rows if not way_row["way"].endswith((", trim", ", no-shape"))
    ]
    all_measures = [measures(way_row) for way_row in way_rows]
    if not differ(all_measures, noise):
        return []
    noise_note = (
        f"Differences of up to {noise.used:.1%} of use, {duration(noise.wait)} of mean wait and "
        f"{noise.slowdown:.2g} of mean slowdown are within this trace's noise."
    )
    best_index = clear_winner_index(all_measures, noise)
    if best_index is None:
        ways_text = "; ".join(_measures_text(way_row) for way_row in way_rows)
        return [f"No clear winner: {ways_text}. {noise_note}"]
    runner_up = min(
        (way_row for way_row in way_rows if way_row is not way_rows[best_index]),
        key=lambda way_row: way_row["wait"]["mean"],
    )
    return [
        f"Take {way_rows[best_index]['way']}. {_measures_text(way_rows[best_index])}. The "
        "runner-up: "
        f"{_measures_text(runner_up)}. {noise_note}"
    ]


def _measures_text(way_row: WayFigures) -> str:
    way_measures = measures(way_row)
    return (
        f"{way_row['way']} uses {way_measures.used:.1%} of the devices, with a mean wait of "
        f"{duration(way_measures.wait)} and a mean slowdown of {way_measures.slowdown:.3g}"
    )


def _rounding_advice(trace: Trace) -> list[str]:
    requested_device_s = extra_device_s = 0.0
    extra_by_size: dict[int, float] = {}
    odd_count = 0
    for devices, runtime in zip(trace.devices, trace.runtime, strict=True):
        requested_device_s += devices * runtime
        rounded_size = 1 << (devices - 1).bit_length()
        if rounded_size != devices:
            odd_count += 1
            extra_device_s += (rounded_size - devices) * runtime
            extra_by_size[devices] = (
                extra_by_size.get(devices, 0.0) + (rounded_size - devices) * runtime
            )
    sentences = []
    if extra_device_s > 0.01 * requested_device_s:
        costliest_sizes = sorted(extra_by_size, key=lambda size: (-extra_by_size[size], size))[:3]
        sentences.append(
            f"{odd_count / len(trace):.1%} of the jobs ask for sizes that are not a power of two. "
            f"Rounded up, all hold {extra_device_s / requested_device_s:.1%} more device-hours "
            "than they asked for; "
            f"most of that is jobs of {', '.join(map(str, costliest_sizes))}."
        )
    return sentences


def _refused_jobs_advice(way_rows: Sequence[WayFigures]) -> list[str]:
    sentences = []
    for way_row in way_rows:
        refused_count = sum(way_row["refused"].values())
        if refused_count:
            reason = max(
                way_row["refused"], key=lambda reason_text: way_row["refused"][reason_text]
            )
            sentences.append(
                f"{way_row['way']} refuses {refused_count} jobs "
                f"({way_row['refused_device_hours']:,.0f} "
                f"device-hours): {reason}."
            )
    return sentences


def _what_if_advice(base_row: WayFigures, changed_rows: Mapping[str, WayFigures]) -> list[str]:
    sentences = []
    for change_text, changed_row in changed_rows.items():
        used_difference = (
            changed_row["used"] * changed_row["devices"] - base_row["used"] * base_row["devices"]
        )
        relative_difference = used_difference / max(1e-9, base_row["used"] * base_row["devices"])
        wait_difference_s = changed_row["wait"]["mean"] - base_row["wait"]["mean"]
        if abs(relative_difference) < 0.002 and abs(wait_difference_s) < max(
            60.0, 0.02 * base_row["wait"]["mean"]
        ):
            sentences.append(f"{change_text}: no difference worth naming.")
            continue
        more_or_less = "more" if relative_difference >= 0 else "less"
        sentences.append(
            f"{change_text}: {abs(relative_difference):.1%} {more_or_less} work done in the same "
            "time than under "
            f"{base_row['way']}, and a mean wait of {duration(changed_row['wait']['mean'])} where "
            f"it is {duration(base_row['wait']['mean'])}."
        )
    return sentences


def _time_limit_advice(trace: Trace) -> list[str]:
    limit_shares = [
        min(1.0, runtime / limit)
        for limit, runtime in zip(trace.limit, trace.runtime, strict=True)
        if 0 < limit < math.inf and runtime > 0
    ]
    if len(limit_shares) < 10:
        return []
    median_share = median(limit_shares)
    sentences = []
    if median_share < 0.5:
        sentences.append(
            f"Half of the jobs use less than {median_share:.0%} of their time limit. Slurm plans "
            "by limits: closer ones let it fill gaps."
        )
    unlimited_share = 1 - sum(limit < math.inf for limit in trace.limit) / len(trace)
    if unlimited_share > 0.05:
        sentences.append(
            f"{unlimited_share:.0%} of the jobs have no time limit: Slurm cannot plan around them."
        )
    return sentences


def _longest_wait_advice(way_rows: Sequence[WayFigures]) -> list[str]:
    first_row = way_rows[0]
    size_rows = [size_row for size_row in first_row["by_size"] if size_row["jobs"] >= 5]
    if not size_rows:
        return []
    worst_row = max(size_rows, key=lambda size_row: size_row["wait"]["p95"])
    if worst_row["wait"]["p95"] < 4 * max(60.0, first_row["wait"]["p95"] / 4):
        return []
    sizes_text = (
        str(worst_row["to"])
        if worst_row["from"] == worst_row["to"]
        else f"{worst_row['from']}-{worst_row['to']}"
    )
    return [
        f"Under {first_row['way']}, jobs of {sizes_text} devices wait longest: one in twenty more "
        f"than {duration(worst_row['wait']['p95'])} ({worst_row['jobs']} jobs)."
    ]


def duration(seconds: float) -> str:
    """Return a time for people: `45 s`, `12 min`, `3.4 h`, `5.2 d`."""
    for unit, unit_seconds, threshold_s in (("s", 1, 90), ("min", 60, 5400), ("h", 3600, 172800)):
        if seconds < threshold_s:
            amount = seconds / unit_seconds
            return f"{amount:.1f} {unit}" if unit == "h" else f"{amount:.0f} {unit}"
    return f"{seconds / 86400:.1f} d"
