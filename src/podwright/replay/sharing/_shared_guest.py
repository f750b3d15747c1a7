"""A guest of a shared pod with its recorded jobs, and those of them that wait in a simulation."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from podwright.replay._outcome import Outcome, Series
from podwright.replay.traces._trace import Trace

PEOPLE: Final = "people"
SLURM: Final = "slurm"
KUBERNETES: Final = "kubernetes"
#: Seconds that the first job of an operator waits before devices in use are kept for it.
OPERATOR_ROOM_S: Final = 60.0


@dataclass(frozen=True)
class SharedGuest:
    """A guest, and its jobs.

    name: `slurm`, `kubernetes`, `kubernetes NAME` or `people`. weight: its share, 1 by default.
    begin: when its trace begins, in seconds of the clock that all guests have in common. room_s:
    how long its first job waits before devices in use are kept for it; 0: they never are.
    """

    name: str
    trace: Trace
    weight: float = 1.0
    begin: float = 0.0
    room_s: float = OPERATOR_ROOM_S

    @property
    def last_submission(self) -> float:
        """Seconds of the common clock."""
        return self.begin + self.trace.span


class GuestJobs:
    """The jobs of a guest in one simulation, in the guest's own order: first come, first served.

    outcome: by the clock of the guest's trace. running: the devices of each running job, as bits.
    first, since: the first waiting job at the last look, and when it was first seen there. closed:
    the devices of a block that the guest does not count before all of it is free, as bits.
    closed_for: the job that this is for.
    """

    def __init__(self, guest: SharedGuest, devices: int) -> None:
        self.guest = guest
        self.running: dict[int, int] = {}
        self.first: int | None = None
        self.since = 0.0
        self.closed, self.closed_for = 0, -1
        trace = guest.trace
        no_times = array("d", [math.nan]) * len(trace)
        self.outcome = Outcome(
            guest.name, devices, no_times, array("d", no_times), Series.over(trace.span)
        )
        self._heaps: dict[int, list[tuple[float, int]]] = {}
        self._behind: dict[int, list[int]] = {}
        self._eligible = array("d", trace.eligible)
        largest_order = devices.bit_length() - 1
        self._refused = {job for job in range(len(trace)) if self.order(job) > largest_order}
        if self._refused:
            refused_seconds = sum(trace.devices[job] * trace.runtime[job] for job in self._refused)
            self.outcome.refused[f"more than {1 << largest_order} devices"] = len(self._refused)
            self.outcome.refused_seconds = refused_seconds

    def order(self, job: int) -> int:
        """Return the order of the block that a job gets: 2**order devices."""
        return (self.guest.trace.devices[job] - 1).bit_length()

    def arrivals(self) -> Iterator[tuple[float, int]]:
        """Return the jobs that wait for no other, each with its time on the common clock."""
        trace = self.guest.trace
        for job in range(len(trace)):
            predecessor = trace.after[job]
            if job in self._refused:
                continue
            if predecessor >= 0 and predecessor not in self._refused:
                self._behind.setdefault(predecessor, []).append(job)
            else:
                yield self.guest.begin + trace.eligible[job], job

    def push(self, job: int) -> None:
        """Add a job to those that wait."""
        order_heap = self._heaps.setdefault(self.order(job), [])
        heappush(order_heap, (self._eligible[job], job))

    def pop(self, order: int) -> None:
        """Remove the first job that waits for a block of this order."""
        heappop(self._heaps[order])
        if not self._heaps[order]:
            del self._heaps[order]

    def heads(self) -> list[tuple[float, int]]:
        """Return the first waiting job of each order, with its rank."""
        return [order_heap[0] for order_heap in self._heaps.values()]

    def first_waiting(self) -> int | None:
        """Return the first job that waits; None if none does."""
        return min(self.heads())[1] if self._heaps else None

    def waiting(self) -> int:
        """Return the number of waiting jobs."""
        return sum(map(len, self._heaps.values()))

    def began(self, job: int, device_bits: int, now: float) -> float:
        """Note that a job has begun on these devices. Returns when it ends."""
        outcome, trace_time = self.outcome, now - self.guest.begin
        self.running[job] = device_bits
        outcome.start_times[job] = trace_time
        outcome.where.extend(
            (job, (device_bits & -device_bits).bit_length() - 1, device_bits.bit_count())
        )
        outcome.when.extend((trace_time, trace_time + self.guest.trace.runtime[job]))
        return now + self.guest.trace.runtime[job]

    def over(self, job: int, now: float) -> list[int]:
        """Note that a job is over. Returns the jobs that have waited for that."""
        trace_time = now - self.guest.begin
        self.outcome.end_times[job] = trace_time
        del self.running[job]
        released = self._behind.pop(job, [])
        for dependent in released:
            self._eligible[dependent] = max(self._eligible[dependent], trace_time)
        return released

    def limit(self, job: int) -> float:
        """Return a job's time limit; infinite where it is not known."""
        limit_s = self.guest.trace.limit[job]
        return math.inf if math.isnan(limit_s) else limit_s

    def finish(self) -> None:
        """Note what never started."""
        if self.guest.trace.has_dependencies:
            self.outcome.eligible = self._eligible
        for reason, job_count in (
            ("never started", self.waiting()),
            ("wait for a job that never ends", sum(map(len, self._behind.values()))),
        ):
            if job_count:
                self.outcome.refused[reason] = job_count
