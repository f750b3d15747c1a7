"""What host mapping and static partitions share: a sweep.

Each answers hooks as native mode does: a repeated call gets the same reply. What a hook missed is
settled by the sweep, from Slurm's own list of jobs. Where slurmctld does not answer, nothing is
touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from podwright.errors import PodwrightError
from podwright.guests.slurm.service import HookJob, Site
from podwright.guests.slurm.service._hook_calls import RETRY_INTERVAL_S, JobCalls
from podwright.guests.slurm.service._job_start_text import Life
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.guests.slurm.ways._partition_leases import ServerCaller
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")


class SchedulingWay(JobCalls):
    """One way of scheduling. clock: returns seconds and never goes backwards."""

    def __init__(
        self,
        site: Site,
        server: ServerCaller,
        slurm: Slurm,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(site, slurm, clock)
        self.server = server
        self.swept = 0

    # -- what a way has of its own -----------------------------------------------------------

    @abstractmethod
    async def sweep(self) -> None:
        """Compare everything that is held with Slurm's jobs, once. Raises PodwrightError."""

    # -- what goes on beside -----------------------------------------------------------------

    async def refresh(self) -> None:
        """Do nothing: each step asks the server itself."""

    async def known(self) -> None:
        """Sweep once. Raises PodwrightError."""
        await self.sweep()

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the sweep as a task, which runs until it is cancelled."""
        return (self._sweep_forever(),)

    async def _sweep_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.sweep_wanted.wait(), self.site.sweep_s)
            self.sweep_wanted.clear()
            try:
                await self.sweep()
            except PodwrightError as error:
                _log.warning("sweep: %s", error)
            await asyncio.sleep(RETRY_INTERVAL_S)


def wrong_start_reason(job_start: Life, job: HookJob) -> str:
    """Return why what is held is not for this start of the step's job, or "" if it is."""
    if job.restart not in (None, job_start.restart):
        return (
            f"job {job_start.job} holds nothing for this start, but for start {job_start.restart}"
        )
    if job.submitted is not None and job_start.submitted not in (0, job.submitted):
        return f"an earlier job {job_start.job} holds devices, and this one does not"
    return ""


def is_over(job_number: int, jobs: Mapping[int, Listed]) -> bool:
    """Return whether it is certain that a job holds nothing."""
    listed_job = jobs.get(job_number)
    return listed_job is None or listed_job.over or listed_job.waits
