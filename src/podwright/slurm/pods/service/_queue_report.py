"""Slurm's queue, told to the server, so that it is shown beside the server's own waiting line."""

from __future__ import annotations

import logging
import pwd
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from podwright.errors import PodwrightError
from podwright.slurm.pods.service._queue import Listed
from podwright.wire import JobInfo

_log = logging.getLogger("podwright.slurm")
MOST: Final = 2000  #: jobs; the server takes no more
AGAIN: Final = 60.0  #: seconds after which the same is said again


class WaitingJob(NamedTuple):
    """A job that waits for devices. asked: how many of what. needs: what it waits for."""

    job: Listed
    asked: str
    needs: str
    cluster: str = ""
    allocation: str = ""


class Hears(Protocol):
    """A server that is told."""

    async def report(self, jobs: list[JobInfo]) -> None:
        """All jobs that wait, first first. Raises wire.PodwrightError."""
        ...


class QueueReport:
    """Tells the server what has changed. clock: seconds, never backwards."""

    def __init__(self, server: Hears, clock: Callable[[], float]) -> None:
        self._server, self._clock = server, clock
        self._said: list[JobInfo] = []
        self._at = -AGAIN
        self._refused = False

    async def tell(self, waiting: Iterable[WaitingJob]) -> None:
        """What waits now. A server that does not hear it stops nothing."""
        jobs = in_order(waiting)
        now = self._clock()
        if jobs == self._said and now < self._at + AGAIN:
            return
        try:
            await self._server.report(jobs)
        except PodwrightError as error:
            if not self._refused:
                _log.info("the server does not show Slurm's queue: %s", error)
            self._refused = True
            return
        self._said, self._at, self._refused = jobs, now, False


def in_order(waiting: Iterable[WaitingJob]) -> list[JobInfo]:
    """Jobs as Slurm looks at them: by priority, then by number (slurm.conf(5), sched/builtin)."""
    first = sorted(waiting, key=lambda one: (-one.job.priority, one.job.job))[:MOST]
    return [
        JobInfo(
            id=str(job.job),
            place=place,
            owner=_name(job.uid),
            asked=asked,
            needs=needs,
            priority=min(job.priority, 2**31 - 1),
            since=float(job.submitted),
            cluster=cluster,
            allocation=allocation,
        )
        for place, (job, asked, needs, cluster, allocation) in enumerate(first, 1)
    ]


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return "" if uid < 0 else str(uid)
