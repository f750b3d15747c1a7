"""The queues of schedulers as these last reported them. They are shown, and never stored."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from podwright.wire import JobInfo

MOST_SCHEDULERS: Final = 16  #: who spoke last stays
SILENT_AFTER_S: Final = 300.0  #: seconds without a report after which a scheduler has no queue


class ReportedQueues:
    """The last report of each scheduler, by its `guest_key`.

    Times are those of `ControllerState.now`.
    """

    def __init__(self) -> None:
        self._reports: OrderedDict[str, tuple[float, Sequence[JobInfo]]] = OrderedDict()

    def report(self, scheduler: str, jobs: Sequence[JobInfo], now: float) -> bool:
        """Replace a scheduler's queue. Returns whether it is another than before.

        Where there are too many schedulers, the one that has been silent the longest is forgotten.
        """
        previous_jobs = self._reports.pop(scheduler, (0.0, []))[1]
        self._reports[scheduler] = now, jobs
        while len(self._reports) > MOST_SCHEDULERS:
            self._reports.popitem(last=False)
        return jobs != previous_jobs

    def jobs(self, now: float) -> Iterator[tuple[str, JobInfo]]:
        """Each job that waits, with its scheduler: by the scheduler's key, then as reported."""
        for scheduler, (reported_at, jobs) in sorted(self._reports.items()):
            if now - reported_at < SILENT_AFTER_S:
                for job in jobs:
                    yield scheduler, job

    def ages(self, now: float) -> dict[str, float]:
        """The seconds since each scheduler's last report."""
        return {
            scheduler: now - reported_at for scheduler, (reported_at, _) in self._reports.items()
        }
