"""Gives heterogeneous jobs their devices all at once. Slurm tests each component alone and then
starts all of them.

The devices of such a job are therefore set aside first, all or none, and only then may Slurm start
the job. Until then its leader waits for a licence that nobody gets. Its offer replaces that licence
by the real count. Jobs are offered in Slurm's own order, as soon as they fit, so that one backfill
cycle starts all of them. Each offer stands alone: one that is not taken holds up no other. A job
whose nodes are busy is not offered (`_node_availability`).

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
from typing import Final

from podwright.errors import PodwrightError
from podwright.guests.slurm.service._licence_counts import LicenceCounts
from podwright.guests.slurm.service._node_availability import NodeAvailability
from podwright.guests.slurm.service._pod_holdings import PodBook, settled
from podwright.guests.slurm.service._pods_and_licences import (
    HET_WAIT_LICENCE,
    JOB_MARK_LICENCE,
    Site,
    SlurmPod,
)
from podwright.guests.slurm.service._squeue_jobs import JobListing, Listed
from podwright.slurm.reader import listing_format
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")
#: Seconds between two looks for leaders that wait, and between two rounds of offers, at least.
LOOK_INTERVAL_S: Final = 1.0
_ROUND_PAUSE_S: Final = 0.3
#: A look, or a round, is followed by a pause that is so many times as long.
_PAUSE_FACTOR: Final = 8.0
#: How often the wait for the next offer is doubled at most, after offers that were not taken.
_MAX_DOUBLINGS: Final = 3
PodAndSize = tuple[SlurmPod, int]


class Heterogeneous:
    """Sets devices aside job by job, in Slurm's order, and offers all jobs that fit."""

    def __init__(
        self,
        site: Site,
        slurm: Slurm,
        book_by_pod: Mapping[str, PodBook],
        licence_counts: LicenceCounts,
        clock: Callable[[], float],
        listing: JobListing,
    ) -> None:
        self._site, self._slurm, self._books, self._listing = site, slurm, book_by_pod, listing
        self._counts, self._clock = licence_counts, clock
        self._nodes = NodeAvailability(slurm, clock)
        # By leader: the number of vain offers, and the time before which there is no new one.
        self._vain_offers: dict[int, tuple[int, float]] = {}
        self._passed_over_leaders: set[int] = set()  # leaders whose busy nodes are in the log
        self._reserved: set[int] = set()  # set aside, not yet offered
        self.offered: set[int] = set()
        self._offers: dict[int, asyncio.Task[None]] = {}  # by leader: offers that stand
        self._deadlines: dict[int, float] = {}  # by leader: when its window is over, oldest first
        self.declined: set[int] = set()  #: leaders that did not take their offer

    def give_back_reserved(self) -> bool:
        """Give devices that are only set aside back, for a job that Slurm has already started.
        Return whether there were any.
        """
        if not self._reserved:
            return False
        self._drop_reserved(self._reserved)
        self._reserved = set()
        return True

    def busy(self) -> frozenset[int]:
        """Return the parts for which devices are set aside or offered."""
        return frozenset(self._reserved | self.offered)

    async def run(self) -> None:
        """Offer devices until cancelled."""
        try:
            while True:
                began_at, pause_s = self._clock(), LOOK_INTERVAL_S
                try:
                    if await self._leader_waits():
                        pause_s = _ROUND_PAUSE_S
                        await self._offer_round()
                except PodwrightError as error:
                    _log.warning("heterogeneous jobs: %s", error)
                took_s = self._clock() - began_at
                await asyncio.sleep(max(pause_s, _PAUSE_FACTOR * took_s))
        finally:
            offer_tasks = list(self._offers.values())
            for task in offer_tasks:
                task.cancel()
            await asyncio.gather(*offer_tasks, return_exceptions=True)

    async def _leader_waits(self) -> bool:
        """Return whether a job in the queue has the licence that nobody gets. Raises Unavailable.

        This is much less than to list all jobs. The sweep is too seldom: an idle cluster would wait
        for it.
        """
        options = ("-h", "-a", "--local", "-t", "PENDING", "-L", HET_WAIT_LICENCE)
        reply = await self._slurm.run("squeue", *options, "-O", listing_format(job=20))
        return not reply.code and bool(reply.out.strip())

    async def _offer_round(self) -> None:
        waiting_jobs = self.waiting((await self._listing.all_jobs()).values())
        self._passed_over_leaders &= waiting_jobs.keys()
        self._vain_offers = {
            leader_number: offer
            for leader_number, offer in self._vain_offers.items()
            if leader_number in waiting_jobs
        }
        # Slurm starts jobs of equal priority in the order of their numbers.
        for leader_number in sorted(
            waiting_jobs, key=lambda job_number: (-waiting_jobs[job_number][0], job_number)
        ):
            job_parts = waiting_jobs[leader_number][1]
            too_early = self._clock() < self._vain_offers.get(leader_number, (0, 0.0))[1]
            if (
                leader_number in self._offers
                or too_early
                or not self._has_devices(leader_number, job_parts)
            ):
                continue
            if busy_nodes := await self._nodes.unmet_need((*self._offers, leader_number)):
                self._pass_over(leader_number, busy_nodes)
            elif await self._reserve_devices(leader_number, job_parts):
                # The others may take a while, so the offer does not wait for them.
                self._offers[leader_number] = asyncio.create_task(
                    self._offer(leader_number, job_parts)
                )

    async def _offer(self, leader_number: int, job_parts: dict[int, PodAndSize]) -> None:
        """Offer a job its devices until its window is over. An error concerns this offer alone."""
        try:
            await self._offer_to_slurm(leader_number, job_parts)
        except PodwrightError as error:
            _log.warning("job %d: %s", leader_number, error)
        finally:
            del self._offers[leader_number]
            self._deadlines.pop(leader_number, None)

    def _pass_over(self, leader_number: int, busy_nodes: str) -> None:
        """Leave a job without an offer because its nodes are busy. Room that was made for it would
        be idle, so others get that room, as after a vain offer.
        """
        if leader_number not in self._passed_over_leaders:
            _log.info("job %d is not offered devices: %s", leader_number, busy_nodes)
            self._passed_over_leaders.add(leader_number)
        for book in self._books.values():
            if book.closed_for == leader_number:
                _log.info("room is not kept for job %d: %s", leader_number, busy_nodes)
                book.close(0)
                self.declined.add(leader_number)
                self._counts.poke()

    def _has_devices(self, leader_number: int, job_parts: Mapping[int, PodAndSize]) -> bool:
        """Return whether each part has a block for itself. Whether all parts fit together shows
        when their devices are set aside.
        """
        return all(
            part_number in self._books[pod.type].holdings
            or self._books[pod.type].find(count.bit_length() - 1, leader_number) is not None
            for part_number, (pod, count) in job_parts.items()
        )

    def waiting(self, jobs: Iterable[Listed]) -> dict[int, tuple[int, dict[int, PodAndSize]]]:
        """Return the heterogeneous jobs that wait: for each leader its priority and the parts that
        want devices.

        Jobs with a part that no longer waits, and held jobs, are left out.
        """
        parts_by_leader: dict[int, dict[int, PodAndSize]] = {}
        started_leaders: set[int] = set()
        priority_by_leader: dict[int, int] = {}
        for listed_job in jobs:
            if listed_job.job == listed_job.het or listed_job.het not in priority_by_leader:
                # The leader's priority counts; Slurm 26.05 lists the leader last.
                priority_by_leader[listed_job.het] = listed_job.priority
            devices_request = listed_job.request(self._site.pods) if listed_job.het else None
            if devices_request is None:
                continue
            if listed_job.state != "PENDING":
                started_leaders.add(listed_job.het)
            parts_by_leader.setdefault(listed_job.het, {})[listed_job.job] = devices_request[:2]
        return {
            leader: (priority_by_leader[leader], parts)
            for leader, parts in parts_by_leader.items()
            if leader not in started_leaders and priority_by_leader[leader] > 0  # priority 0: held
        }

    async def _reserve_devices(self, leader_number: int, job_parts: dict[int, PodAndSize]) -> bool:
        """Set a job's devices aside, and make sure that no job already started was promised them.
        Return whether they are set aside.

        Slurm may have started a job by the old counts at the moment when the devices were taken. So
        the new counts are sent first, and the offer waits until every job that Slurm has started
        holds its devices. A started job that finds no block takes these back
        (`give_back_reserved`), and then False is returned.
        """
        for part_number, (pod, device_count) in sorted(
            job_parts.items(), key=lambda part_item: -part_item[1][1]
        ):
            pod_book = self._books[pod.type]
            if part_number in pod_book.holdings:
                continue
            if not pod_book.take(part_number, device_count.bit_length() - 1, leader=leader_number):
                self._drop_reserved(job_parts)
                return False
        self._reserved = set(job_parts)
        for pod_book in self._books.values():
            if pod_book.closed_for == leader_number:
                pod_book.close(0)  # the job holds that room itself now
        try:
            await self._counts.wait_until_synced()
            while self._reserved:
                books_settled = [await settled(self._slurm, book) for book in self._books.values()]
                if all(books_settled):
                    self._reserved = set()
                    self.offered |= set(job_parts)
                    return True
                await asyncio.sleep(0.05)
        except PodwrightError:
            self._drop_reserved(job_parts)
            self._reserved = set()
            raise
        self._counts.poke()
        return False

    async def _offer_to_slurm(self, leader_number: int, job_parts: dict[int, PodAndSize]) -> None:
        devices_by_licence: dict[str, int] = {}
        for pod, device_count in job_parts.values():
            devices_by_licence[pod.licence] = devices_by_licence.get(pod.licence, 0) + device_count
        licence_counts = {**devices_by_licence, JOB_MARK_LICENCE: len(job_parts)}
        _log.info("job %d may start: %s", leader_number, devices_by_licence)
        try:
            await self._set_leader_licences(leader_number, licence_counts)
            self._deadlines[leader_number] = self._clock() + self._site.window_s
            while self._clock() < self._deadlines[leader_number]:
                if leader_number not in await self._pending_leaders():
                    if await self._settle_left_job(leader_number, job_parts):
                        self._prolong_later_offers(leader_number)
                    return
                await asyncio.sleep(_ROUND_PAUSE_S)
            await self._set_leader_licences(leader_number, {HET_WAIT_LICENCE: 1})
            await asyncio.sleep(0.1)
            if leader_number in await self._pending_leaders():
                _log.info("job %d was not started within the window", leader_number)
                self.declined.add(leader_number)
                vain_count = self._vain_offers.get(leader_number, (0, 0.0))[0]
                pause_s = self._site.window_s * 2 ** min(vain_count, _MAX_DOUBLINGS)
                self._vain_offers[leader_number] = vain_count + 1, self._clock() + pause_s
                self._drop_reserved(
                    part_number for part_number in job_parts if not self._has_partition(part_number)
                )
                self._counts.poke()
        finally:
            self.offered -= set(job_parts)

    def _prolong_later_offers(self, leader_number: int) -> None:
        """Begin the windows of those anew that were offered after this job, which has started.

        In one pass Slurm may start only the first of several that it could start.
        """
        leaders = list(self._deadlines)
        for later_leader in leaders[leaders.index(leader_number) + 1 :]:
            self._deadlines[later_leader] = self._clock() + self._site.window_s

    async def _settle_left_job(self, leader_number: int, part_numbers: Iterable[int]) -> bool:
        """Settle a job that no longer waits for its offer, and return whether it has started. If it
        was held or cancelled, what was set aside for it is dropped.
        """
        listed_jobs = await self._listing.all_jobs()
        leader_job = listed_jobs.get(leader_number)
        if leader_job is not None and leader_job.het != leader_number:
            # Another job has the number: slurmctld was killed and forgot this one.
            leader_job = None
        if leader_job is not None and not (leader_job.waits or leader_job.over):
            return True
        if leader_job is not None and leader_job.waits:
            _log.info("job %d was held when it might have started", leader_number)
            await self._set_leader_licences(leader_number, {HET_WAIT_LICENCE: 1})
        present_parts = {
            part_number
            for part_number in part_numbers
            if part_number in listed_jobs and listed_jobs[part_number].het == leader_number
        }
        idle_parts = [
            part_number
            for part_number in part_numbers
            if part_number not in present_parts
            or listed_jobs[part_number].waits
            or listed_jobs[part_number].over
        ]
        self._drop_reserved(
            part_number for part_number in idle_parts if not self._has_partition(part_number)
        )
        self._counts.poke()
        return False

    async def _pending_leaders(self) -> set[int]:
        return set(self.waiting((await self._listing.all_jobs()).values()))

    async def wait_again(self, leader_number: int) -> None:
        """Take back an offer that an earlier process of the service made."""
        await self._set_leader_licences(leader_number, {HET_WAIT_LICENCE: 1})

    async def _set_leader_licences(
        self, leader_number: int, licence_counts: dict[str, int]
    ) -> None:
        licence_list = ",".join(f"{licence}:{count}" for licence, count in licence_counts.items())
        await self._slurm.run(
            "scontrol", "update", f"jobid={leader_number}+0", f"licenses={licence_list}"
        )

    def _has_partition(self, job_number: int) -> bool:
        return any(
            job_number in book.holdings and book.holdings[job_number].created
            for book in self._books.values()
        )

    def _drop_reserved(self, job_numbers: Iterable[int]) -> None:
        for number in list(job_numbers):
            for book in self._books.values():
                holding = book.holdings.get(number)
                if holding is not None and not holding.created:
                    book.release(number)
