"""Finds the jobs in Slurm's queue that wait for devices, for the room that is made for a large job
(`guests`).

Slurm starts whatever fits, in the order of its priorities. For a heterogeneous job Slurm gives
nodes as the reason even where devices are missing. So a heterogeneous job that was offered its
devices and did not take them waits longer for its next room. This is our own choice, because Slurm
has no means for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from podwright.guests.shared import Room, Waits
from podwright.guests.slurm.service._pod_book import SETTLE_S, settled
from podwright.guests.slurm.service._queue import Listed
from podwright.guests.slurm.service._queue_report import user_name
from podwright.placement.move_plans import likely_end

if TYPE_CHECKING:
    from podwright.guests.slurm.service._service import Service

#: Slurm shows the reason None while it looks at a job again.
_FOR_DEVICES = ("Licenses", "None")
#: Above all priorities of Slurm, which has 32 bits for them.
_STARTED = 1 << 32
_ALSO = ("Resources", "Priority", "Reservation")


class QueueRoom:
    """Makes room with each sweep. wall: returns seconds since 1970."""

    def __init__(self, service: Service, wall: Callable[[], float] = time.time) -> None:
        self._service, self._wall = service, wall
        self._room: Room[int] = Room(
            service.books, service.site.room_s, service.clock, service.counts.poke
        )
        self._unsettled: dict[str, float] = {}  # pod -> since when

    def update(self, jobs: Mapping[int, Listed]) -> None:
        """Close and open blocks as the present queue needs."""
        in_prolog = self._service.in_prolog
        for number in [job for job in in_prolog if job not in jobs or not _in_prolog(jobs[job])]:
            del in_prolog[number]  # its start is over; its next try brings it back
        het = self._service.het
        declined, het.declined = het.declined, set()
        end_times = {job: listed_job.end for job, listed_job in jobs.items()}
        self._room.update(self.waiting(jobs), end_times | self._likely_ends(jobs), declined)

    async def exchange(self) -> None:
        """Name the first jobs to the server, and close what it keeps. Raises PodwrightError."""
        await self._room.exchange(dict.fromkeys(self._service.books, self._service.server))

    def _likely_ends(self, jobs: Mapping[int, Listed]) -> dict[int, str]:
        """Return the likely ends of jobs without a time limit, whose ends Slurm does not know."""
        now, out = self._wall(), {}
        for book in self._service.books.values():
            for job, holding in book.holdings.items():
                if job in jobs and not jobs[job].end[:1].isdigit():
                    end = likely_end(0.0, holding.began, now)[0]
                    out[job] = datetime.fromtimestamp(end).isoformat(timespec="seconds")
        return out

    async def settle(self) -> None:
        """Mark closed blocks as settled: from then on no started job opens them again. Raises
        PodwrightError.

        A block is settled once Slurm knows that it is closed, and all jobs that Slurm had started
        before have their devices, or SETTLE_S seconds are over.
        """
        service = self._service
        for pod, book in service.books.items():
            if not book.unsettled or book.emptied:  # JobMover deals with blocks that moves empty
                self._unsettled.pop(pod, None)
                continue
            since = self._unsettled.setdefault(pod, service.clock())
            await service.counts.synced()
            if await settled(service.slurm, book) or service.clock() - since > SETTLE_S:
                book.unsettled = False

    def waiting(self, jobs: Mapping[int, Listed]) -> list[Waits]:
        """Return the jobs that wait for devices.

        A job that waits in its prolog comes first: Slurm has started it for devices that somebody
        else got in the meantime. Only the server can keep others for it.
        """
        service = self._service
        waiting = []
        if self._room.shared:
            for number, (pod_type, order) in service.in_prolog.items():
                if number in jobs and _in_prolog(jobs[number]):
                    orders = {pod_type: [order]}
                    owner = user_name(jobs[number].uid)
                    waiting.append(Waits(_STARTED, number, orders, started=True, owner=owner))
        for job in jobs.values():
            request = None if job.het else job.request(service.site.pods)
            waits = job.state == "PENDING" and job.priority > 0 and job.reason in _FOR_DEVICES
            if request and waits:
                orders = {request[0].type: [request[1].bit_length() - 1]}
                waiting.append(Waits(job.priority, job.job, orders, owner=user_name(job.uid)))
        for leader, (priority, parts) in service.het.waiting(jobs.values()).items():
            leader_job = jobs.get(leader)
            if leader_job is None or leader_job.reason not in (*_FOR_DEVICES, *_ALSO):
                continue
            orders = {}
            for pod, size in sorted(parts.values(), key=lambda part: -part[1]):
                orders.setdefault(pod.type, []).append(size.bit_length() - 1)
            served = not service.het.busy().isdisjoint(parts)
            owner = user_name(leader_job.uid)
            waiting.append(Waits(priority, leader, orders, alone=True, served=served, owner=owner))
        return waiting


def _in_prolog(job: Listed) -> bool:
    """Return whether a job may still be in its prolog: Slurm has started it, and it is not over."""
    return not job.over and job.state != "PENDING"
