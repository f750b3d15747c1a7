"""Makes room for a large job, which small jobs that fit would otherwise overtake for ever.

A guest that starts whatever fits sets no devices aside for a job that does not fit yet, because it
cannot know which blocks will join. So it names one job for each pod (`_job_naming`), and the server
keeps a place for that job, in turn with those of other guests (`exchange`). The guest does not
count the devices of the place as free until all of them are. Then they are counted again, and the
guest considers its jobs by priority; or they are for the named job alone, where the guest can tell
its jobs apart (`Waits.alone`). It counts no device that the server keeps for another guest, so that
it starts nothing there.

A job of several blocks gets all of them, in all of its pods, or none. A job that was offered its
devices and did not take them waits twice as long for its next room, and so on. A server that is too
old keeps no places, and then no room is made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from podwright.errors import Denied, InvalidRequest, NotFound
from podwright.guests.shared._block_holdings import Book
from podwright.guests.shared._job_naming import JobNaming, Waits
from podwright.guests.shared._vipu_server_client import GuestServer
from podwright.placement.buddy_blocks import BuddyBlocks, fit
from podwright.wire import EnqueueReply, EnqueueRequest, PartitionEnd, PoolHead

_log = logging.getLogger("podwright.guests")
K = TypeVar("K", bound=Hashable)


class Room(Generic[K]):
    """Names jobs to the server with each look, and closes what it keeps for them.

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
        self._refusal = ""
        self._naming = JobNaming(patience_s)
        self._end_times: Mapping[K, str] = {}

    def update(
        self,
        waiting: Iterable[Waits],
        end_times: Mapping[K, str],
        declined_jobs: Collection[K] = (),
    ) -> None:
        """Choose the jobs that are named as the queue is now.

        end_times: when each job that is known ends, as text that sorts; empty: not known.
        declined_jobs: those that since the last look did not take what they were offered.
        """
        fitting: dict[tuple[str, tuple[int, ...]], bool] = {}
        jobs = [
            job
            for job in waiting
            if all(self._can_fit(pod, orders, fitting) for pod, orders in job.orders.items())
        ]
        self._naming.update(
            jobs,
            self._clock(),
            declined={job.title for job in jobs if job.job in declined_jobs},
            busy_pods={pod for pod, book in self._books.items() if book.emptied or book.moves},
        )
        self._end_times = end_times

    def _can_fit(
        self, pod: str, orders: Sequence[int], known: dict[tuple[str, tuple[int, ...]], bool]
    ) -> bool:
        """Whether blocks fit into a pod once nobody uses it."""
        key = pod, tuple(orders)
        if key not in known:
            book = self._books[pod]
            known[key] = fit(BuddyBlocks(book.blocks.capacity & ~book.out_of_service), orders)
        return known[key]

    def passed(self) -> list[Waits]:
        """See `JobNaming.passed`."""
        return self._naming.passed()

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
            changed_pods = [pod for pod in pods if self._apply_reply(pod, reply)]
            if changed_pods:
                self._changed()

    def _enqueue_request(self, pods: Sequence[str]) -> EnqueueRequest:
        pool_heads = []
        for pod in pods:
            book = self._books[pod]
            named = self._naming.named.get(pod)
            pool_head = PoolHead(cluster=book.cluster, allocation=book.allocation)
            if named is not None and not (book.emptied or book.moves):
                pool_head = msgspec.structs.replace(
                    pool_head,
                    job=named.job.title,
                    owner=named.job.owner,
                    sizes=[1 << order for order in named.job.orders[pod]],
                    due=named.is_due,
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
        book, named = self._books[pod], self._naming.named.get(pod)
        own_bits = others_bits = 0
        is_offered = False
        for kept_place in reply.places:
            if (kept_place.cluster, kept_place.allocation) != (book.cluster, book.allocation):
                continue
            device_bits = book.line.bits(kept_place.devices)
            if named is not None and kept_place.job == named.job.title:
                own_bits, is_offered = own_bits | device_bits, kept_place.offered
            else:
                others_bits |= device_bits
        has_changed = book.keep(own_bits, others_bits)
        if book.emptied:
            return has_changed
        self._naming.hear(pod, has_place=bool(own_bits), offered=is_offered)
        if named is None or not own_bits or (is_offered and not named.job.alone):
            has_changed = has_changed or bool(book.closed)
            book.close(0)
        elif (book.closed, book.closed_for) != (own_bits, named.job.job):
            _log.info(
                "%s waits: %d devices of %s are kept", named.job.title, own_bits.bit_count(), pod
            )
            book.close(own_bits, named.job.job, alone=named.job.alone)
            has_changed = True
        return has_changed


def _timestamp(end_time: str) -> float:
    """Seconds since 1970 of a time as text; 0 where it is not known or unlimited."""
    try:
        return datetime.fromisoformat(end_time).timestamp()
    except ValueError:
        return 0.0
