"""The sweep: it compares Slurm's own list of jobs with the book, and settles what hooks missed.

It never touches a living job, and it touches nothing where slurmctld does not answer. It also
writes into each waiting job's AdminComment what the job waits for, because squeue has no words for
that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from podwright.errors import PodwrightError
from podwright.guests.shared import sweep
from podwright.guests.slurm.service._deviceless_jobs import Bare
from podwright.guests.slurm.service._job_mover import JobMover
from podwright.guests.slurm.service._node_failure import NodeFailures
from podwright.guests.slurm.service._pod_book import JobHolding, PodBook
from podwright.guests.slurm.service._queue import Listed, listed, lost_note
from podwright.guests.slurm.service._queue_report import QueueReport, WaitingJob
from podwright.guests.slurm.service._queue_room import QueueRoom
from podwright.guests.slurm.service._retry_limit import refused, tried

if TYPE_CHECKING:
    from podwright.guests.slurm.service._service import Service

_log = logging.getLogger("podwright.slurm")
#: The most comments that one sweep writes. Each is a call to slurmctld.
COMMENTS = 20
#: Seconds between looks at the server, so that a failed machine soon stops being counted.
LOOK_S = 2.0
_STARTED = ("CONFIGURING", "RUNNING", "SUSPENDED")
_WAITS = ("Licenses", "Reservation", "Resources", "Priority", "None", "BeginTime")


class Sweep:
    """Sweeps every `site.sweep_s` seconds, and whenever the service asks for it."""

    def __init__(self, service: Service, mover: JobMover | None = None) -> None:
        self._service, self._mover = service, mover
        self._fallen = NodeFailures(service)
        self._room = QueueRoom(service)
        self._written: dict[int, str] = {}
        self._without_devices = Bare(service)
        self._report = QueueReport(service.server, service.clock)

    async def run(self) -> None:
        """Sweep until cancelled."""
        service = self._service
        last = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(service.sweep_wanted.wait(), LOOK_S)
            requested = service.sweep_wanted.is_set()
            service.sweep_wanted.clear()
            try:
                await service.refresh()
                if requested or service.clock() - last >= service.site.sweep_s:
                    last = service.clock()
                    await self.once()
                await self._room.exchange()
                await self._fallen.check()
                await self._room.settle()
            except PodwrightError as error:
                _log.warning("sweep: %s", error)
            await asyncio.sleep(0.2)

    async def once(self, *, words: bool = True) -> None:
        """Sweep once. words: also write what waiting jobs wait for.

        Each comment is a command, and takes seconds while a slurmctld's host is down. Raises
        PodwrightError; the next sweep then does the rest.
        """
        service = self._service
        since = [(book, book.tick()) for book in service.books.values()]
        jobs, ended_count = await sweep(self, service.books, service.lock)
        service.figures.swept += ended_count
        for book, began_at in since:
            book.count_as_listed(jobs, began_at)
        await self._without_devices.check(jobs)
        await self._heterogeneous(jobs)
        if self._mover is not None:
            await self._mover.update(jobs, self._room.waiting(jobs))
        self._room.update(jobs)
        service.counts.poke()  # renews the reservation, and makes it if it is missing
        if words:
            waiting = list(self._waiting(jobs))
            service.next_jobs = next_jobs(waiting)
            await self._report.send(waiting)
            await self._comments(jobs)

    # -- what Slurm says of its jobs (`guests.Guest`) ----------------------------------------

    async def jobs(self) -> Mapping[int, Listed]:
        """Return all jobs that slurmctld remembers. Raises Unavailable where it does not answer."""
        return await listed(self._service.slurm)

    def in_progress(self) -> Collection[int]:
        """Return the parts of heterogeneous jobs for which devices are set aside or offered."""
        return self._service.het.busy()

    def is_over(
        self, holding: JobHolding, jobs: Mapping[int, Listed], in_progress: Collection[int]
    ) -> bool:
        """Return whether it is certain that no living start of the job has this holding."""
        if not holding.created and (holding.job in in_progress or not holding.leader):
            return False  # it is set aside or being made: its own task decides
        job = jobs.get(holding.job)
        if job is None or job.over:
            return True
        if holding.submitted and job.restart == holding.restart and job.state in _STARTED:
            # Slurm may have lost its state and given the number out again.
            return job.submitted not in (0, holding.submitted)
        return job.waits and job.het not in self._service.het.offered

    async def give_back(self, book: PodBook, holding: JobHolding) -> None:
        """Remove the partition, and then free its block."""
        await self._service.give_back(book, holding)

    # -- the rest of a sweep -----------------------------------------------------------------

    async def _heterogeneous(self, jobs: Mapping[int, Listed]) -> None:
        het = self._service.het
        await self._hold_lost(jobs)
        waiting = het.waiting(jobs.values())
        if waiting:
            het.wake.set()
        for leader in waiting:
            job = jobs.get(leader)
            if (
                job
                and not het.offered
                and any(f"{pod.licence}:" in job.licences for pod in self._service.site.pods)
            ):
                await het.wait_again(leader)

    async def _hold_lost(self, jobs: Mapping[int, Listed]) -> None:
        """Hold heterogeneous jobs with a part whose note is lost, because nothing can be set aside
        for such a part.
        """
        for job in jobs.values():
            first = jobs.get(job.het)
            if not (job.lost and job.state == "PENDING" and first and first.priority):
                continue
            if first.counted(self._service.site.pods):
                words = f"{first.head}{lost_note(job.job)}. Held: cancel it, and submit it anew"
                run = self._service.slurm.run
                await run("scontrol", "update", f"jobid={first.alone}", f"admincomment={words}")
                reply = await run("scontrol", "hold", str(job.het))
                how = reply.text if reply.code else words.removeprefix(first.head)
                _log.warning("job %d: %s", job.het, how)

    # -- words -------------------------------------------------------------------------------

    def _waiting(self, jobs: Mapping[int, Listed]) -> Iterator[WaitingJob]:
        for job in jobs.values():
            request = job.request(self._service.site.pods)
            if job.waits and request is not None:
                pod, size, _ = request
                book = self._service.books[pod.type]
                reason = sentence(book, size, job.het or job.job, reason=job.reason)
                needs = reason if job.reason in _WAITS else f"Slurm says {job.reason}"
                description = f"{size} devices of {pod.type}"
                yield WaitingJob(job, description, needs, pod.cluster, pod.allocation, pod.type)

    async def _comments(self, jobs: Mapping[int, Listed]) -> None:
        left = COMMENTS
        waiting = [job for job in jobs.values() if job.state == "PENDING"]
        totals: Counter[tuple[int, str]] = Counter()
        for job in waiting:
            if job.het and (request := job.request(self._service.site.pods)):
                totals[job.het, request[0].type] += request[1]
        for job in sorted(waiting, key=lambda row: -row.priority):
            text = self._sentence(job, totals)
            if text is None or text == job.comment or self._written.get(job.job) == text:
                continue
            if not await self._service.comment_waiting(job, text, self._has_devices):
                continue
            self._written[job.job] = text
            left -= 1
            if not left:
                break
        self._written = {job: text for job, text in self._written.items() if job in jobs}

    def _has_devices(self, job: int) -> bool:
        return any(job in book.holdings for book in self._service.books.values())

    def _sentence(self, job: Listed, totals: Mapping[tuple[int, str], int]) -> str | None:
        request = job.request(self._service.site.pods)
        if request is None or job.reason not in _WAITS or tried(job) or refused(job):
            return None
        head = job.head
        pod = request[0]
        total = totals.get((job.het, pod.type), 0) if job.het else 0
        if total > pod.devices:
            # job_submit sees one part at a time, so it could not refuse the whole job.
            return (
                f"{head}its parts ask for {total} devices, {pod.type} has {pod.devices}: cancel it"
            )
        book = self._service.books[pod.type]
        return head + sentence(book, request[1], job.het or job.job, reason=job.reason)


def next_jobs(waiting: Iterable[WaitingJob]) -> dict[str, str]:
    """Return, for each pod, the first job in Slurm's order that waits for its devices, with its
    needs.

    A job that is held, or that depends on others, does not wait for devices yet.
    """
    first_jobs: dict[str, str] = {}
    for entry in sorted(waiting, key=lambda entry: (-entry.job.priority, entry.job.job)):
        if entry.job.reason in _WAITS:
            first_jobs.setdefault(entry.pod, f"job {entry.job.job}: {entry.needs}")
    return first_jobs


#: What a job waits for although its devices are free, by Slurm's reason.
_BUT: Final = {
    "Resources": "it waits for nodes",
    "Priority": "it waits for its turn, as jobs of higher priority wait before it",
    "BeginTime": "it waits for its time to begin",
}


def free_but(reason: str) -> str:
    """Return what a job waits for although its devices are free.

    reason: Slurm's reason. Where the devices are free, the reasons Licenses and Reservation date
    from an earlier look of Slurm's.
    """
    return _BUT.get(reason, "Slurm starts it when it looks at the queue next")


def sentence(book: PodBook, size: int, job: int = 0, *, reason: str = "") -> str:
    """Return what a job of `size` devices waits for, in words.

    job: its number, or that of its heterogeneous job's leader. reason: the reason that Slurm gives.

    Other jobs are not named: the job's comment and the server's queue show these words to the
    job's owner, who may not see others' jobs where Slurm's PrivateData or `--private-data` is set.
    """
    wholes = book.blocks.wholes()
    free = wholes[0] if wholes else 0
    order = size.bit_length() - 1
    pod = book.pod.type
    if job and book.closed_for == job:
        emptied, room_size = (book.closed & book.unheld()).bit_count(), book.closed.bit_count()
        subject = "a block is" if room_size == size else f"{room_size} devices are"
        words = f"waits for {size} devices of {pod}: {subject} emptied for it, {emptied} are free"
        return f"{words}{_movers(book)}"
    if order < len(wholes) and wholes[order] >= size:
        return f"{size} devices of {pod} are free for it: {free_but(reason)}"
    largest = max((1 << k for k, count in enumerate(wholes) if count), default=0)
    rest = "; a block is emptied for another job" if book.closed else ""
    if count := (book.others_places & ~book.held_devices()).bit_count():
        rest += f"; {count} are kept for others who share the pod"
    if free < size:
        return f"waits for {size} devices of {pod}: {free} are free{rest}"
    together = f"{free} are free, at most {largest} together{rest}"
    return f"waits for {size} devices of {pod} that lie together: {together}"


def _movers(book: PodBook) -> str:
    """Return how many jobs move to empty the block, and by when."""
    if not book.moves:
        return ""
    who = "a job moves" if len(book.moves) == 1 else f"{len(book.moves)} jobs move"
    when = f", by {book.moves_end} at the latest" if book.moves_end else " soon"
    return f"; {who} to other devices{when}"
