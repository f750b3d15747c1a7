"""Reports Slurm's queue to the server, which shows it beside its own queue."""

from __future__ import annotations

import logging
import pwd
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from podwright.errors import PodwrightError
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.wire import JobInfo

_log = logging.getLogger("podwright.slurm")
MAX_REPORTED_JOBS: Final = 2000  #: jobs that the server accepts in one report
RESEND_AFTER_S: Final = 60.0  #: seconds after which an unchanged queue is sent again


class WaitingJob(NamedTuple):
    """A job that waits for devices.

    request: the number and the kind of devices, in words. needs: what it waits for. pod: the type
    of the pod whose devices it waits for.
    """

    job: Listed
    request: str
    needs: str
    cluster: str = ""
    allocation: str = ""
    pod: str = ""


class ReportServer(Protocol):
    """A server that takes the report."""

    async def report(self, jobs: list[JobInfo]) -> None:
        """Report all waiting jobs, in their order. Raises wire.PodwrightError."""
        ...


class QueueReport:
    """Reports Slurm's queue to the server when it changes. clock: returns seconds and never goes
    backwards.
    """

    def __init__(self, report_server: ReportServer, clock: Callable[[], float]) -> None:
        self._server, self._clock = report_server, clock
        self._sent: list[JobInfo] = []
        self._sent_at = -RESEND_AFTER_S
        self._refused = False

    async def send(self, waiting_jobs: Iterable[WaitingJob]) -> None:
        """Send the queue. If the server refuses the report, the rest of the sweep goes on."""
        infos = in_slurm_order(waiting_jobs)
        sent_now = self._clock()
        if infos == self._sent and sent_now < self._sent_at + RESEND_AFTER_S:
            return
        try:
            await self._server.report(infos)
        except PodwrightError as error:
            if not self._refused:
                _log.info("the server does not show Slurm's queue: %s", error)
            self._refused = True
            return
        self._sent, self._sent_at, self._refused = infos, sent_now, False


def in_slurm_order(waiting_jobs: Iterable[WaitingJob]) -> list[JobInfo]:
    """Return the jobs in Slurm's order: by priority, then by number (slurm.conf(5),
    sched/builtin).
    """
    first_jobs = sorted(
        waiting_jobs, key=lambda waiting_job: (-waiting_job.job.priority, waiting_job.job.job)
    )[:MAX_REPORTED_JOBS]
    return [
        JobInfo(
            id=listed_job.name,
            place=place,
            owner=user_name(listed_job.uid),
            asked=devices_text,
            needs=needs_text,
            priority=min(listed_job.priority, 2**31 - 1),
            since=float(listed_job.submitted),
            cluster=cluster,
            allocation=allocation,
        )
        for place, (
            listed_job,
            devices_text,
            needs_text,
            cluster,
            allocation,
            _,
        ) in enumerate(first_jobs, 1)
    ]


@lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    """Return the name of a user, or the number where there is no such user here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return "" if uid < 0 else str(uid)
