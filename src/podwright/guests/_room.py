"""Room for a large job, which small ones that fit would else pass for ever.

A guest that starts whatever fits sets no devices aside for a job that does not fit yet: it cannot
know which blocks will join. So when the first of those that wait for devices has waited a while,
the block of its size that comes free soonest is closed: what is free of it, and comes free, is not
counted, until all of it is. Then it is counted again, and the guest looks at its jobs by priority.

A job of several blocks gets all of them, in all of its pods, or none. They stay closed until all
are free, and then for that job alone. One that was offered its devices and did not take them waits
twice as long for its next room, and so on. One job of a pod at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from podwright.guests._book import Book
from podwright.placement.buddy_blocks import fit, soonest

_log = logging.getLogger("podwright.guests")
_DOUBLED = 6  # times at most

K = TypeVar("K", bound=Hashable)


class Waits(NamedTuple):
    """A job that waits for devices and for nothing else. orders: what it wants of each pod, the
    largest first. alone: its blocks are kept for it once they are free; served: they are.
    """

    priority: int
    job: Any
    orders: dict[str, list[int]]
    alone: bool = False
    served: bool = False


class Room(Generic[K]):
    """Looks with each sweep who waits first, and since when.

    books: by pod. seconds: how long the first waits before room is made; 0: for ever.
    clock: seconds, never backwards. changed: called when more or less is counted.
    """

    def __init__(
        self,
        books: Mapping[str, Book[K, Any]],
        seconds: float,
        clock: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self._books, self._seconds = books, seconds
        self._clock, self._changed = clock, changed
        self._since: dict[K, float] = {}  # job -> when it was first there
        self._declined: dict[K, int] = {}  # job -> how often it did not take what it got

    def look(
        self, waiting: Iterable[Waits], ends: Mapping[K, str], declined: Collection[K] = ()
    ) -> None:
        """Close and open blocks as the queue is now.

        ends: when each job that is known ends, as text that sorts; empty: not known. declined:
        those that since the last look did not take what they were offered.
        """
        if self._seconds <= 0:
            return
        firsts = first_in_line(waiting)
        mine = {pod: one.job for one in firsts for pod in one.orders}
        for pod, book in self._books.items():
            if book.emptied:
                continue  # whoever moves jobs opens it
            if book.closed_for != mine.get(pod) or book.closed & book.away:
                self._open(book)  # for somebody else now, or somewhere else: a machine failed
        now = self._clock()
        counts = {job: self._declined.get(job, 0) + (job in declined) for job in ends}
        self._declined = {job: count for job, count in counts.items() if count}
        known = {job: at for job, at in self._since.items() if job not in declined}
        self._since = {one.job: known.get(one.job, now) for one in firsts}
        for one in firsts:
            books = [self._books[pod] for pod in one.orders]
            doubled = min(self._declined.get(one.job, 0), _DOUBLED)
            if now - self._since[one.job] < self._seconds * 2**doubled:
                for book in books:
                    if not book.emptied:
                        self._open(book)
            elif not (one.served or any(b.moves for b in books) or all(b.closed for b in books)):
                self._close(one, ends)

    def _close(self, one: Waits, ends: Mapping[K, str]) -> None:
        books = {pod: self._books[pod] for pod in one.orders}
        if all(fit(book.blocks, one.orders[pod]) for pod, book in books.items()):
            return  # the guest knows, or it is kept for it, and it starts
        chosen = {pod: _soonest(book, one.orders[pod], ends) for pod, book in books.items()}
        if not all(chosen.values()):
            for book in books.values():
                self._open(book)  # with what failed or was drained it cannot be
            return
        for pod, book in books.items():
            wanted = " and ".join(str(1 << order) for order in one.orders[pod])
            _log.info("job %s waits for %s devices of %s: room is made", one.job, wanted, pod)
            book.close(chosen[pod], one.job, alone=one.alone)
        self._changed()

    def _open(self, book: Book[K, Any]) -> None:
        if book.closed:
            book.close(0)
            self._changed()


def first_in_line(waiting: Iterable[Waits]) -> list[Waits]:
    """Who is first in the queue for each pod that it wants devices of."""
    firsts: list[Waits] = []
    taken: set[str] = set()
    for one in sorted(waiting, key=lambda one: (-one.priority, one.job)):
        if taken.isdisjoint(one.orders):
            firsts.append(one)
            taken |= one.orders.keys()
    return firsts


def _soonest(book: Book[K, Any], orders: Sequence[int], ends: Mapping[K, str]) -> int:
    """Blocks of these sizes whose jobs end soonest, as bits; 0: there are not so many."""
    held = [(one.bits, ends.get(one.job, "")) for one in book.holdings.values()]
    return soonest(book.blocks.capacity, book.away, held, orders, first="")
