"""Room for a large job, which small ones that fit would else pass for ever.

Slurm starts whatever fits, in the order of its priorities, and sets no devices aside for a job that
does not fit yet: it cannot know which blocks will join. So when the first of those that wait for
devices has waited `room_s` seconds, the block of its size that comes free soonest is closed: what
is free of it, and comes free, is not counted, until all of it is. Then Slurm counts it again, and
looks at the jobs by priority.

A heterogeneous job gets a block for each of its parts, in all of its pods or in none. They stay
closed until all are free, and then are set aside for it (`_het`), since Slurm would give them to
whoever comes first. For such a job Slurm names nodes as the reason also where devices are missing;
so one that was offered its devices and did not take them waits twice as long for its next room, and
so on. One job of a pod at a time. Our choice, where Slurm has no means.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from podwright.placement.line import fit, soonest
from podwright.slurm.pods.service._book import Book
from podwright.slurm.pods.service._queue import Listed

if TYPE_CHECKING:
    from podwright.slurm.pods.service._service import Service

_log = logging.getLogger("podwright.slurm")
#: While Slurm looks at a job anew it shows no reason.
_FOR_DEVICES = ("Licenses", "None")
_ALSO = ("Resources", "Priority", "Reservation")
_DOUBLED = 6  # times at most


class Waits(NamedTuple):
    """A job that waits for devices and for nothing else. orders: what it wants of each pod, the
    largest first. alone: a heterogeneous one, whose devices are set aside for it; served: they are.
    """

    priority: int
    job: int
    orders: dict[str, list[int]]
    alone: bool = False
    served: bool = False


class Room:
    """Looks with each sweep who waits first, and since when."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since: dict[int, float] = {}  # job -> when it was first there
        self._declined: dict[int, int] = {}  # leader -> how often it did not take what it got

    def look(self, jobs: Mapping[int, Listed]) -> None:
        """Close and open blocks as the queue is now."""
        service = self._service
        if service.site.room_s <= 0:
            return
        firsts = self._firsts(jobs)
        mine = {pod: one.job for one in firsts for pod in one.orders}
        for pod, book in service.books.items():
            if book.closed_for != mine.get(pod) or book.closed & book.away:
                self._open(book)  # for somebody else now, or somewhere else: a machine failed
        now = service.clock()
        again, service.het.declined = service.het.declined, set()
        declined = {job: self._declined.get(job, 0) + (job in again) for job in jobs}
        self._declined = {job: count for job, count in declined.items() if count}
        known = {job: at for job, at in self._since.items() if job not in again}
        self._since = {one.job: known.get(one.job, now) for one in firsts}
        for one in firsts:
            books = [service.books[pod] for pod in one.orders]
            doubled = min(self._declined.get(one.job, 0), _DOUBLED)
            if now - self._since[one.job] < service.site.room_s * 2**doubled:
                for book in books:
                    self._open(book)
            elif not one.served and not all(book.closed for book in books):
                self._close(one, jobs)

    def _firsts(self, jobs: Mapping[int, Listed]) -> list[Waits]:
        """Who is first in the queue for each pod that it wants devices of."""
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
        firsts: list[Waits] = []
        taken: set[str] = set()
        for one in sorted(waiting, key=lambda one: (-one.priority, one.job)):
            if taken.isdisjoint(one.orders):
                firsts.append(one)
                taken |= one.orders.keys()
        return firsts

    def _close(self, one: Waits, jobs: Mapping[int, Listed]) -> None:
        books = {pod: self._service.books[pod] for pod in one.orders}
        if all(fit(book.blocks, one.orders[pod]) for pod, book in books.items()):
            return  # Slurm knows, or it is set aside for it, and it starts
        chosen = {pod: _soonest(book, one.orders[pod], jobs) for pod, book in books.items()}
        if not all(chosen.values()):
            for book in books.values():
                self._open(book)  # with what failed or was drained it cannot be
            return
        for pod, book in books.items():
            wanted = " and ".join(str(1 << order) for order in one.orders[pod])
            _log.info("job %d waits for %s devices of %s: room is made", one.job, wanted, pod)
            book.close(chosen[pod], one.job, alone=one.alone)
        self._service.counts.poke()

    def _open(self, book: Book) -> None:
        if book.closed:
            book.close(0)
            self._service.counts.poke()


def _soonest(book: Book, orders: list[int], jobs: Mapping[int, Listed]) -> int:
    """Blocks of these sizes whose jobs end soonest, as bits; 0: there are not so many."""
    ends = {one.job: jobs[one.job].end if one.job in jobs else "" for one in book.holdings.values()}
    held = [(one.bits, ends[one.job]) for one in book.holdings.values()]
    return soonest(book.blocks.capacity, book.away, held, orders, first="")
