"""Native mode: a job gets its devices when it begins, and gives them back when it ends."""

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
from podwright.guests.shared import GuestServer
from podwright.guests.slurm.service._het import Heterogeneous
from podwright.guests.slurm.service._job_calls import Busy, JobCalls
from podwright.guests.slurm.service._job_request import HookJob
from podwright.guests.slurm.service._licence_check import Differs, wanted
from podwright.guests.slurm.service._pod_book import JobHolding, PodBook
from podwright.guests.slurm.service._pods import HET_WAIT, Site
from podwright.guests.slurm.service._queue import Listed, listed, lost_note
from podwright.guests.slurm.service._sync import Counts
from podwright.slurm.site.commands import Slurm
from podwright.wire import PartitionSpec, ReadyState

_log = logging.getLogger("podwright.slurm")
#: The name under which the service enqueues jobs at vipu-server.
GUEST = "slurm"
#: Seconds for the last update to Slurm.
CLOSE_S = 10.0


class ServiceFigures(msgspec.Struct):
    """What the service has counted since its start.

    begun: jobs that got devices; ended: jobs whose devices were given back. waited: jobs that
    waited in their prolog for devices of the right shape; waited_s: the seconds of that. refused:
    jobs that were sent away. swept: partitions that the sweep ended in place of a hook. held: jobs
    that were held because their request and their licences differ. proven: steps that began;
    unproven: steps that were ended because their job did not hold its devices. bare: jobs that ran
    without their devices. moved: jobs that moved to other devices; stayed: plans of moves that were
    given up.
    """

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
    """The service for all pods of one Slurm. clock: returns seconds and never goes backwards."""

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
        server.guest = GUEST
        self.books = {pod.type: PodBook(pod) for pod in site.pods}
        self.figures = ServiceFigures()
        self.next_jobs: dict[str, str] = {}  #: pod -> its first waiting job and what it waits for
        self.counts = Counts(slurm, self.hidden)
        self.het = Heterogeneous(site, slurm, self.books, self.counts, clock)
        #: Jobs that wait in their prolog for devices: the pod and the order of their block.
        self.in_prolog: dict[int, tuple[str, int]] = {}
        self.had: set[tuple[int, int]] = set()  #: starts that held their devices: job, restart
        self._closed = False

    # -- what hooks call ---------------------------------------------------------------------

    async def give(self, job: HookJob) -> str:
        """Make the job's partition, unless it exists, and return its environment, in lines."""
        known = await self._known(job)
        try:
            request = wanted(job, known, self.site)
        except Differs as error:
            self.figures.held += 1
            raise await self.retry_limit.refusal(job, error, final=True) from None
        if request is None:
            return ""
        book = self.books[request.pod.type]
        for other in self.books.values():  # a job of this number may have a holding in another pod
            stale = other.holdings.get(job.job)
            if stale and (other is not book or _is_anothers(stale, job, request.size, known)):
                await self.give_back(other, stale)
        holding = book.holdings.get(job.job)
        if holding is not None and holding.created and known is None:
            await self.listing.job(job.job)  # only Slurm can say whether it is this job's
        if holding is None:
            holding = self._block(book, job, request.size.bit_length() - 1)
        if not holding.created:
            holding.restart, holding.uid = job.restart or 0, job.uid or 0
            holding.cluster, holding.movable = job.cluster, job.movable
            holding.submitted = known.submitted if known else 0
            await self._make(book, holding, job, request.gcds)
        self.figures.begun += 1
        return f"IPUOF_VIPU_API_PARTITION_ID={holding.name}\n"

    async def take(self, job: HookJob) -> None:
        """Take back what the job holds, and tell Slurm.

        A holding of a later start stays: an epilog that comes late does not end the next start.
        """
        for book in self.books.values():
            holding = book.holdings.get(job.job)
            if holding and holding.restart <= (job.restart or 0):
                await self.give_back(book, holding)
                await self.counts.synced()
        self.figures.ended += 1

    async def unproven(self, job: HookJob) -> str:
        """Return why a step's job, or a part of it, does not hold its devices, or "" if it does."""
        problem = self._unproven(job)
        if problem and job.unread:
            return await self._unread(job, problem)
        if not problem and job.step == "batch" and job.het_job == job.job:
            problem = await self._parts_unproven(job.job)
        return problem

    def step_lines(self, job: HookJob) -> str:
        """Return, for a step whose own note is lost, how many devices it holds."""
        if not job.unread:
            return ""
        holdings = (book.holdings.get(job.job) for book in self.books.values())
        return f"ipus={next((holding.size for holding in holdings if holding), 0)}\n"

    def count_step(self, *, valid: bool) -> None:
        """Count the step in the figures."""
        self.figures.proven += valid
        self.figures.unproven += not valid

    async def refused(self, job: HookJob, error: PodwrightError) -> PodwrightError:
        """Return the error unchanged. Slurm starts the job again, and nothing is wrong with the job
        itself.
        """
        return error

    def waited(self, job: HookJob, seconds: float, *, in_vain: bool) -> None:
        """Count the wait in the figures."""
        self.in_prolog.pop(job.job, None)
        self.figures.waited += 1
        self.figures.waited_s += seconds
        self.figures.refused += in_vain

    # -- what the sweep and heterogeneous jobs use -------------------------------------------

    async def give_back(self, book: PodBook, holding: JobHolding) -> None:
        """Remove the partition, and then free its block. Raises PodwrightError; the block then
        stays taken.

        In this order no other job gets a block whose partition still exists.
        """
        await self.server.remove(holding.name, holding.words)
        book.release(holding.job)
        await self.freed.notify()

    async def refresh(self) -> None:
        """Update the books from the server. Raises PodwrightError."""
        before = self.hidden()
        for book in self.books.values():
            await book.refresh(self.server)
        if self.hidden() != before:
            self.counts.poke()
            await self.freed.notify()

    async def close(self) -> None:
        """Tell Slurm that nothing may start from here on. If Slurm is down, nothing starts anyway.

        Any later update of the counts says the same.
        """
        self._closed = True
        with contextlib.suppress(Unavailable):
            await self.counts.synced(CLOSE_S)

    # -- inside ------------------------------------------------------------------------------

    def hidden(self) -> dict[str, int]:
        """Return how many of each licence Slurm must not give out now."""
        out: dict[str, int] = {}
        for book in self.books.values():
            out |= book.all_hidden() if self._closed else book.hidden()
        return out | {HET_WAIT: 1}

    async def _known(self, job: HookJob) -> Listed | None:
        """Return what Slurm lists for the job, or None.

        An ordinary job that is new may begin without it, because its hook passes on what slurmctld
        itself says.
        """
        try:
            return await self.listing.job(job.job)
        except Unavailable as error:
            if job.het_job:
                raise
            _log.warning("job %d: %s", job.job, error)
            return None

    def _unproven(self, job: HookJob) -> str:
        """Return why a step's job does not hold what it was started for, or "" if it does."""
        number = job.job
        books = self.books.values()
        holding = next((b.holdings[number] for b in books if number in b.holdings), None)
        if holding is None or not holding.created:
            return f"job {number} holds no devices"
        if job.restart not in (None, holding.restart):
            return f"job {number} holds no devices for this start, but for start {holding.restart}"
        if job.submitted is not None and holding.submitted not in (0, job.submitted):
            return f"an earlier job {number} holds devices, and this one does not"
        if job.uid is not None and holding.uid not in (-1, job.uid):
            return f"a job {number} of another user holds devices, and this one does not"
        requested = job.ipus if job.step == "batch" and job.ipus.isdecimal() else ""
        if requested and requested.lstrip("0") != str(holding.size):
            return f"job {number} holds {holding.size} devices and asked for {requested[:40]}"
        return ""

    async def _parts_unproven(self, leader: int) -> str:
        """Return why another part of a heterogeneous job does not hold its devices, or "" if all
        do.

        The leader's batch script is the first instruction of the whole job, so this is checked
        before it runs.
        """
        for job, part in (await listed(self.slurm, leader)).items():
            if part.het == leader and not part.over and (part.request(self.site.pods) or part.lost):
                problem = self._unproven(HookJob(job=job, restart=part.restart))
                if problem:
                    return lost_note(job) if part.lost else problem
        return ""

    async def _unread(self, job: HookJob, problem: str) -> str:
        """Return why it is not certain that a job or a part is to have no devices, or "" if it is
        certain.

        This is for a job whose note is lost and whose step was not proven. problem: why it was not.
        """
        if not job.het_job:
            has_devices = any(job.job in book.holdings for book in self.books.values())
            return problem if has_devices or (job.job, job.restart or 0) in self.had else ""
        parts = (await listed(self.slurm, job.het_job)).values()
        leaders = {
            holding.leader for book in self.books.values() for holding in book.holdings.values()
        }
        requests_devices = job.ipus not in ("", "0") or job.het_job in leaders
        if requests_devices or any(
            part.het == job.het_job and part.counted(self.site.pods) for part in parts
        ):
            return lost_note(job.job)
        return ""

    def _block(self, book: PodBook, job: HookJob, order: int) -> JobHolding:
        """Return a block for the job. Raises Busy where none of that size is free."""
        while True:
            holding = book.take(job.job, order, restart=job.restart or 0, leader=job.het_job)
            if holding is not None:
                self.in_prolog.pop(job.job, None)
                return holding
            if self.het.give_way():
                continue
            if not book.closed or book.closed_for == job.job:
                self.in_prolog[job.job] = (book.pod.type, order)
                raise Busy(f"no free block of {1 << order} devices for job {job.job}")
            book.close(0)  # Slurm started the job before the block was closed

    async def _make(self, book: PodBook, holding: JobHolding, job: HookJob, gcds: int) -> None:
        """Make the partition of a block. Raises PodwrightError; the job then holds nothing."""
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
            # The book was out of date: an earlier start has a partition there, or a machine has
            # failed. The hook asks again, and by then the book is right.
            book.release(holding.job)
            await self.refresh()
            raise Unavailable(f"job {holding.job}: {error}") from None
        except PodwrightError:
            book.release(
                holding.job
            )  # if the partition exists all the same, the next refresh finds it
            raise
        holding.created, holding.began = True, info.created_at
        holding.changed = book.tick()
        self.had.add((holding.job, holding.restart))


def _is_anothers(holding: JobHolding, job: HookJob, size: int, known: Listed | None) -> bool:
    """Return whether a holding was given to an earlier start of the job, or to another job of the
    same number.

    The epilog of that earlier start never ran. A slurmctld that is killed before it saves new jobs
    forgets them, and gives their numbers out again.
    """
    if not holding.created:  # it was set aside just now
        return holding.size != size
    if holding.restart < (job.restart or 0):
        return True
    submitted = known.submitted if known else 0
    other = submitted and holding.submitted and submitted != holding.submitted
    elsewhere = job.cluster and holding.cluster and job.cluster != holding.cluster
    return bool(other or elsewhere or holding.size != size or holding.uid not in (-1, job.uid or 0))
