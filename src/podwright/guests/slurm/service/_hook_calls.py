"""The calls of hooks, for every way of scheduling: one call at a time for a job, retries, step
checks.

A hook that lost a reply, or a slurmctld that forgot its call, may repeat any call at any time. A
repeated call gets the same reply, and it never gives again what was given back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from podwright.errors import InvalidRequest, NotFound, PodwrightError, Unavailable
from podwright.guests.shared import Freed, Locks
from podwright.guests.slurm.service._hook_job_request import HookJob
from podwright.guests.slurm.service._licence_check import StartIsOver
from podwright.guests.slurm.service._pods_and_licences import Site
from podwright.guests.slurm.service._retry_limit import RetryLimit
from podwright.guests.slurm.service._squeue_jobs import JobListing, Listed
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")
#: Seconds between two attempts of a prolog that waits for devices.
RETRY_INTERVAL_S = 1.0
_LIVING_STATES = ("RUNNING", "CONFIGURING", "SUSPENDED")


class Busy(Unavailable):
    """Another job holds the devices, and may give them back."""


class JobCalls(ABC):
    """One way of scheduling, as hooks see it. clock: returns seconds and never goes backwards."""

    def __init__(
        self, site: Site, slurm: Slurm, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.site = site
        self.slurm = slurm
        self.clock = clock
        self.retry_limit = RetryLimit(slurm, site.tries)
        self.listing = JobListing(slurm)
        self.sweep_wanted = asyncio.Event()  #: set: a sweep is due now
        self.freed = Freed()
        self.lock: Locks[int] = Locks()

    # -- what a way has of its own -----------------------------------------------------------

    @abstractmethod
    async def give(self, job: HookJob) -> str:
        """Give a job its devices, unless it has them already. Return what the job is told, in
        lines.

        Raises Busy where the devices may still come free.
        """

    @abstractmethod
    async def take(self, job: HookJob) -> None:
        """Take back everything that the job holds."""

    @abstractmethod
    async def unproven(self, job: HookJob) -> str:
        """Return why a step's job does not hold what it was started for, or "" if it does."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what an administrator watches."""

    @abstractmethod
    async def refresh(self) -> None:
        """Take over the server's state. From then on steps may ask. Raises PodwrightError."""

    @abstractmethod
    async def known(self) -> None:
        """Take over Slurm's state as well. From then on hooks may ask. Raises PodwrightError."""

    @abstractmethod
    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the background tasks, which run until they are cancelled."""

    async def close(self) -> None:  # noqa: B027
        """Tell Slurm that nothing may start any more."""

    def step_lines(self, job: HookJob) -> str:
        """Return what a step is told whose job holds what it was started for, in lines."""
        return ""

    async def refused(self, job: HookJob, error: PodwrightError) -> PodwrightError:
        """Return the error that a hook gets for a failed start. The start counts as an attempt."""
        return await self.retry_limit.refusal(job, error)

    def waited(self, job: HookJob, seconds: float, *, in_vain: bool) -> None:  # noqa: B027
        """Count a prolog that had to wait. in_vain: it got nothing in the end."""

    def count_step(self, *, valid: bool) -> None:  # noqa: B027
        """Count a step of a living job. valid: whether its job holds its devices."""

    # -- what hooks call ---------------------------------------------------------------------

    async def begin_job(self, job: HookJob) -> str:
        """Give a job its devices, and return what the job is told, in lines.

        A job whose devices are busy waits here for at most `site.patience_s` seconds. Raises
        PodwrightError; an InvalidRequest is final.
        """
        began_at, has_waited = self.clock(), False
        async with self.lock(job.job):
            while True:
                try:
                    job_lines = await self.give(job)
                    if has_waited:
                        self.waited(job, self.clock() - began_at, in_vain=False)
                    return job_lines
                except Busy as error:
                    patience_left_s = self.site.patience_s - (self.clock() - began_at)
                    if patience_left_s <= 0:
                        self.waited(job, self.clock() - began_at, in_vain=True)
                        raise await self.refused(job, error) from None
                    if not has_waited:
                        _log.warning("job %d waits in its prolog: %s", job.job, error)
                        has_waited = True
                except (Unavailable, StartIsOver):
                    raise  # no server, or this start is over: that is not a failed attempt
                except PodwrightError as error:
                    raise await self.refused(job, error) from None
                self.sweep_wanted.set()  # a job that Slurm forgot may hold the devices
                await self.freed.wait(min(patience_left_s, RETRY_INTERVAL_S))

    async def comment_waiting(
        self, job: Listed, waiting_text: str, has_devices: Callable[[int], bool]
    ) -> bool:
        """Write what a waiting job waits for into its AdminComment. Return whether it was written.

        A job that has begun since it was listed is left alone, because its AdminComment then holds
        what its tasks are told. has_devices: whether a job, by its number, has its devices.
        """
        lock = self.lock(job.job)
        if lock.locked():
            return False  # its hook runs, and may wait for what this sweep gives back
        async with lock:
            if has_devices(job.job):
                return False
            await self.slurm.run(
                "scontrol", "update", f"jobid={job.alone}", f"admincomment={waiting_text}"
            )
        return True

    async def end_job(self, job: HookJob) -> str:
        """Take back what a job holds, and tell Slurm. Raises PodwrightError."""
        async with self.lock(job.job):
            await self.take(job)
        await self.freed.notify()
        return ""

    async def failed(self, job: HookJob) -> str:
        """Count a start that the site's own prolog refused. Without that, Slurm would start the job
        again and again.
        """
        problem = InvalidRequest(job.problem or "the site's prolog failed")
        await self.retry_limit.refusal(job, problem)
        return ""

    async def prove_step(self, job: HookJob) -> str:
        """Check that a step's job holds its devices for this start. Return what the step is told,
        in lines.

        Raises PodwrightError where the job does not hold them. The step then ends, and its job goes
        back to the queue, held.
        """
        async with self.lock(job.job):
            problem = await self.unproven(job)
        if not problem:
            self.count_step(valid=True)
            return self.step_lines(job)
        listed_job = await self.listing.job(job.job)
        if listed_job is None or listed_job.state not in _LIVING_STATES:
            # It ended while its step began.
            raise NotFound(f"job {job.job} is over", operation="a step")
        self.count_step(valid=False)
        _log.warning("job %d: a step on %s was ended: %s", job.job, job.hosts, problem)
        step_error = InvalidRequest(
            f"{problem}: its PrologSlurmctld did not run to its end",
            operation=f"a step of job {job.job}",
        )
        raise await self.retry_limit.refusal(job, step_error, final=True)
