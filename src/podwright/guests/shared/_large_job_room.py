"""Makes room for a large job, which small jobs that fit would otherwise overtake for ever.

A guest that starts whatever fits sets no devices aside for a job that does not fit yet, because it
cannot know which blocks will join. So once the first waiting job has waited for a while, the block
of its size that comes free soonest is closed. Its devices, those that are free and those that come
free, are not counted as free until the whole block is. Then they are counted again, and the guest
considers its jobs by priority.

A job of several blocks gets all of them, in all of its pods, or none. The blocks stay closed until
all are free, and are then free for that job alone. A job that was offered its devices and did not
take them waits twice as long for its next room, and so on. Room is made for one job of a pod at a
time.

The server chooses the block where it can, because it knows what other guests hold and wait for
(`exchange`). The guest names its first jobs, says which have waited long enough, and closes
what the server keeps for them. It counts no device that the server keeps for another guest, so that
it starts nothing there. A server that is too old, or that is not to share pods, leaves the choice
to the guest, which then knows of its own jobs only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from podwright.errors import Denied, InvalidRequest, NotFound
from podwright.guests.shared._block_holdings import Book
from podwright.guests.shared._vipu_server_client import GuestServer
from podwright.placement.buddy_blocks import fit, soonest
from podwright.wire import EnqueueReply, EnqueueRequest, PartitionEnd, PoolHead

_log = logging.getLogger("podwright.guests")
_MAX_DOUBLINGS = 6  # times at most

K = TypeVar("K", bound=Hashable)


class Waits(NamedTuple):
    """A job that waits for devices and for nothing else. orders: what it wants of each pod, the
    largest first. alone: its blocks are kept for it once they are free; served: they are.
    started: the guest has started it already, so room is due at once. name, owner: as people know
    the job; an empty name: as `job` is.
    """

    priority: int
    job: Any
    orders: dict[str, list[int]]
    alone: bool = False
    served: bool = False
    started: bool = False
    name: str = ""
    owner: str = ""

    @property
    def title(self) -> str:
        """The job's name for people."""
        return self.name or f"job {self.job}"


