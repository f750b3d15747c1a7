"""The differences between ways that a trace cannot tell from chance. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev
from typing import NamedTuple

from podwright.replay._outcome import Outcome
from podwright.replay._outcome_figures import bounded_slowdowns
from podwright.replay.traces._trace import Trace

#: The number of parts of a trace, equal in jobs, over which the difference of two ways is measured.
_TRACE_PART_COUNT = 10
#: Standard errors that a difference has to exceed. With ten parts, chance alone exceeds it in about
#: one case of twenty (Student's t with nine degrees of freedom: 2.26).
_STANDARD_ERRORS_NEEDED = 2.26
#: The smallest differences that count, whatever the noise: of the share that is used, of a mean
#: wait in seconds, of a mean bounded slowdown.
_LEAST_USED, _LEAST_WAIT_S, _LEAST_SLOWDOWN = 0.005, 1.0, 0.01


class WayMeasures(NamedTuple):
    """The measures of a way, or the differences in them that are noise. wait: seconds."""

    used: float
    wait: float
    slowdown: float


def clearly_better(
    first: WayMeasures, second: WayMeasures, noise: WayMeasures
) -> tuple[bool, bool, bool]:
    """Return for each measure whether the first way is better by more than the noise."""
    return (
        first.used - second.used > noise.used,
        second.wait - first.wait > noise.wait,
        second.slowdown - first.slowdown > noise.slowdown,
    )


def trace_noise(trace: Trace, outcomes: Sequence[Outcome]) -> WayMeasures:
    """Return the differences between ways that the trace cannot tell from chance.

    The trace is cut into ten parts with equal numbers of jobs. Two ways differ by a mean in each
    part. The standard error of these differences is the noise of the pair, and the noisiest pair
    counts. Jobs that a way of the pair refuses are left out.
    """
    wait_noise_s, slowdown_noise = _LEAST_WAIT_S, _LEAST_SLOWDOWN
    for index, first in enumerate(outcomes):
        for second in outcomes[index + 1 :]:
            wait_noise_s = max(
                wait_noise_s, _chance_error(_pairs(trace, first, second, slowdown=False))
            )
            slowdown_noise = max(
                slowdown_noise, _chance_error(_pairs(trace, first, second, slowdown=True))
            )
    return WayMeasures(_LEAST_USED, wait_noise_s, slowdown_noise)


def _pairs(trace: Trace, first: Outcome, second: Outcome, *, slowdown: bool) -> list[float]:
    """Return the difference of each job that both ways ran, in the order of the trace."""
    jobs = [
        job
        for job in range(len(trace))
        if not math.isnan(first.start_times[job]) and not math.isnan(second.start_times[job])
    ]
    values_by_way = []
    for outcome in (first, second):
        eligible = trace.eligible if outcome.eligible is None else outcome.eligible
        waits = [max(0.0, outcome.start_times[job] - eligible[job]) for job in jobs]
        values_by_way.append(bounded_slowdowns(trace, jobs, waits) if slowdown else waits)
    return [
        first_value - second_value for first_value, second_value in zip(*values_by_way, strict=True)
    ]


def _chance_error(differences: Sequence[float]) -> float:
    part_size = len(differences) // _TRACE_PART_COUNT
    if not part_size:
        return math.inf if any(differences) else 0.0
    part_means = [
        math.fsum(differences[part_index * part_size : (part_index + 1) * part_size]) / part_size
        for part_index in range(_TRACE_PART_COUNT)
    ]
    return _STANDARD_ERRORS_NEEDED * stdev(part_means) / math.sqrt(_TRACE_PART_COUNT)
