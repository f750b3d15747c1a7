"""The server's counters of its calls: how many, how long, how they ended. No library, no I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

#: Bounds in seconds. A call is counted under the first bound that it does not exceed.
DURATION_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class CallCounts:
    """Totals since the start.

    codes: number of refusals by code. times: for each method, the number of calls up to each of
    BOUNDS and beyond the last, and the sum of their seconds.
    """

    def __init__(self) -> None:
        self.codes: Counter[str] = Counter()
        self.times: dict[str, tuple[list[int], list[float]]] = {}

    def call(self, method: str, seconds: float, refusal_code: str = "") -> None:
        """Count a call that has ended. refusal_code: of its refusal, or empty."""
        counts, total_seconds = self.times.setdefault(
            method, ([0] * (len(DURATION_BOUNDS_S) + 1), [0.0])
        )
        counts[bisect_left(DURATION_BOUNDS_S, seconds)] += 1
        total_seconds[0] += seconds
        if refusal_code:
            self.codes[refusal_code] += 1
