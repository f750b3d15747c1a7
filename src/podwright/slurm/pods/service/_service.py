"""Native mode: devices when a job begins, and their end when it ends."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

import msgspec

from podwright.errors import (
    AlreadyExists,
    InvalidRequest,
    NoCapacity,
    PodwrightError,
    Unavailable,
    WrongState,
)
from podwright.guests import GuestServer
from podwright.slurm.pods.service._het import Heterogeneous
from podwright.slurm.pods.service._job_calls import Busy, JobCalls
from podwright.slurm.pods.service._job_request import HookJob
from podwright.slurm.pods.service._licence_check import Differs, wanted
from podwright.slurm.pods.service._pod_book import JobHolding, PodBook
from podwright.slurm.pods.service._pods import HET_WAIT, Site
from podwright.slurm.pods.service._queue import Listed, listed, lost_note
from podwright.slurm.pods.service._sync import Counts
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
    that ran without. moved: jobs that moved to other devices; stayed: plans of that which were
    given up."""

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
    moved: int = 0
    stayed: int = 0


class Service(JobCalls):
    """All pods of one Slurm. clock: seconds, never backwards."""

    def __init__(
        self,
        site: Site,
        server: GuestServer,
        slurm: Slurm,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(site, slurm, clock)
        self.server = server
        self.books = {pod.type: PodBook(pod) for pod in site.pods}
        self.figures = ServiceFigures()
        self.counts = Counts(slurm, self.hidden)
        self.het = Heterogeneous(site, slurm, self.books, self.counts, clock)
        self.had: set[tuple[int, int]] = set()  #: starts that held their devices: job, restart
        self._closed = False

    # -- what hooks call ---------------------------------------------------------------------

    async def give(self, job: HookJob) -> str:
        """The partition stands: its environment, in lines."""
        known = await self._known(job)
        try:
            wants = wanted(job, known, self.site)
        except Differs as error:
            self.figures.held += 1
            raise await self.retry_limit.refusal(job, error, final=True) from None
        if wants is None:
            return ""
        book = self.books[wants.pod.type]
        for other in self.books.values():  # one that a job of this number had in another pod
            stale = other.holdings.get(job.job)
            if stale and (other is not book or _is_anothers(stale, job, wants.size, known)):
                await self.give_back(other, stale)
        holding = book.holdings.get(job.job)
        if holding is not None and holding.made and known is None:
            await self.listing.job(job.job)  # is it this job's? Only Slurm can say
        if holding is None:
            holding = self._block(book, job, wants.size.bit_length() - 1)
        if not holding.made:
            holding.restart, holding.uid = job.restart or 0, job.uid or 0
            holding.cluster, holding.movable = job.cluster, job.movable
            holding.submitted = known.submitted if known else 0
            await self._make(book, holding, job, wants.gcds)
        self.figures.begun += 1
        return f"IPUOF_VIPU_API_PARTITION_ID={holding.name}\n"

    async def take(self, job: HookJob) -> None:
        """Nothing is held for the job, and Slurm knows."""
        for book in self.books.values():
            holding = book.holdings.get(job.job)
            if holding and holding.restart <= (job.restart or 0):
                await self.give_back(book, holding)
                await self.counts.synced()
        self.figures.ended += 1

    async def unproven(self, job: HookJob) -> str:
        """Why a step's job, or a part of it, does not hold its devices; empty: it does."""
        problem = self._unproven(job)
        if problem and job.unread:
            return await self._unread(job, problem)
        if not problem and job.step == "batch" and job.het_job == job.job:
            problem = await self._parts_unproven(job.job)
        return problem

    def proven(self, job: HookJob) -> str:
        """Whose own note is lost learns here how many devices it holds."""
        if not job.unread:
            return ""
        found = (book.holdings.get(job.job) for book in self.books.values())
        return f"ipus={next((one.size for one in found if one), 0)}\n"

    def count_step(self, *, proven: bool) -> None:
        """It stands in the figures."""
        self.figures.proven += proven
        self.figures.unproven += not proven

    async def refused(self, job: HookJob, error: PodwrightError) -> PodwrightError:
        """As it is: Slurm starts the job again, and nothing is wrong with the job itself."""
        return error

    def waited(self, job: HookJob, seconds: float, *, in_vain: bool) -> None:
        """It stands in the figures."""
        self.figures.waited += 1
        self.figures.waited_s += seconds
        self.figures.refused += in_vain

    # -- what the sweep and heterogeneous jobs use -------------------------------------------

    async def give_back(self, book: PodBook, holding: JobHolding) -> None:
        """The partition goes, then the block is free. Raises PodwrightError; then it is not."""
        await self.server.remove(holding.name, holding.words)
        book.release(holding.job)
        await self.freed.tell()

    async def refresh(self) -> None:
        """Compare the books with the server. Raises PodwrightError."""
        before = self.hidden()
        for book in self.books.values():
            await book.refresh(self.server)
        if self.hidden() != before:
            self.counts.poke()
            await self.freed.tell()

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

    async def _known(self, job: HookJob) -> Listed | None:
        """What Slurm's list says of the job. A new ordinary one begins without that: what its hook
        says is slurmctld's own word."""
        try:
            return await self.listing.job(job.job)
        except Unavailable as error:
            if job.het_job:
                raise
            _log.warning("job %d: %s", job.job, error)
            return None

    def _unproven(self, job: HookJob) -> str:
        """Why a step's job does not hold what it was started for; empty: it does."""
        number = job.job
        books = self.books.values()
        holding = next((b.holdings[number] for b in books if number in b.holdings), None)
        if holding is None or not holding.made:
            return f"job {number} holds no devices"
        if job.restart not in (None, holding.restart):
            return f"job {number} holds no devices for this start, but for start {holding.restart}"
        if job.submitted is not None and holding.submitted not in (0, job.submitted):
            return f"an earlier job {number} holds devices, and this one does not"
        if job.uid is not None and holding.uid not in (-1, job.uid):
            return f"a job {number} of another user holds devices, and this one does not"
        asked = job.ipus if job.step == "batch" and job.ipus.isdecimal() else ""
        if asked and asked.lstrip("0") != str(holding.size):
            return f"job {number} holds {holding.size} devices and asked for {asked[:40]}"
        return ""

    async def _parts_unproven(self, leader: int) -> str:
        """The same of the other parts of a heterogeneous job, whose first instruction is the
        leader's."""
        for job, part in (await listed(self.slurm, leader)).items():
            if part.het == leader and not part.over and (part.wants(self.site.pods) or part.lost):
                problem = self._unproven(HookJob(job=job, restart=part.restart))
                if problem:
                    return lost_note(job) if part.lost else problem
        return ""

    async def _unread(self, job: HookJob, problem: str) -> str:
        """Why nobody can say that a job or a part that does not hold what it should, is to have
        none; empty: it is to have none."""
        if not job.het_job:
            holds = any(job.job in book.holdings for book in self.books.values())
            return problem if holds or (job.job, job.restart or 0) in self.had else ""
        parts = (await listed(self.slurm, job.het_job)).values()
        held = {one.leader for book in self.books.values() for one in book.holdings.values()}
        said = job.ipus not in ("", "0") or job.het_job in held
        if said or any(part.het == job.het_job and part.counted(self.site.pods) for part in parts):
            return lost_note(job.job)
        return ""

    def _block(self, book: PodBook, job: HookJob, order: int) -> JobHolding:
        """A block. Raises Busy where none of that size is free."""
        while True:
            holding = book.take(job.job, order, restart=job.restart or 0, leader=job.het_job)
            if holding is not None:
                return holding
            if self.het.give_way():
                continue
            if not book.closed:
                raise Busy(f"no free block of {1 << order} devices for job {job.job}")
            book.close(0)  # Slurm started it before the block was closed

    async def _make(self, book: PodBook, holding: JobHolding, job: HookJob, gcds: int) -> None:
        """The partition of a block. Raises PodwrightError; then the job holds nothing."""
        spec = PartitionSpec(
            name=holding.name,
            cluster=book.cluster,
            allocation=book.allocation,
            devices=book.line.devices(holding.start, holding.order),
            num_gcds=gcds,
            num_replicas=job.replicas,
            movable=job.movable,
        )
        try:
            info = await self.server.create(spec, job.uid or 0, job.user, holding.words)
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
        holding.made, holding.began = True, info.created_at
        holding.changed = book.tick()
        self.had.add((holding.job, holding.restart))


def _is_anothers(holding: JobHolding, job: HookJob, size: int, known: Listed | None) -> bool:
    """Was it given to an earlier life of the job, whose epilog never ran, or to a job of the same
    number that slurmctld has forgotten: killed before it saved them, it gives numbers out again."""
    if not holding.made:  # it was set aside just now
        return holding.size != size
    if holding.restart < (job.restart or 0):
        return True
    submitted = known.submitted if known else 0
    other = submitted and holding.submitted and submitted != holding.submitted
    elsewhere = job.cluster and holding.cluster and job.cluster != holding.cluster
    return bool(other or elsewhere or holding.size != size or holding.uid not in (-1, job.uid or 0))
