"""Room for a large job, which small ones that fit would else pass for ever.

Slurm starts whatever fits, in the order of its priorities, and sets no devices aside for a job that
does not fit yet: it cannot know which blocks will join. So when the first of those that wait for
devices has waited `room_s` seconds, the block of its size that comes free soonest is closed: what
is free of it, and comes free, is not counted, until all of it is. Then Slurm counts it again, and
looks at the jobs by priority. One block of a pod at a time. Our choice, where Slurm has no means.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from podwright.slurm.service._blocks import block
from podwright.slurm.service._book import Book
from podwright.slurm.service._queue import Listed

if TYPE_CHECKING:
    from podwright.slurm.service._service import Service

_log = logging.getLogger("podwright.slurm")
#: While Slurm looks at a job anew it shows no reason.
_FOR_DEVICES = ("Licenses", "None")


class Room:
    """Looks with each sweep who waits first, and since when."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since: dict[str, tuple[int, float]] = {}  # pod -> (job, when it was first there)

    def look(self, jobs: Mapping[int, Listed]) -> None:
        """Close and open blocks as the queue is now."""
        service = self._service
        if service.site.room_s <= 0:
            return
        for pod, book in service.books.items():
            first = self._first(book, jobs.values())
            known, since = self._since.get(pod, (0, 0.0))
            if first is None:
                self._since.pop(pod, None)
                self._open(book)
                continue
            if first.job != known:
                known, since = self._since[pod] = (first.job, service.clock())
                self._open(book)
            if not book.closed and service.clock() - since >= service.site.room_s:
                self._close(book, first, jobs)

    def _first(self, book: Book, jobs: Iterable[Listed]) -> Listed | None:
        """Who waits for devices of this pod, and for nothing else, before all others who do."""
        waiting = []
        for job in jobs:
            wants = None if job.het else job.wants(self._service.site.pods)
            waits = job.state == "PENDING" and job.priority > 0 and job.reason in _FOR_DEVICES
            if wants and wants[0] is book.pod and waits:
                waiting.append((-job.priority, job.job, job))
        first = min(waiting, default=None)
        return first[2] if first else None

    def _close(self, book: Book, first: Listed, jobs: Mapping[int, Listed]) -> None:
        wants = first.wants(self._service.site.pods)
        assert wants is not None
        order = wants[1].bit_length() - 1
        wholes = book.blocks.wholes()
        if order < len(wholes) and wholes[order]:
            return  # it fits: Slurm knows, and will start it
        ends = {
            one.job: jobs[one.job].end if one.job in jobs else "" for one in book.holdings.values()
        }
        best: tuple[str, int, int] | None = None
        for start in range(0, book.blocks.capacity.bit_length(), 1 << order):
            whole = block(start, order)
            if whole & ~book.blocks.capacity or whole & book.away:
                continue
            inside = [one for one in book.holdings.values() if one.bits & whole]
            last = max((ends[one.job] for one in inside), default="")
            held = sum((one.bits & whole).bit_count() for one in inside)
            best = min(best or (last, held, start), (last, held, start))
        if best is not None:
            _log.info("job %d waits for %d devices: room is made for it", first.job, 1 << order)
            book.close(block(best[2], order))
            self._service.counts.poke()

    def _open(self, book: Book) -> None:
        if book.closed:
            book.close(0)
            self._service.counts.poke()
