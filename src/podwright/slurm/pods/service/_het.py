"""Heterogeneous jobs, one at a time: Slurm tests each component alone and then starts all.

So their devices are set aside first, all or none, and only then may Slurm start the job: its
leader waits for a licence that nobody gets, and is given the real count instead. A job that
Slurm did not start within the window (no nodes, say) loses what was set aside and waits again.
Nothing of this is durable: after a restart, leaders that were offered something wait again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from podwright.errors import PodwrightError
from podwright.slurm.pods.service._pod_book import PodBook, settled
from podwright.slurm.pods.service._pods import HET_WAIT, MARK, Site, SlurmPod
from podwright.slurm.pods.service._queue import Listed, listed
from podwright.slurm.pods.service._sync import Counts
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")
_PAUSE = 0.3
Part = tuple[SlurmPod, int]


class Heterogeneous:
    """Sets aside and offers, job by job, by Slurm's priority."""

    def __init__(
        self,
        site: Site,
        slurm: Slurm,
        books: Mapping[str, PodBook],
        counts: Counts,
        clock: Callable[[], float],
    ) -> None:
        self._site, self._slurm, self._books = site, slurm, books
        self._counts, self._clock = counts, clock
        self._reserved: set[int] = set()  # set aside, not yet offered
        self.offered: set[int] = set()
        self.declined: set[int] = set()  #: leaders that did not start when they might have
        self.some = asyncio.Event()  #: the sweep saw a leader that waits

    def give_way(self) -> bool:
        """A job that Slurm had already started comes first: what is only set aside goes back."""
        if not self._reserved:
            return False
        self._drop(self._reserved)
        self._reserved = set()
        return True

    def busy(self) -> frozenset[int]:
        """The parts for which something is set aside, or offered."""
        return frozenset(self._reserved | self.offered)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.some.wait()
            try:
                await self._round()
            except PodwrightError as error:
                _log.warning("heterogeneous jobs: %s", error)
            await asyncio.sleep(_PAUSE)

    async def _round(self) -> None:
        waiting = self.waiting((await listed(self._slurm)).values())
        if not waiting:
            self.some.clear()
        for leader in sorted(waiting, key=lambda one: -waiting[one][0]):
            parts = waiting[leader][1]
            if await self._reserve(leader, parts):
                await self._let_start(leader, parts)
                return

    def waiting(self, jobs: Iterable[Listed]) -> dict[int, tuple[int, dict[int, Part]]]:
        """Leader -> its priority, and the parts of its job that want devices; all pending."""
        found: dict[int, dict[int, Part]] = {}
        running: set[int] = set()
        priority: dict[int, int] = {}
        for one in jobs:
            if one.job == one.het or one.het not in priority:
                priority[one.het] = one.priority  # the leader's, which 26.05 lists last
            wants = one.wants(self._site.pods) if one.het else None
            if wants is None:
                continue
            if one.state != "PENDING":
                running.add(one.het)
            found.setdefault(one.het, {})[one.job] = wants[:2]
        return {
            leader: (priority[leader], parts)
            for leader, parts in found.items()
            if leader not in running and priority[leader] > 0  # priority 0: held
        }

    async def _reserve(self, leader: int, parts: dict[int, Part]) -> bool:
        """Sets the devices aside, and makes sure that no job already started was promised them."""
        for job, (pod, size) in sorted(parts.items(), key=lambda one: -one[1][1]):
            book = self._books[pod.type]
            if job in book.holdings:
                continue
            if not book.take(job, size.bit_length() - 1, leader=leader):
                self._drop(parts)
                return False
        self._reserved = set(parts)
        for book in self._books.values():
            if book.closed_for == leader:
                book.close(0)  # the room that was made for it is its own now
        try:
            await self._counts.synced()
            while self._reserved:
                used = [await settled(self._slurm, book) for book in self._books.values()]
                if all(used):
                    self._reserved = set()
                    self.offered = set(parts)
                    return True
                await asyncio.sleep(0.05)
        except PodwrightError:
            self._drop(parts)
            self._reserved = set()
            raise
        self._counts.poke()
        return False

    async def _let_start(self, leader: int, parts: dict[int, Part]) -> None:
        totals: dict[str, int] = {}
        for pod, size in parts.values():
            totals[pod.licence] = totals.get(pod.licence, 0) + size
        counts = {**totals, MARK: len(parts)}
        _log.info("job %d may start: %s", leader, totals)
        try:
            await self._licences(leader, counts)
            deadline = self._clock() + self._site.window_s
            while self._clock() < deadline:
                if leader not in await self._pending():
                    await self._left(leader, parts)
                    return
                await asyncio.sleep(0.2)
            await self._licences(leader, {HET_WAIT: 1})
            await asyncio.sleep(0.1)
            if leader in await self._pending():
                _log.info("job %d was not started within the window", leader)
                self.declined.add(leader)
                self._drop(job for job in parts if not self._made(job))
                self._counts.poke()
        finally:
            self.offered = set()

    async def _left(self, leader: int, parts: Iterable[int]) -> None:
        """It waits no more: it started, or else, held or cancelled, it holds nothing."""
        jobs = await listed(self._slurm)
        first = jobs.get(leader)
        if first is not None and first.het != leader:
            first = None  # another's number by now: slurmctld was killed and forgot this one
        if first is not None and not (first.waits or first.over):
            return
        if first is not None and first.waits:
            _log.info("job %d was held when it might have started", leader)
            await self._licences(leader, {HET_WAIT: 1})
        there = {job for job in parts if job in jobs and jobs[job].het == leader}
        gone = [job for job in parts if job not in there or jobs[job].waits or jobs[job].over]
        self._drop(job for job in gone if not self._made(job))
        self._counts.poke()

    async def _pending(self) -> set[int]:
        return set(self.waiting((await listed(self._slurm)).values()))

    async def wait_again(self, leader: int) -> None:
        """An offer of a life before this one is taken back."""
        await self._licences(leader, {HET_WAIT: 1})

    async def _licences(self, leader: int, counts: dict[str, int]) -> None:
        what = ",".join(f"{name}:{count}" for name, count in counts.items())
        await self._slurm.run("scontrol", "update", f"jobid={leader}+0", f"licenses={what}")

    def _made(self, job: int) -> bool:
        return any(
            job in book.holdings and book.holdings[job].made for book in self._books.values()
        )

    def _drop(self, jobs: Iterable[int]) -> None:
        for job in list(jobs):
            for book in self._books.values():
                holding = book.holdings.get(job)
                if holding is not None and not holding.made:
                    book.release(job)