class Room(Generic[K]):
    """Finds with each sweep which job waits first, and for how long it has waited.

    books: by pod. patience_s: how long the first job waits before room is made; 0: room is never
    made. clock: seconds, never backwards. on_change: called when more or less is counted.
    """

    def __init__(
        self,
        books: Mapping[str, Book[K, Any]],
        patience_s: float,
        clock: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        self._books, self._seconds = books, patience_s
        self._clock, self._changed = clock, on_change
        self._shared: set[str] = set()  # pods whose server chooses the blocks
        self._refusal = ""
        self._first: dict[str, tuple[Waits, bool]] = {}  # pod -> its first job; is room due
        self._end_times: Mapping[K, str] = {}
        self._since: dict[K, float] = {}  # job -> when it was first there
        self._declined: dict[K, int] = {}  # job -> how often it did not take what it got

    @property
    def shared(self) -> bool:
        """Whether a server keeps devices for the guest's jobs."""
        return bool(self._shared)

    def update(
        self,
        waiting: Iterable[Waits],
        end_times: Mapping[K, str],
        declined_jobs: Collection[K] = (),
    ) -> None:
        """Close and open blocks as the queue is now.

        end_times: when each job that is known ends, as text that sorts; empty: not known.
        declined_jobs: those that since the last look did not take what they were offered.
        """
        first_waiting_jobs = first_in_line(waiting)
        first_jobs = {
            pod: waiting_job.job for waiting_job in first_waiting_jobs for pod in waiting_job.orders
        }
        for pod, book in self._books.items():
            if book.emptied or pod in self._shared:
                continue  # whoever moves jobs opens it, or the server's reply does
            if book.closed_for != first_jobs.get(pod) or book.closed & book.unusable:
                # Another job is first now, or a machine of the block failed.
                self._open_blocks(book)
        now = self._clock()
        decline_counts = {
            job: self._declined.get(job, 0) + (job in declined_jobs) for job in end_times
        }
        self._declined = {
            job: decline_count for job, decline_count in decline_counts.items() if decline_count
        }
        known_since = {
            job: waiting_since
            for job, waiting_since in self._since.items()
            if job not in declined_jobs
        }
        self._since = {
            waiting_job.job: known_since.get(waiting_job.job, now)
            for waiting_job in first_waiting_jobs
        }
        self._first, self._end_times = {}, end_times
        for waiting_job in first_waiting_jobs:
            books = [self._books[pod] for pod in waiting_job.orders]
            doublings = min(self._declined.get(waiting_job.job, 0), _MAX_DOUBLINGS)
            waited_s = now - self._since[waiting_job.job]
            is_due = waiting_job.started or waited_s >= self._seconds * 2**doublings
            is_due = is_due and self._seconds > 0
            if not any(book.emptied or book.moves for book in books):
                self._first |= dict.fromkeys(waiting_job.orders, (waiting_job, is_due))
            if not self._shared.isdisjoint(waiting_job.orders):
                continue
            if not is_due:
                for book in books:
                    if not book.emptied:
                        self._open_blocks(book)
            elif not (
                waiting_job.served
                or any(pod_book.moves for pod_book in books)
                or all(pod_book.closed for pod_book in books)
            ):
                self._close_blocks(waiting_job, end_times)

    async def exchange(self, servers: Mapping[str, GuestServer]) -> None:
        """Name the jobs that are to get room, and take over what the servers keep.

        servers: by pod. Raises PodwrightError; then the books are as before.
        """
        for server in {
            id(guest_server): guest_server for guest_server in servers.values()
        }.values():
            pods = [pod for pod in servers if servers[pod] is server]
            try:
                reply = await server.enqueue(self._enqueue_request(pods))
            except (Denied, InvalidRequest, NotFound) as error:
                if str(error) != self._refusal:
                    _log.warning("the server keeps no devices for jobs: %s", error)
                self._refusal, reply = str(error), EnqueueReply()
            self._shared = self._shared.difference(pods)
            if reply.sharing:
                self._shared |= set(pods)
            changed_pods = [pod for pod in pods if self._apply_reply(pod, reply)]
            if changed_pods:
                self._changed()

    def _enqueue_request(self, pods: Sequence[str]) -> EnqueueRequest:
        pool_heads = []
        for pod in pods:
            book = self._books[pod]
            waiting_job, is_due = self._first.get(pod, (None, False))
            pool_head = PoolHead(cluster=book.cluster, allocation=book.allocation)
            if waiting_job is not None:
                sizes = [1 << order for order in waiting_job.orders[pod]]
                pool_head = msgspec.structs.replace(
                    pool_head,
                    job=waiting_job.title,
                    owner=waiting_job.owner,
                    sizes=sizes,
                    due=is_due,
                )
            pool_heads.append(pool_head)
        now = datetime.now().timestamp()
        end_times = [
            PartitionEnd(partition=holding.name, seconds=seconds_left)
            for pod in pods
            for job, holding in self._books[pod].holdings.items()
            if (seconds_left := _timestamp(self._end_times.get(job, "")) - now) > 0
        ]
        return EnqueueRequest(pools=pool_heads, end_times=end_times)

    def _apply_reply(self, pod: str, reply: EnqueueReply) -> bool:
        """Close and open blocks as the server says. Returns whether anything has changed."""
        book = self._books[pod]
        waiting_job, _ = self._first.get(pod, (None, False))
        own_bits = others_bits = 0
        is_offered = False
        for kept_place in reply.places:
            if (kept_place.cluster, kept_place.allocation) != (book.cluster, book.allocation):
                continue
            device_bits = book.line.bits(kept_place.devices)
            if waiting_job is not None and kept_place.job == waiting_job.title:
                own_bits, is_offered = own_bits | device_bits, kept_place.offered
            else:
                others_bits |= device_bits
        has_changed = book.keep(own_bits, others_bits)
        if book.emptied or pod not in self._shared:
            return has_changed
        is_to_close = (
            bool(own_bits) and waiting_job is not None and (not is_offered or waiting_job.alone)
        )
        if not is_to_close:
            has_changed = has_changed or bool(book.closed)
            book.close(0)
        elif waiting_job is not None and (book.closed, book.closed_for) != (
            own_bits,
            waiting_job.job,
        ):
            _log.info(
                "job %s waits: %d devices of %s are kept",
                waiting_job.job,
                own_bits.bit_count(),
                pod,
            )
            book.close(own_bits, waiting_job.job, alone=waiting_job.alone)
            has_changed = True
        return has_changed

    def _close_blocks(self, waiting_job: Waits, end_times: Mapping[K, str]) -> None:
        books = {pod: self._books[pod] for pod in waiting_job.orders}
        if all(fit(book.blocks, waiting_job.orders[pod]) for pod, book in books.items()):
            return  # the guest knows, or it is kept for it, and it starts
        chosen_blocks = {
            pod: _soonest_blocks(book, waiting_job.orders[pod], end_times)
            for pod, book in books.items()
        }
        if not all(chosen_blocks.values()):
            for book in books.values():
                self._open_blocks(book)  # with what failed or was drained it cannot be
            return
        for pod, book in books.items():
            sizes_text = " and ".join(str(1 << order) for order in waiting_job.orders[pod])
            _log.info(
                "job %s waits for %s devices of %s: room is made", waiting_job.job, sizes_text, pod
            )
            book.close(chosen_blocks[pod], waiting_job.job, alone=waiting_job.alone)
        self._changed()

    def _open_blocks(self, book: Book[K, Any]) -> None:
        if book.closed:
            book.close(0)
            self._changed()


def first_in_line(waiting_jobs: Iterable[Waits]) -> list[Waits]:
    """Who is first in the queue for each pod that it wants devices of."""
    first_waiting_jobs: list[Waits] = []
    claimed_pods: set[str] = set()
    for candidate in sorted(waiting_jobs, key=lambda wait: (-wait.priority, wait.job)):
        if claimed_pods.isdisjoint(candidate.orders):
            first_waiting_jobs.append(candidate)
            claimed_pods |= candidate.orders.keys()
    return first_waiting_jobs


def _timestamp(end_time: str) -> float:
    """Seconds since 1970 of a time as text; 0 where it is not known or unlimited."""
    try:
        return datetime.fromisoformat(end_time).timestamp()
    except ValueError:
        return 0.0


def _soonest_blocks(book: Book[K, Any], orders: Sequence[int], end_times: Mapping[K, str]) -> int:
    """Blocks of these sizes whose jobs end soonest, as bits; 0: there are not so many."""
    holdings = [
        (holding.bits, end_times.get(holding.job, "")) for holding in book.holdings.values()
    ]
    return soonest(book.blocks.capacity, book.unusable, holdings, orders, first="")
