"""Native mode: a job gets its devices when it begins, and gives them back when it ends."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

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
from podwright.guests.slurm.service._heterogeneous_jobs import Heterogeneous
from podwright.guests.slurm.service._hook_calls import Busy, JobCalls
from podwright.guests.slurm.service._hook_job_request import HookJob
from podwright.guests.slurm.service._licence_check import LicencesDiffer, wanted
from podwright.guests.slurm.service._licence_counts import LicenceCounts
from podwright.guests.slurm.service._pod_holdings import JobHolding, PodBook
from podwright.guests.slurm.service._pods_and_licences import HET_WAIT_LICENCE, Site
from podwright.guests.slurm.service._squeue_jobs import Listed, listed, lost_note_text
from podwright.slurm.site.commands import Slurm
from podwright.wire import PartitionSpec, ReadyState

_log = logging.getLogger("podwright.slurm")
#: The name under which the service enqueues jobs at vipu-server.
GUEST_NAME = "slurm"
#: Seconds for the last update to Slurm.
LAST_UPDATE_TIMEOUT_S = 10.0


class ServiceFigures(msgspec.Struct):
    """What the service has counted since its start.

    begun: jobs that got devices; ended: jobs whose devices were given back. waited: jobs that
    waited in their prolog for devices of the right shape; waited_s: the seconds of that. refused:
    jobs that were sent away. swept: partitions that the sweep ended in place of a hook. held: jobs
    that were held because their request and their licences differ. proven: steps that began;
    unproven: steps that were ended because their job did not hold its devices. bare: jobs that ran
    without their devices. moved: jobs that moved to other devices; stayed: plans of moves that were
    given up. preempted: jobs that were ended for an urgent one.
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
    preempted: int = 0


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
        server.guest = GUEST_NAME
        self.books = {pod.type: PodBook(pod) for pod in site.pods}
        self.figures = ServiceFigures()
        self.next_jobs: dict[str, str] = {}  #: pod -> its first waiting job and what it waits for
        self.counts = LicenceCounts(slurm, self.hidden)
        self.het = Heterogeneous(site, slurm, self.books, self.counts, clock, self.listing)
        #: Jobs that wait in their prolog for devices: the pod and the order of their block.
        self.in_prolog: dict[int, tuple[str, int]] = {}
        self.had: set[tuple[int, int]] = set()  #: starts that held their devices: job, restart
        self._closed = False

    # -- what hooks call ---------------------------------------------------------------------

    async def give(self, job: HookJob) -> str:
        """Make the job's partition, unless it exists, and return the line that the hook prints."""
        listed_job = await self._job_listed_by_slurm(job)
        try:
            wanted_devices = wanted(job, listed_job, self.site)
        except LicencesDiffer as error:
            self.figures.held += 1
            raise await self.retry_limit.refusal(job, error, final=True) from None
        if wanted_devices is None:
            return ""
        pod_book = self.books[wanted_devices.pod.type]
        # A job of this number may have a holding in another pod.
        for other_book in self.books.values():
            stale_holding = other_book.holdings.get(job.job)
            if stale_holding and (
                other_book is not pod_book
                or _is_holding_of_another(stale_holding, job, wanted_devices.size, listed_job)
            ):
                await self.give_back(other_book, stale_holding)
        job_holding = pod_book.holdings.get(job.job)
        if job_holding is not None and job_holding.created and listed_job is None:
            await self.listing.job(job.job)  # only Slurm can say whether it is this job's
        if job_holding is None:
            job_holding = self._take_block(pod_book, job, wanted_devices.size.bit_length() - 1)
        if not job_holding.created:
            job_holding.restart, job_holding.uid = job.restart or 0, job.uid or 0
            job_holding.cluster, job_holding.movable = job.cluster, job.movable
            job_holding.submitted = listed_job.submitted if listed_job else 0
            await self._make(pod_book, job_holding, job, wanted_devices.gcds)
        self.figures.begun += 1
        return f"IPUOF_VIPU_API_PARTITION_ID={job_holding.name}\n"

    async def take(self, job: HookJob) -> None:
        """Take back what the job holds. Slurm gives out nothing that is not free when it returns.

        A holding of a later start stays: an epilog that comes late does not end the next start.
        """
        for book in self.books.values():
            holding = book.holdings.get(job.job)
            if holding and holding.restart <= (job.restart or 0):
                await self.give_back(book, holding)
                await self.counts.wait_until_safe()
        self.figures.ended += 1

    async def unproven(self, job: HookJob) -> str:
        """Return why a step's job, or a part of it, does not hold its devices, or "" if it does."""
        problem = self._missing_devices(job)
        if problem and job.unread:
            return await self._unread_job_reason(job, problem)
        if not problem and job.step == "batch" and job.het_job == job.job:
            problem = await self._parts_missing_devices(job.job)
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

    async def known(self) -> None:
        """Read the books again, and tell Slurm the counts."""
        await self.refresh()
        await self.counts.update(self.hidden())

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the tasks for counts and heterogeneous jobs."""
        return (self.counts.run(), self.het.run())

    async def refresh(self) -> None:
        """Update the books from the server. Raises PodwrightError."""
        hidden_before = self.hidden()
        for book in self.books.values():
            await book.refresh(self.server)
        if self.hidden() != hidden_before:
            self.counts.poke()
            await self.freed.notify()

    async def close(self) -> None:
        """Tell Slurm that nothing may start from here on. If Slurm is down, nothing starts anyway.

        Any later update of the counts says the same.
        """
        self._closed = True
        with contextlib.suppress(Unavailable):
            await self.counts.wait_until_synced(LAST_UPDATE_TIMEOUT_S)

    def state(self) -> dict[str, Any]:
        """Return what an administrator watches: counts, figures, and what each pod's jobs hold."""
        pods = {}
        for pod_type, book in self.books.items():
            free = enumerate(book.blocks.whole_counts_by_order())
            pods[pod_type] = {
                "devices": book.pod.devices,
                "free_together": {str(1 << order): count for order, count in free},
                "emptied_for_a_large_job": book.closed.bit_count(),
                "held": {str(holding.job): holding.size for holding in book.holdings.values()},
                "next": self.next_jobs.get(pod_type, ""),
            }
        return {
            "pods": pods,
            "figures": msgspec.structs.asdict(self.figures),
            "told": self.counts.last_hidden,
            "updates": self.counts.updates,
            "problem": self.counts.problem,
        }

    # -- inside ------------------------------------------------------------------------------

    def hidden(self) -> dict[str, int]:
        """Return how many of each licence Slurm must not give out now."""
        hidden_by_licence: dict[str, int] = {}
        for book in self.books.values():
            hidden_by_licence |= book.all_licences_hidden() if self._closed else book.hidden()
        return hidden_by_licence | {HET_WAIT_LICENCE: 1}

    async def _job_listed_by_slurm(self, hook_job: HookJob) -> Listed | None:
        """Return what Slurm lists for the job, or None.

        An ordinary job that is new may begin without it, because its hook passes on what slurmctld
        itself says.
        """
        try:
            return await self.listing.job(hook_job.job)
        except Unavailable as error:
            if hook_job.het_job:
                raise
            _log.warning("job %d: %s", hook_job.job, error)
            return None

    def _missing_devices(self, hook_job: HookJob) -> str:
        """Return why a step's job does not hold what it was started for, or "" if it does."""
        job_number = hook_job.job
        pod_books = self.books.values()
        job_holding = next(
            (book.holdings[job_number] for book in pod_books if job_number in book.holdings),
            None,
        )
        if job_holding is None or not job_holding.created:
            return f"job {job_number} holds no devices"
        if hook_job.restart not in (None, job_holding.restart):
            return (
                f"job {job_number} holds no devices for this start, but for start "
                f"{job_holding.restart}"
            )
        if hook_job.submitted is not None and job_holding.submitted not in (0, hook_job.submitted):
            return f"an earlier job {job_number} holds devices, and this one does not"
        if hook_job.uid is not None and job_holding.uid not in (-1, hook_job.uid):
            return f"a job {job_number} of another user holds devices, and this one does not"
        requested_text = (
            hook_job.ipus if hook_job.step == "batch" and hook_job.ipus.isdecimal() else ""
        )
        if requested_text and requested_text.lstrip("0") != str(job_holding.size):
            return (
                f"job {job_number} holds {job_holding.size} devices and asked for "
                f"{requested_text[:40]}"
            )
        return ""

    async def _parts_missing_devices(self, leader_number: int) -> str:
        """Return why another part of a heterogeneous job does not hold its devices, or "" if all
        do.

        The leader's batch script is the first instruction of the whole job, so this is checked
        before it runs.
        """
        for part_number, listed_part in (await listed(self.slurm, leader_number)).items():
            if (
                listed_part.het == leader_number
                and not listed_part.over
                and (listed_part.request(self.site.pods) or listed_part.lost)
            ):
                problem = self._missing_devices(
                    HookJob(job=part_number, restart=listed_part.restart)
                )
                if problem:
                    return lost_note_text(part_number) if listed_part.lost else problem
        return ""

    async def _unread_job_reason(self, hook_job: HookJob, unproven_reason: str) -> str:
        """Return why it is not certain that a job or a part is to have no devices, or "" if it is
        certain.

        This is for a job whose note is lost and whose step was not proven. unproven_reason: why it
        was not.
        """
        if not hook_job.het_job:
            has_devices = any(hook_job.job in book.holdings for book in self.books.values())
            return (
                unproven_reason
                if has_devices or (hook_job.job, hook_job.restart or 0) in self.had
                else ""
            )
        listed_parts = (await listed(self.slurm, hook_job.het_job)).values()
        holding_leaders = {
            holding.leader for book in self.books.values() for holding in book.holdings.values()
        }
        requests_devices = hook_job.ipus not in ("", "0") or hook_job.het_job in holding_leaders
        if requests_devices or any(
            part.het == hook_job.het_job and part.counted(self.site.pods) for part in listed_parts
        ):
            return lost_note_text(hook_job.job)
        return ""

    def _take_block(self, pod_book: PodBook, hook_job: HookJob, block_order: int) -> JobHolding:
        """Return a block for the job. Raises Busy where none of that size is free."""
        while True:
            holding = pod_book.take(
                hook_job.job, block_order, restart=hook_job.restart or 0, leader=hook_job.het_job
            )
            if holding is not None:
                self.in_prolog.pop(hook_job.job, None)
                return holding
            if not self.het.give_back_reserved():
                self.in_prolog[hook_job.job] = (pod_book.pod.type, block_order)
                raise Busy(f"no free block of {1 << block_order} devices for job {hook_job.job}")

    async def _make(
        self, pod_book: PodBook, job_holding: JobHolding, hook_job: HookJob, gcd_count: int
    ) -> None:
        """Make the partition of a block. Raises PodwrightError; the job then holds nothing."""
        partition_spec = PartitionSpec(
            name=job_holding.name,
            cluster=pod_book.cluster,
            allocation=pod_book.allocation,
            devices=pod_book.line.devices(job_holding.start, job_holding.order),
            num_gcds=gcd_count,
            num_replicas=hook_job.replicas,
            movable=hook_job.movable,
        )
        try:
            partition_info = await self.server.create(
                partition_spec, hook_job.uid or 0, hook_job.user, job_holding.words
            )
            if partition_info.ready_state is not ReadyState.ACTIVE:
                await self.server.remove(job_holding.name, job_holding.words)
                raise WrongState(f"machines failed: {'; '.join(partition_info.errors)[:200]}")
        except InvalidRequest:
            pod_book.release(job_holding.job)
            raise
        except (AlreadyExists, NoCapacity, WrongState) as error:
            # The book was out of date: an earlier start has a partition there, or a machine has
            # failed. The hook asks again, and by then the book is right.
            pod_book.release(job_holding.job)
            await self.refresh()
            raise Unavailable(f"job {job_holding.job}: {error}") from None
        except PodwrightError:
            # If the partition exists all the same, the next refresh finds it.
            pod_book.release(job_holding.job)
            raise
        job_holding.created, job_holding.began = True, partition_info.created_at
        job_holding.changed = pod_book.tick()
        self.had.add((job_holding.job, job_holding.restart))


def _is_holding_of_another(
    job_holding: JobHolding, hook_job: HookJob, device_count: int, listed_job: Listed | None
) -> bool:
    """Return whether a holding was given to an earlier start of the job, or to another job of the
    same number.

    The epilog of that earlier start never ran. A slurmctld that is killed before it saves new jobs
    forgets them, and gives their numbers out again.
    """
    if not job_holding.created:  # it was set aside just now
        return job_holding.size != device_count
    if job_holding.restart < (hook_job.restart or 0):
        return True
    submitted_at = listed_job.submitted if listed_job else 0
    other_submission = (
        submitted_at and job_holding.submitted and submitted_at != job_holding.submitted
    )
    other_cluster = (
        hook_job.cluster and job_holding.cluster and hook_job.cluster != job_holding.cluster
    )
    return bool(
        other_submission
        or other_cluster
        or job_holding.size != device_count
        or job_holding.uid not in (-1, hook_job.uid or 0)
    )
