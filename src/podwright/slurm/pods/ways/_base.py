"""What host mapping and static partitions share: a sweep.

Each answers hooks as native mode does: asked again it answers the same, and what a hook missed
the sweep settles by Slurm's own list of jobs. Where slurmctld does not answer, nothing is touched.
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
from podwright.slurm.pods.service import HookJob, Site
from podwright.slurm.pods.service._job_calls import LOOK_S, JobCalls
from podwright.slurm.pods.service._job_start import Life
from podwright.slurm.pods.service._queue import Listed
from podwright.slurm.pods.ways._partition_leases import ServerCaller
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")


class Way(JobCalls):
    """One way of scheduling. clock: seconds, never backwards."""

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
        """One look at all that is held. Raises PodwrightError."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What an administrator watches."""

    # -- what goes on beside -----------------------------------------------------------------

    async def held(self) -> None:
        """Nothing: what steps ask is asked of the server itself."""

    async def known(self) -> None:
        """One sweep. Raises PodwrightError."""
        await self.sweep()

    def beside(self) -> Sequence[Coroutine[Any, Any, None]]:
        """The sweep, until it is cancelled."""
        return (self._sweeping(),)

    async def close(self) -> None:
        """The last word to Slurm: none, where it counts nothing."""
        self.look.clear()

    async def _sweeping(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.look.wait(), self.site.sweep_s)
            self.look.clear()
            try:
                await self.sweep()
            except PodwrightError as error:
                _log.warning("sweep: %s", error)
            await asyncio.sleep(LOOK_S)


def is_not(who: Life, job: HookJob) -> str:
    """Why what is held is not for this start of the step's job; empty: it is."""
    if job.restart not in (None, who.restart):
        return f"job {who.job} holds nothing for this start, but for start {who.restart}"
    if job.submitted is not None and who.submitted not in (0, job.submitted):
        return f"an earlier job {who.job} holds devices, and this one does not"
    return ""


def is_over(job: int, jobs: Mapping[int, Listed]) -> bool:
    """Is it sure that a job holds nothing?"""
    found = jobs.get(job)
    return found is None or found.over or found.waits
