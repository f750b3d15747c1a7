"""Who waits for devices in Slurm's queue, for the room that is made for a large job (`guests`).

Slurm starts whatever fits, in the order of its priorities. For a heterogeneous job it names nodes
as the reason also where devices are missing, so one that was offered its devices and did not take
them waits longer for its next room. Our choice, where Slurm has no means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from podwright.guests import Room, Waits
from podwright.placement.move_plans import likely_end
from podwright.slurm.pods.service._pod_book import SETTLE_S, settled
from podwright.slurm.pods.service._queue import Listed

if TYPE_CHECKING:
    from podwright.slurm.pods.service._service import Service

#: While Slurm looks at a job anew it shows no reason.
_FOR_DEVICES = ("Licenses", "None")
_ALSO = ("Resources", "Priority", "Reservation")


class QueueRoom:
    """Looks with each sweep. wall: seconds since 1970."""

    def __init__(self, service: Service, wall: Callable[[], float] = time.time) -> None:
        self._service, self._wall = service, wall
        self._room: Room[int] = Room(
            service.books, service.site.room_s, service.clock, service.counts.poke
        )
        self._unsettled: dict[str, float] = {}  # pod -> since when

    def look(self, jobs: Mapping[int, Listed]) -> None:
        """Close and open blocks as the queue is now."""
        het = self._service.het
        declined, het.declined = het.declined, set()
        ends = {job: one.end for job, one in jobs.items()}
        self._room.look(self.waiting(jobs), ends | self._likely_ends(jobs), declined)

    def _likely_ends(self, jobs: Mapping[int, Listed]) -> dict[int, str]:
        """Of those whose end Slurm does not know: as they have no limit."""
        now, out = self._wall(), {}
        for book in self._service.books.values():
            for job, holding in book.holdings.items():
                if job in jobs and not jobs[job].end[:1].isdigit():
                    end = likely_end(0.0, holding.began, now)[0]
                    out[job] = datetime.fromtimestamp(end).isoformat(timespec="seconds")
        return out

    async def settle(self) -> None:
        """Once Slurm knows of a closed block, and what it started before has its devices, nothing
        opens it any more. Raises PodwrightError."""
        service = self._service
        for pod, book in service.books.items():
            if not book.unsettled or book.emptied:  # what is emptied is the mover's
                self._unsettled.pop(pod, None)
                continue
            since = self._unsettled.setdefault(pod, service.clock())
            await service.counts.synced()
            if await settled(service.slurm, book) or service.clock() - since > SETTLE_S:
                book.unsettled = False

    def waiting(self, jobs: Mapping[int, Listed]) -> list[Waits]:
        """Who waits for devices."""
        service = self._service
        waiting = []
        for job in jobs.values():
            wants = None if job.het else job.wants(service.site.pods)
            waits = job.state == "PENDING" and job.priority > 0 and job.reason in _FOR_DEVICES
            if wants and waits:
                orders = {wants[0].type: [wants[1].bit_length() - 1]}
                waiting.append(Waits(job.priority, job.job, orders))
        for leader, (priority, parts) in service.het.waiting(jobs.values()).items():
            said = jobs.get(leader)
            if said is None or said.reason not in (*_FOR_DEVICES, *_ALSO):
                continue
            orders = {}
            for pod, size in sorted(parts.values(), key=lambda part: -part[1]):
                orders.setdefault(pod.type, []).append(size.bit_length() - 1)
            served = not service.het.busy().isdisjoint(parts)
            waiting.append(Waits(priority, leader, orders, alone=True, served=served))
        return waiting
