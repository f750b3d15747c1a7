"""The free units over time, with which backfill plans: counts of nodes, or of GPUs."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterable


class FreeUnitsProfile:
    """The units that are free from `now` on. Later reservations take from them.

    ends: (time, units) of what runs now and becomes free then. All times are of one clock.
    """

    def __init__(self, now: float, free: int, end_times: Iterable[tuple[float, int]]) -> None:
        self._times = [now]
        self._free = [free]
        for end_time, units in sorted(end_times):
            if end_time <= self._times[-1]:
                self._free[-1] += units
            elif end_time < math.inf:
                self._times.append(end_time)
                self._free.append(self._free[-1] + units)

    @property
    def now(self) -> int:
        """The units that are free at the beginning."""
        return self._free[0]

    def earliest(self, units: int, duration_s: float, latest_start: float) -> float:
        """Return when `units` are first free for the whole length; infinite if not before
        `latest_start`.
        """
        times, free_units = self._times, self._free
        start_index = 0
        while start_index < len(times) and times[start_index] <= latest_start:
            if free_units[start_index] < units:
                start_index += 1
                continue
            interval_end, stop_index = times[start_index] + duration_s, start_index + 1
            while (
                stop_index < len(times)
                and times[stop_index] < interval_end
                and free_units[stop_index] >= units
            ):
                stop_index += 1
            if stop_index == len(times) or times[stop_index] >= interval_end:
                return times[start_index]
            start_index = stop_index
        return math.inf

    def reserve(self, begin: float, end: float, units: int) -> None:
        """Take these units out of the profile for that time."""
        first_index, end_index = (
            self._time_index(begin),
            self._time_index(end) if end < math.inf else len(self._times),
        )
        for index in range(first_index, end_index):
            self._free[index] -= units

    def _time_index(self, time: float) -> int:
        """Return the index in the lists at which a time begins."""
        index = bisect_right(self._times, time) - 1
        if index < 0:
            return 0
        if self._times[index] != time:
            insort(self._times, time)
            self._free.insert(index + 1, self._free[index])
            index += 1
        return index
