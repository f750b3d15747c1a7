"""Gives heterogeneous jobs their devices all at once. Slurm tests each component alone and then
starts all of them.

The devices of such a job are therefore set aside first, all or none, and only then may Slurm start
the job. Until then its leader waits for a licence that nobody gets. Its offer replaces that licence
by the real count. All jobs that fit at once are offered together, in Slurm's own order, so that one
backfill cycle starts them all. A job whose nodes are busy is not offered (`_node_availability`).

Slurm may still leave an offered job waiting, for example because its user is over a limit. When the
window is over, such a job loses what was set aside. It then waits as long as the window before its
next offer, and after each further vain offer twice as long, up to eight windows. So the devices
that it does not take are free for others most of the time.

Nothing of this is durable: after a restart, leaders that had an offer wait again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from podwright.errors import PodwrightError
from podwright.guests.slurm.service._node_availability import NodeAvailability
from podwright.guests.slurm.service._pod_book import PodBook, settled
from podwright.guests.slurm.service._pods import HET_WAIT, MARK, Site, SlurmPod
from podwright.guests.slurm.service._queue import Listed, listed
from podwright.guests.slurm.service._sync import Counts
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")
_PAUSE = 0.3
#: How often the wait for the next offer is doubled at most, after offers that were not taken.
_DOUBLED = 3
Part = tuple[SlurmPod, int]


class Heterogeneous:
    """Sets devices aside job by job, in Slurm's order, and offers all jobs that fit."""

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
        self._nodes = NodeAvailability(slurm, clock)
        self._vain: dict[int, tuple[int, float]] = {}  # leader -> vain offers, no new offer before
        self._passed: set[int] = set()  # leaders whose busy nodes are in the log
        self._reserved: set[int] = set()  # set aside, not yet offered
        self.offered: set[int] = set()
        self.declined: set[int] = set()  #: leaders that did not take their offer
        self.wake = asyncio.Event()  #: set: a leader waits

    def give_way(self) -> bool:
        """Give devices that are only set aside back, for a job that Slurm has already started.
        Return whether there were any.
        """
        if not self._reserved:
            return False
        self._drop(self._reserved)
        self._reserved = set()
        return True

    def busy(self) -> frozenset[int]:
        """Return the parts for which devices are set aside or offered."""
        return frozenset(self._reserved | self.offered)

    async def run(self) -> None:
        """Offer devices until cancelled."""
        while True:
            await self.wake.wait()
            try:
                await self._round()
            except PodwrightError as error:
                _log.warning("heterogeneous jobs: %s", error)
            await asyncio.sleep(_PAUSE)

    async def _round(self) -> None:
        waiting = self.waiting((await listed(self._slurm)).values())
        if not waiting:
            self.wake.clear()
        self._passed &= waiting.keys()
        self._vain = {leader: vain for leader, vain in self._vain.items() if leader in waiting}
        # Slurm starts jobs of equal priority in the order of their numbers.
        offers: dict[int, asyncio.Task[None]] = {}
        try:
            for leader in sorted(waiting, key=lambda number: (-waiting[number][0], number)):
                parts = waiting[leader][1]
                early = self._clock() < self._vain.get(leader, (0, 0.0))[1]
                if early or not self._has_devices(leader, parts):
                    continue
                if problem := await self._nodes.unmet_need((*offers, leader)):
                    self._pass_over(leader, problem)
                elif await self._reserve(leader, parts):
                    # The offer starts at once, because the others may take a while.
                    offers[leader] = asyncio.create_task(self._let_start(leader, parts))
            await asyncio.gather(*offers.values())
        finally:
            for offer in offers.values():
                offer.cancel()
            await asyncio.gather(*offers.values(), return_exceptions=True)

    def _pass_over(self, leader: int, problem: str) -> None:
        """Leave a job without an offer because its nodes are busy. Room that was made for it would
        be idle, so others get that room, as after a vain offer.
        """
        if leader not in self._passed:
            _log.info("job %d is not offered devices: %s", leader, problem)
            self._passed.add(leader)
        for book in self._books.values():
            if book.closed_for == leader:
                _log.info("room is not kept for job %d: %s", leader, problem)
                book.close(0)
                self.declined.add(leader)
                self._counts.poke()

    def _has_devices(self, leader: int, parts: Mapping[int, Part]) -> bool:
        """Return whether each part has a block for itself. Whether all parts fit together shows
        when their devices are set aside.
        """
        return all(
            job in self._books[pod.type].holdings
            or self._books[pod.type].find(size.bit_length() - 1, leader) is not None
            for job, (pod, size) in parts.items()
        )

    def waiting(self, jobs: Iterable[Listed]) -> dict[int, tuple[int, dict[int, Part]]]:
        """Return the heterogeneous jobs that wait: for each leader its priority and the parts that
        want devices.

        Jobs with a part that no longer waits, and held jobs, are left out.
        """
        leaders: dict[int, dict[int, Part]] = {}
        running: set[int] = set()
        priority: dict[int, int] = {}
        for job in jobs:
            if job.job == job.het or job.het not in priority:
                priority[job.het] = (
                    job.priority
                )  # the leader's priority counts; Slurm 26.05 lists the leader last
            request = job.request(self._site.pods) if job.het else None
            if request is None:
                continue
            if job.state != "PENDING":
                running.add(job.het)
            leaders.setdefault(job.het, {})[job.job] = request[:2]
        return {
            leader: (priority[leader], parts)
            for leader, parts in leaders.items()
            if leader not in running and priority[leader] > 0  # priority 0: held
        }

    async def _reserve(self, leader: int, parts: dict[int, Part]) -> bool:
        """Set a job's devices aside, and make sure that no job already started was promised them.
        Return whether they are set aside.

        Slurm may have started a job by the old counts at the moment when the devices were taken. So
        the new counts are sent first, and the offer waits until every job that Slurm has started
        holds its devices. A started job that finds no block takes these back (`give_way`), and then
        False is returned.
        """
        for job, (pod, size) in sorted(parts.items(), key=lambda entry: -entry[1][1]):
            book = self._books[pod.type]
            if job in book.holdings:
                continue
            if not book.take(job, size.bit_length() - 1, leader=leader):
                self._drop(parts)
                return False
        self._reserved = set(parts)
        for book in self._books.values():
            if book.closed_for == leader:
                book.close(0)  # the job holds that room itself now
        try:
            await self._counts.synced()
            while self._reserved:
                used = [await settled(self._slurm, book) for book in self._books.values()]
                if all(used):
                    self._reserved = set()
                    self.offered |= set(parts)
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
                count = self._vain.get(leader, (0, 0.0))[0]
                pause = self._site.window_s * 2 ** min(count, _DOUBLED)
                self._vain[leader] = count + 1, self._clock() + pause
                self._drop(job for job in parts if not self._is_made(job))
                self._counts.poke()
        finally:
            self.offered -= set(parts)

    async def _left(self, leader: int, parts: Iterable[int]) -> None:
        """Settle a job that no longer waits for its offer. If it has not started, but was held or
        cancelled, what was set aside for it is dropped.
        """
        jobs = await listed(self._slurm)
        first = jobs.get(leader)
        if first is not None and first.het != leader:
            first = None  # another job has the number: slurmctld was killed and forgot this one
        if first is not None and not (first.waits or first.over):
            return
        if first is not None and first.waits:
            _log.info("job %d was held when it might have started", leader)
            await self._licences(leader, {HET_WAIT: 1})
        present = {job for job in parts if job in jobs and jobs[job].het == leader}
        absent = [job for job in parts if job not in present or jobs[job].waits or jobs[job].over]
        self._drop(job for job in absent if not self._is_made(job))
        self._counts.poke()

    async def _pending(self) -> set[int]:
        return set(self.waiting((await listed(self._slurm)).values()))

    async def wait_again(self, leader: int) -> None:
        """Take back an offer that an earlier process of the service made."""
        await self._licences(leader, {HET_WAIT: 1})

    async def _licences(self, leader: int, counts: dict[str, int]) -> None:
        request = ",".join(f"{name}:{count}" for name, count in counts.items())
        await self._slurm.run("scontrol", "update", f"jobid={leader}+0", f"licenses={request}")

    def _is_made(self, job: int) -> bool:
        return any(
            job in book.holdings and book.holdings[job].created for book in self._books.values()
        )

    def _drop(self, jobs: Iterable[int]) -> None:
        for job in list(jobs):
            for book in self._books.values():
                holding = book.holdings.get(job)
                if holding is not None and not holding.created:
                    book.release(job)
