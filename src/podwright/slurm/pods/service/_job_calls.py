"""What hooks call, for every way of scheduling: a job at a time, patience, and proofs of steps.

Each call may be asked again at any time, by a hook that lost an answer or by a slurmctld that
forgot that it had asked: the answer is the same, and what is gone is gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from podwright.errors import InvalidRequest, NotFound, PodwrightError, Unavailable
from podwright.guests import Freed, Locks
from podwright.slurm.pods.service._job_request import HookJob
from podwright.slurm.pods.service._licence_check import OtherStart
from podwright.slurm.pods.service._pods import Site
from podwright.slurm.pods.service._queue import Listed, Listing
from podwright.slurm.pods.service._retry_limit import RetryLimit
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")
#: Seconds between two looks of a prolog that waits.
LOOK_S = 1.0
_LIVES = ("RUNNING", "CONFIGURING", "SUSPENDED")


class Busy(Unavailable):
    """Somebody else has it, and may give it back."""


class JobCalls(ABC):
    """One way of scheduling, as hooks see it. clock: seconds, never backwards."""

    def __init__(
        self, site: Site, slurm: Slurm, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.site = site
        self.slurm = slurm
        self.clock = clock
        self.retry_limit = RetryLimit(slurm, site.tries)
        self.listing = Listing(slurm)
        self.look = asyncio.Event()  #: set: the sweep should look now
        self.freed = Freed()
        self.lock: Locks[int] = Locks()

    # -- what a way has of its own -----------------------------------------------------------

    @abstractmethod
    async def give(self, job: HookJob) -> str:
        """Give a job its devices, once; what it is told, in lines. Raises Busy for what may come
        right by itself."""

    @abstractmethod
    async def take(self, job: HookJob) -> None:
        """The job holds nothing from here on."""

    @abstractmethod
    async def unproven(self, job: HookJob) -> str:
        """Why a step's job does not hold what it was started for; empty: it does."""

    def proven(self, job: HookJob) -> str:
        """What a step is told whose job holds what it was started for, in lines."""
        return ""

    async def refused(self, job: HookJob, error: PodwrightError) -> PodwrightError:
        """What a hook is told of a start that failed: it counts as a try."""
        return await self.retry_limit.refusal(job, error)

    def waited(self, job: HookJob, seconds: float, *, in_vain: bool) -> None:  # noqa: B027
        """A prolog had to wait."""

    def count_step(self, *, proven: bool) -> None:  # noqa: B027
        """A step that lives asked."""

    # -- what hooks call ---------------------------------------------------------------------

    async def begins(self, job: HookJob) -> str:
        """The job's devices are ready: what it is told, in lines.

        Raises PodwrightError: InvalidRequest is the last word.
        """
        began, told = self.clock(), False
        async with self.lock(job.job):
            while True:
                try:
                    lines = await self.give(job)
                    if told:
                        self.waited(job, self.clock() - began, in_vain=False)
                    return lines
                except Busy as error:
                    left = self.site.patience_s - (self.clock() - began)
                    if left <= 0:
                        self.waited(job, self.clock() - began, in_vain=True)
                        raise await self.refused(job, error) from None
                    if not told:
                        _log.warning("job %d waits in its prolog: %s", job.job, error)
                        told = True
                except (Unavailable, OtherStart):
                    raise  # the server is silent, or this start is over: no try is lost
                except PodwrightError as error:
                    raise await self.refused(job, error) from None
                self.look.set()  # a job that Slurm forgot may sit there
                await self.freed.wait(min(left, LOOK_S))

    async def comment_waiting(self, job: Listed, words: str, holds: Callable[[int], bool]) -> bool:
        """Say in a waiting job's AdminComment what it waits for, unless it has begun since it was
        listed: there stands what its tasks are told. holds: has it got its devices? False: nothing
        was written."""
        lock = self.lock(job.job)
        if lock.locked():
            return False  # its hook is under way, and may wait for what a sweep gives back
        async with lock:
            if holds(job.job):
                return False
            await self.slurm.run(
                "scontrol", "update", f"jobid={job.alone}", f"admincomment={words}"
            )
        return True

    async def ended(self, job: HookJob) -> str:
        """The job holds nothing, and Slurm knows. Raises PodwrightError."""
        async with self.lock(job.job):
            await self.take(job)
        await self.freed.tell()
        return ""

    async def proves(self, job: HookJob) -> str:
        """The step's job holds its devices for this start. Raises PodwrightError: where it does
        not, the step ends, and its job goes back to the queue, held."""
        async with self.lock(job.job):
            problem = await self.unproven(job)
        if not problem:
            self.count_step(proven=True)
            return self.proven(job)
        known = await self.listing.job(job.job)
        if known is None or known.state not in _LIVES:
            raise NotFound(f"job {job.job} is over", asked="a step")  # while its step was under way
        self.count_step(proven=False)
        _log.warning("job %d: a step on %s was ended: %s", job.job, job.hosts, problem)
        words = InvalidRequest(
            f"{problem}: its PrologSlurmctld did not run to its end",
            asked=f"a step of job {job.job}",
        )
        raise await self.retry_limit.refusal(job, words, final=True)
