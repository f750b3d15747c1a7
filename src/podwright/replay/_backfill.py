"""What is free over time, as backfill plans with it: counts of nodes, or of GPUs."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterable


class Profile:
    """Free units from `now` on, which later reservations take from.

    ends: (time, units) of what runs now and comes free then. Times are of one clock.
    """

    def __init__(self, now: float, free: int, ends: Iterable[tuple[float, int]]) -> None:
        self._times = [now]
        self._free = [free]
        for at, units in sorted(ends):
            if at <= self._times[-1]:
                self._free[-1] += units
            elif at < math.inf:
                self._times.append(at)
                self._free.append(self._free[-1] + units)

    @property
    def now(self) -> int:
        """Units that are free at the beginning."""
        return self._free[0]

    def earliest(self, units: int, length: float, until: float) -> float:
        """When `units` are first free for so long; infinite where that is not before `until`."""
        times, free = self._times, self._free
        at = 0
        while at < len(times) and times[at] <= until:
            if free[at] < units:
                at += 1
                continue
            end, look = times[at] + length, at + 1
            while look < len(times) and times[look] < end and free[look] >= units:
                look += 1
            if look == len(times) or times[look] >= end:
                return times[at]
            at = look
        return math.inf

    def reserve(self, begin: float, end: float, units: int) -> None:
        """Nobody else has these in that time."""
        first, last = self._cut(begin), self._cut(end) if end < math.inf else len(self._times)
        for at in range(first, last):
            self._free[at] -= units

    def _cut(self, time: float) -> int:
        """The place in the lists that begins at a time."""
        at = bisect_right(self._times, time) - 1
        if at < 0:
            return 0
        if self._times[at] != time:
            insort(self._times, time)
            self._free.insert(at + 1, self._free[at])
            at += 1
        return at
