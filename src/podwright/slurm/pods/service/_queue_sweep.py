"""The sweep: Slurm's own list of jobs against the book, for what hooks missed.

It never touches a job that lives, and where slurmctld does not answer, nothing at all. It also
says in each waiting job's AdminComment what it waits for, as squeue has no words for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from podwright.errors import PodwrightError
from podwright.guests import sweep
from podwright.slurm.pods.service._bare import Bare
from podwright.slurm.pods.service._job_mover import JobMover
from podwright.slurm.pods.service._node_failure import NodeFailures
from podwright.slurm.pods.service._pod_book import JobHolding, PodBook
from podwright.slurm.pods.service._queue import Listed, listed, lost_note
from podwright.slurm.pods.service._queue_report import QueueReport, WaitingJob
from podwright.slurm.pods.service._queue_room import QueueRoom
from podwright.slurm.pods.service._retry_limit import refused, tried

if TYPE_CHECKING:
    from podwright.slurm.pods.service._service import Service

_log = logging.getLogger("podwright.slurm")
#: Comments written in one sweep: each is a call to slurmctld.
COMMENTS = 20
#: Seconds between looks at the server, so that a failed machine is counted out soon.
LOOK_S = 2.0
_STARTED = ("CONFIGURING", "RUNNING", "SUSPENDED")
_WAITS = ("Licenses", "Reservation", "Resources", "Priority", "None", "BeginTime")


class Sweep:
    """Every `site.sweep_s` seconds, and whenever the service asks for it."""

    def __init__(self, service: Service, mover: JobMover | None = None) -> None:
        self._service, self._mover = service, mover
        self._fallen = NodeFailures(service)
        self._room = QueueRoom(service)
        self._said: dict[int, str] = {}
        self._bare = Bare(service)
        self._report = QueueReport(service.server, service.clock)

    async def run(self) -> None:
        """Until it is cancelled."""
        service = self._service
        last = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(service.look.wait(), LOOK_S)
            asked = service.look.is_set()
            service.look.clear()
            try:
                await service.refresh()
                if asked or service.clock() - last >= service.site.sweep_s:
                    last = service.clock()
                    await self.once()
                await self._fallen.look()
                await self._room.settle()
            except PodwrightError as error:
                _log.warning("sweep: %s", error)
            await asyncio.sleep(0.2)

    async def once(self, *, words: bool = True) -> None:
        """One sweep. words: of waiting jobs, too; each is a command, and takes seconds while a
        slurmctld's host is down. Raises PodwrightError; then what is left over is the next one's.
        """
        service = self._service
        since = [(book, book.tick()) for book in service.books.values()]
        jobs, ended = await sweep(self, service.books, service.lock)
        service.figures.swept += ended
        for book, at in since:
            book.count_as_listed(jobs, at)
        await self._bare.look(jobs)
        await self._heterogeneous(jobs)
        if self._mover is not None:
            await self._mover.look(jobs, self._room.waiting(jobs))
        self._room.look(jobs)
        service.counts.poke()  # renews the reservation, and makes it anew if it is missing
        if words:
            await self._report.tell(self._waiting(jobs))
            await self._comments(jobs)

    # -- what Slurm says of its jobs (`guests.Guest`) ----------------------------------------

    async def jobs(self) -> Mapping[int, Listed]:
        """All jobs that slurmctld remembers. Raises Unavailable where it does not say."""
        return await listed(self._service.slurm)

    def in_progress(self) -> Collection[int]:
        """Parts of heterogeneous jobs for which something is set aside."""
        return self._service.het.busy()

    def is_over(
        self, holding: JobHolding, jobs: Mapping[int, Listed], in_progress: Collection[int]
    ) -> bool:
        """Is it sure that no job of this life holds it?"""
        if not holding.made and (holding.job in in_progress or not holding.leader):
            return False  # set aside, or on its way: its own task decides
        job = jobs.get(holding.job)
        if job is None or job.over:
            return True
        if holding.submitted and job.restart == holding.restart and job.state in _STARTED:
            # Slurm has lost its state, and gave the number out again.
            return job.submitted not in (0, holding.submitted)
        return job.waits and job.het not in self._service.het.offered

    async def give_back(self, book: PodBook, holding: JobHolding) -> None:
        """The partition goes, then its block is free."""
        await self._service.give_back(book, holding)

    # -- the rest of a sweep -----------------------------------------------------------------

    async def _heterogeneous(self, jobs: Mapping[int, Listed]) -> None:
        het = self._service.het
        await self._hold_lost(jobs)
        waiting = het.waiting(jobs.values())
        if waiting:
            het.some.set()
        for leader in waiting:
            job = jobs.get(leader)
            if (
                job
                and not het.offered
                and any(f"{pod.licence}:" in job.licences for pod in self._service.site.pods)
            ):
                await het.wait_again(leader)

    async def _hold_lost(self, jobs: Mapping[int, Listed]) -> None:
        """Nothing can be set aside for a part whose note is lost."""
        for job in jobs.values():
            first = jobs.get(job.het)
            if not (job.lost and job.state == "PENDING" and first and first.priority):
                continue
            if first.counted(self._service.site.pods):
                words = f"{first.head}{lost_note(job.job)}. Held: cancel it, and submit it anew"
                run = self._service.slurm.run
                await run("scontrol", "update", f"jobid={first.alone}", f"admincomment={words}")
                said = await run("scontrol", "hold", str(job.het))
                how = said.text if said.code else words.removeprefix(first.head)
                _log.warning("job %d: %s", job.het, how)

    # -- words -------------------------------------------------------------------------------

    def _waiting(self, jobs: Mapping[int, Listed]) -> Iterator[WaitingJob]:
        for job in jobs.values():
            wants = job.wants(self._service.site.pods)
            if job.waits and wants is not None:
                pod, size, _ = wants
                why = sentence(self._service.books[pod.type], size, job.het or job.job)
                needs = why if job.reason in _WAITS else f"Slurm says {job.reason}"
                asked = f"{size} devices of {pod.type}"
                yield WaitingJob(job, asked, needs, pod.cluster, pod.allocation)

    async def _comments(self, jobs: Mapping[int, Listed]) -> None:
        left = COMMENTS
        waiting = [job for job in jobs.values() if job.state == "PENDING"]
        whole: Counter[tuple[int, str]] = Counter()
        for job in waiting:
            if job.het and (wants := job.wants(self._service.site.pods)):
                whole[job.het, wants[0].type] += wants[1]
        for job in sorted(waiting, key=lambda one: -one.priority):
            text = self._sentence(job, whole)
            if text is None or text == job.comment or self._said.get(job.job) == text:
                continue
            if not await self._service.comment_waiting(job, text, self._holds):
                continue
            self._said[job.job] = text
            left -= 1
            if not left:
                break
        self._said = {job: text for job, text in self._said.items() if job in jobs}

    def _holds(self, job: int) -> bool:
        return any(job in book.holdings for book in self._service.books.values())

    def _sentence(self, job: Listed, whole: Mapping[tuple[int, str], int]) -> str | None:
        wants = job.wants(self._service.site.pods)
        if wants is None or job.reason not in _WAITS or tried(job) or refused(job):
            return None
        head = job.head
        pod = wants[0]
        asked = whole.get((job.het, pod.type), 0) if job.het else 0
        if asked > pod.devices:
            # job_submit sees one part at a time, so nobody could say it earlier.
            return (
                f"{head}its parts ask for {asked} devices, {pod.type} has {pod.devices}: cancel it"
            )
        return head + sentence(self._service.books[pod.type], wants[1], job.het or job.job)


def sentence(book: PodBook, size: int, job: int = 0) -> str:
    """What a job of `size` devices waits for, in words. job: the leader of a heterogeneous one."""
    wholes = book.blocks.wholes()
    free = wholes[0] if wholes else 0
    order = size.bit_length() - 1
    pod = book.pod.type
    if job and book.closed_for == job:
        emptied, of = (book.closed & ~book.held()).bit_count(), book.closed.bit_count()
        said = "a block is" if of == size else f"{of} devices are"
        words = f"waits for {size} devices of {pod}: {said} emptied for it, {emptied} are free"
        return f"{words}{_movers(book)}"
    if order < len(wholes) and wholes[order] >= size:
        return f"{size} devices of {pod} are free for it: it waits for nodes or for its turn"
    largest = max((1 << k for k, whole in enumerate(wholes) if whole), default=0)
    others = f"; a block is emptied for job {book.closed_for}" if book.closed else ""
    if free < size:
        return f"waits for {size} devices of {pod}: {free} are free{others}"
    together = f"{free} are free, at most {largest} together{others}"
    return f"waits for {size} devices of {pod} that lie together: {together}"


def _movers(book: PodBook) -> str:
    """Who moves so that it comes free, and when."""
    if not book.moves:
        return ""
    jobs = sorted(book.moves)
    who = f"job {jobs[0]} moves" if len(jobs) == 1 else f"jobs {', '.join(map(str, jobs))} move"
    when = f", by {book.moves_end} at the latest" if book.moves_end else " soon"
    return f"; {who} to other devices{when}"
