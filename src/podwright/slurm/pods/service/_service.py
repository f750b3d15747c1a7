"""What hooks ask for: devices when a job begins, and their end when it ends.

Both may be asked again at any time, by a hook that lost an answer or by a slurmctld that forgot
that it had asked: the same job gets the same partition, and what is gone is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from weakref import WeakValueDictionary

import msgspec

from podwright.errors import (
    AlreadyExists,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PodwrightError,
    Unavailable,
    WrongState,
)
from podwright.slurm.pods.service._book import Book, Holding
from podwright.slurm.pods.service._het import Heterogeneous
from podwright.slurm.pods.service._job_request import Asked
from podwright.slurm.pods.service._licence_check import Differs, wanted
from podwright.slurm.pods.service._pods import HET_WAIT, Site
from podwright.slurm.pods.service._queue import Listed, Listing, listed
from podwright.slurm.pods.service._retry_limit import Tries
from podwright.slurm.pods.service._sync import Counts
from podwright.slurm.pods.service._vipu_server import JobServer
from podwright.slurm.site.commands import Slurm
from podwright.wire import PartitionSpec, ReadyState

_log = logging.getLogger("podwright.slurm")
#: Seconds for the last word to Slurm.
CLOSE_S = 10.0


class ServiceFigures(msgspec.Struct):
    """What happened since the start. waited: jobs that waited in their prolog, for shape;
    waited_s: seconds of that. refused: jobs that were sent away. swept: partitions that a hook
    should have ended. held: jobs whose request and licences differ. proven: steps that
    began; unproven: those that were ended, since their job did not hold its devices. bare: jobs
    that ran without."""

    begun: int = 0
    ended: int = 0
    held: int = 0
    proven: int = 0
    unproven: int = 0
    bare: int = 0
    waited: int = 0
    waited_s: float = 0.0
    refused: int = 0
    swept: int = 0


class Service:
    """All pods of one Slurm. clock: seconds, never backwards."""

    def __init__(
        self,
        site: Site,
        server: JobServer,
        slurm: Slurm,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.site = site
        self.server = server
        self.slurm = slurm
        self.clock = clock
        self.books = {pod.type: Book(pod) for pod in site.pods}
        self.figures = ServiceFigures()
        self.counts = Counts(slurm, self.hidden)
        self.changed = asyncio.Condition()
        self.het = Heterogeneous(site, slurm, self.books, self.counts, clock)
        self.had: set[tuple[int, int]] = set()  #: starts that held their devices: job, restart
        self.look = asyncio.Event()  #: set: the sweep should look now
        self.tries = Tries(slurm, site.tries)
        self._listing = Listing(slurm)
        self._closed = False
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    # -- what hooks call ---------------------------------------------------------------------

    async def begins(self, asked: Asked) -> str:
        """The partition stands: its environment, in lines. Raises PodwrightError."""
        job, restart = asked.number("job"), asked.number("restart")
        known = await self._known(asked)
        try:
            wants = wanted(asked, known, self.site)
            if wants is None:
                return ""
            pod, size, gcds = wants
            if size < 1 or size & (size - 1) or size > pod.largest:
                raise Differs(f"no partition has {size} devices", asked=f"job {job}")
        except Differs as error:
            self.figures.held += 1
            raise await self.tries.refusal(asked, error, final=True) from None
        book = self.books[pod.type]
        async with self.lock(job):
            for other in self.books.values():  # one that a job of this number had in another pod
                stale = other.holdings.get(job)
                if stale and (other is not book or _is_anothers(stale, asked, size, known)):
                    await self.give_back(other, stale)
            holding = book.holdings.get(job)
            if holding is not None and holding.made and known is None:
                await self._listing.job(job)  # is it this job's? Only Slurm can say
            if holding is None:
                leader = asked.number("het_job")
                holding = await self._block(book, job, size.bit_length() - 1, restart, leader)
            if not holding.made:
                holding.restart, holding.uid = restart, asked.number("uid")
                holding.cluster = asked.cluster
                holding.submitted = known.submitted if known else 0
                await self._make(book, holding, asked, gcds)
        self.figures.begun += 1
        return f"IPUOF_VIPU_API_PARTITION_ID={holding.name}\n"

    async def ended(self, asked: Asked) -> str:
        """Nothing is held for the job, and Slurm knows. Raises PodwrightError."""
        job, restart = asked.number("job"), asked.number("restart")
        async with self.lock(job):
            for book in self.books.values():
                holding = book.holdings.get(job)
                if holding and holding.restart <= restart:
                    await self.give_back(book, holding)
                    await self.counts.synced()
        self.figures.ended += 1
        return ""

    async def proves(self, asked: Asked) -> str:
        """The step's job holds its devices for this start. Raises PodwrightError: where it does
        not, the step ends, and its job goes back to the queue, held."""
        job = asked.number("job")
        async with self.lock(job):
            problem = self._unproven(asked)
        if not problem and asked.step == "batch" and asked.het_job == asked.job:
            problem = await self._parts_unproven(job)
        if not problem:
            self.figures.proven += 1
            return ""
        known = await self._listing.job(job)
        if known is None or known.state not in ("RUNNING", "CONFIGURING", "SUSPENDED"):
            raise NotFound(f"job {job} is over", asked="a step")  # while its step was under way
        self.figures.unproven += 1
        _log.warning("job %d: a step on %s was ended: %s", job, asked.hosts, problem)
        words = InvalidRequest(
            f"{problem}: its PrologSlurmctld did not run to its end",
            asked=f"a step of job {job}",
        )
        raise await self.tries.refusal(asked, words, final=True)

    # -- what the sweep and heterogeneous jobs use -------------------------------------------

    def lock(self, job: int) -> asyncio.Lock:
        """One thing at a time for a job."""
        lock = self._locks.get(job)
        if lock is None:
            lock = self._locks[job] = asyncio.Lock()
        return lock

    async def give_back(self, book: Book, holding: Holding) -> None:
        """The partition goes, then the block is free. Raises PodwrightError; then it is not."""
        await self.server.remove(holding.name, holding.words)
        book.release(holding.job)
        await self.tell()

    async def tell(self) -> None:
        """Those who wait for a block look again."""
        async with self.changed:
            self.changed.notify_all()

    async def refresh(self) -> None:
        """Compare the books with the server. Raises PodwrightError."""
        before = self.hidden()
        for book in self.books.values():
            await book.refresh(self.server)
        if self.hidden() != before:
            self.counts.poke()
            await self.tell()

    async def close(self) -> None:
        """Nothing may start from here on; if Slurm is down, nothing does anyway.

        Whatever else still has something to tell Slurm tells it the same.
        """
        self._closed = True
        with contextlib.suppress(Unavailable):
            await self.counts.synced(CLOSE_S)

    # -- inside ------------------------------------------------------------------------------

    def hidden(self) -> dict[str, int]:
        """What Slurm must not give out now."""
        out: dict[str, int] = {}
        for book in self.books.values():
            out |= book.all_hidden() if self._closed else book.hidden()
        return out | {HET_WAIT: 1}

    async def _known(self, asked: Asked) -> Listed | None:
        """What Slurm's list says of the job. A new ordinary one begins without that: what its hook
        says is slurmctld's own word."""
        try:
            return await self._listing.job(asked.number("job"))
        except Unavailable as error:
            if asked.het_job:
                raise
            _log.warning("job %s: %s", asked.job, error)
            return None

    def _unproven(self, asked: Asked) -> str:
        """Why a step's job does not hold what it was started for; empty: it does."""
        job = asked.number("job")
        holding = next((b.holdings[job] for b in self.books.values() if job in b.holdings), None)
        if holding is None or not holding.made:
            return f"job {job} holds no devices"
        if asked.restart and asked.number("restart") != holding.restart:
            return f"job {job} holds no devices for this start, but for start {holding.restart}"
        if asked.submitted and holding.submitted not in (0, asked.number("submitted")):
            return f"an earlier job {job} holds devices, and this one does not"
        if asked.uid and holding.uid not in (-1, asked.number("uid")):
            return f"a job {job} of another user holds devices, and this one does not"
        if asked.step == "batch" and asked.ipus.isdecimal() and int(asked.ipus) != holding.size:
            return f"job {job} holds {holding.size} devices and asked for {asked.ipus}"
        return ""

    async def _parts_unproven(self, leader: int) -> str:
        """The same of the other parts of a heterogeneous job, whose first instruction is the
        leader's."""
        for job, part in (await listed(self.slurm, leader)).items():
            wants = part.wants(self.site.pods) if part.head else None
            if part.het == leader and wants and not part.over:
                problem = self._unproven(Asked(job=str(job), restart=str(part.restart)))
                if problem:
                    return problem
        return ""

    async def _block(self, book: Book, job: int, order: int, restart: int, leader: int) -> Holding:
        """A block; waits for one a while, if need be. Raises Unavailable after that."""
        began = self.clock()
        told = False
        while True:
            holding = book.take(job, order, restart=restart, leader=leader)
            if holding is None and self.het.give_way():
                continue
            if holding is None and book.closed:
                book.close(0)  # Slurm started it before the block was closed
                continue
            waited = self.clock() - began
            if holding is not None:
                self.figures.waited_s += waited if told else 0.0
                return holding
            if not told:
                _log.warning("job %d started and finds no block of %d", job, 1 << order)
                self.figures.waited += 1
                told = True
            left = self.site.patience_s - waited
            if left <= 0:
                self.figures.refused += 1
                self.figures.waited_s += waited
                raise Unavailable(f"no free block of {1 << order} devices for job {job}")
            self.look.set()  # a job that Slurm forgot may sit there
            async with self.changed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), min(left, 2.0))

    async def _make(self, book: Book, holding: Holding, asked: Asked, gcds: int) -> None:
        """The partition of a block. Raises PodwrightError; then the job holds nothing."""
        replicas = asked.number("replicas")
        spec = PartitionSpec(
            name=holding.name,
            cluster=book.pod.cluster,
            allocation=book.pod.allocation,
            devices=book.line.devices(holding.start, holding.order),
            num_gcds=gcds,
            num_replicas=replicas,
        )
        try:
            info = await self.server.create(
                spec, asked.number("uid"), asked.user or asked.uid, holding.words
            )
            if info.ready_state is not ReadyState.ACTIVE:
                await self.server.remove(holding.name, holding.words)
                raise WrongState(f"machines failed: {'; '.join(info.errors)[:200]}")
        except InvalidRequest:
            book.release(holding.job)
            raise
        except (AlreadyExists, NoCapacity, WrongState) as error:
            # The server knows better than the book: a partition of an earlier life, a machine
            # that failed. The hook asks again, and the book is right by then.
            book.release(holding.job)
            await self.refresh()
            raise Unavailable(f"job {holding.job}: {error}") from None
        except PodwrightError:
            book.release(holding.job)  # if it was made after all, the next refresh finds it
            raise
        holding.made = True
        holding.changed = book.tick()
        self.had.add((holding.job, holding.restart))


def _is_anothers(holding: Holding, asked: Asked, size: int, known: Listed | None) -> bool:
    """Was it given to an earlier life of the job, whose epilog never ran, or to a job of the same
    number that slurmctld has forgotten: killed before it saved them, it gives numbers out again."""
    if not holding.made:  # it was set aside just now
        return holding.size != size
    if holding.restart < asked.number("restart"):
        return True
    submitted = known.submitted if known else 0
    other = submitted and holding.submitted and submitted != holding.submitted
    elsewhere = asked.cluster and holding.cluster and asked.cluster != holding.cluster
    uid = asked.number("uid")
    return bool(other or elsewhere or holding.size != size or holding.uid not in (-1, uid))
