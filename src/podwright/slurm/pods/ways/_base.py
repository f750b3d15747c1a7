"""What host mapping and static partitions share: a job at a time, tries, and a sweep.

Each answers hooks as native mode does: asked again it answers the same, and what a hook missed
the sweep settles by Slurm's own list of jobs. Where slurmctld does not answer, nothing is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from podwright.errors import InvalidRequest, NotFound, PodwrightError, Unavailable
from podwright.slurm.pods.service import Asked, Site, Tries
from podwright.slurm.pods.service._job_start import Life
from podwright.slurm.pods.service._queue import Listed, Listing
from podwright.slurm.pods.ways._partition_leases import ServerCaller
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")
#: Seconds between two looks of a prolog that waits.
_LOOK_S = 1.0


class Way(ABC):
    """One way of scheduling. clock: seconds, never backwards."""

    def __init__(
        self,
        site: Site,
        server: ServerCaller,
        slurm: Slurm,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.site = site
        self.server = server
        self.slurm = slurm
        self.clock = clock
        self.tries = Tries(slurm, site.tries)
        self.listing = Listing(slurm)
        self.look = asyncio.Event()  #: set: the sweep should look now
        self.freed = asyncio.Condition()
        self.swept = 0
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    # -- what a way has of its own -----------------------------------------------------------

    @abstractmethod
    async def give(self, asked: Asked) -> str:
        """Give a job its devices, once. Raises Busy for what may come right by itself."""

    @abstractmethod
    async def take(self, asked: Asked) -> None:
        """The job holds nothing from here on."""

    @abstractmethod
    async def unproven(self, asked: Asked) -> str:
        """Why a step's job does not hold what it was started for; empty: it does."""

    @abstractmethod
    async def sweep(self) -> None:
        """One look at all that is held. Raises PodwrightError."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What an administrator watches."""

    # -- what hooks call ---------------------------------------------------------------------

    async def begins(self, asked: Asked) -> str:
        """The job's devices are ready. Raises PodwrightError: InvalidRequest is the last word."""
        began, told = self.clock(), False
        async with self.lock(asked.number("job")):
            while True:
                try:
                    return await self.give(asked)
                except Busy as error:
                    left = self.site.patience_s - (self.clock() - began)
                    if left <= 0:
                        raise await self.tries.refusal(asked, error) from None
                    if not told:
                        _log.warning("job %s waits in its prolog: %s", asked.job, error)
                        told = True
                except Unavailable:
                    raise  # the server is silent: the hook asks again, and no try is lost
                except PodwrightError as error:
                    raise await self.tries.refusal(asked, error) from None
                self.look.set()  # a job that Slurm forgot may sit there
                async with self.freed:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.freed.wait(), min(left, _LOOK_S))

    async def ended(self, asked: Asked) -> str:
        """The job holds nothing. Raises PodwrightError."""
        async with self.lock(asked.number("job")):
            await self.take(asked)
        await self.tell()
        return ""

    async def proves(self, asked: Asked) -> str:
        """The step's job holds its devices for this start. Raises PodwrightError: where it does
        not, the step ends, and its job goes back to the queue, held."""
        async with self.lock(asked.number("job")):
            problem = await self.unproven(asked)
        if not problem:
            return ""
        known = await self.listing.job(asked.number("job"))
        if known is None or known.state not in ("RUNNING", "CONFIGURING", "SUSPENDED"):
            raise NotFound(f"job {asked.job} is over", asked="a step")
        _log.warning("job %s: a step on %s was ended: %s", asked.job, asked.hosts, problem)
        words = InvalidRequest(
            f"{problem}: its PrologSlurmctld did not run to its end",
            asked=f"a step of job {asked.job}",
        )
        raise await self.tries.refusal(asked, words, final=True)

    # -- what goes on beside -----------------------------------------------------------------

    async def held(self) -> None:  # noqa: B027
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
            await asyncio.sleep(_LOOK_S)

    # -- for both ----------------------------------------------------------------------------

    def lock(self, job: int) -> asyncio.Lock:
        """One thing at a time for a job."""
        lock = self._locks.get(job)
        if lock is None:
            lock = self._locks[job] = asyncio.Lock()
        return lock

    async def tell(self) -> None:
        """Prologs that wait look again."""
        async with self.freed:
            self.freed.notify_all()


class Busy(Unavailable):
    """Somebody else has it, and may give it back."""


def is_not(who: Life, asked: Asked) -> str:
    """Why what is held is not for this start of the step's job; empty: it is."""
    if asked.restart and asked.number("restart") != who.restart:
        return f"job {who.job} holds nothing for this start, but for start {who.restart}"
    if asked.submitted and who.submitted not in (0, asked.number("submitted")):
        return f"an earlier job {who.job} holds devices, and this one does not"
    return ""


def is_over(job: int, jobs: Mapping[int, Listed]) -> bool:
    """Is it sure that a job holds nothing?"""
    found = jobs.get(job)
    return found is None or found.over or found.waits
