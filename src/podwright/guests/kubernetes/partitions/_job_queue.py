"""The queue of jobs, and which of them gets its IPUs now. Pure, except that it writes the books.

The job of the highest priority comes first, and of equal ones the oldest. Jobs that fit may
overtake one that does not, until room is made for it (`guests.Room`). A job gets all of its
partitions or none, and all from one controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from podwright.guests.kubernetes.job._ipu_job import JobKey
from podwright.guests.kubernetes.partitions._claims import Claim, ClaimBook, Owner
from podwright.guests.shared import Waits
from podwright.placement.buddy_blocks import BuddyBlocks, fit


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits.

    created: seconds since 1970. order: each partition has 2**order IPUs. pods: the names of the
    books that it may be in. not_before: the time, by the operator's clock, before which it is not
    tried again after a failed start. priority_class: the name of its PriorityClass; empty: the
    cluster's default.
    """

    key: JobKey
    created: float
    instances: tuple[int, ...]
    order: int
    pods: tuple[str, ...]
    not_before: float = 0.0
    priority_class: str = ""


class Granted(NamedTuple):
    """A job whose blocks are in a book, so that its partitions can be made."""

    job: QueuedJob
    pod: str
    claims: tuple[Claim, ...]


@dataclass(slots=True)
class JobQueue:
    """All queued jobs, by uid. priorities: as `Kube.priorities` returns them."""

    kubernetes: str
    waiting: dict[str, QueuedJob] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)

    def priority(self, queued_job: QueuedJob) -> int:
        """The priority of a job; 0 for a class that is not known."""
        return self.priorities.get(queued_job.priority_class, 0)

    def ranked(self) -> list[QueuedJob]:
        """The queued jobs in order, the first one first."""
        return sorted(
            self.waiting.values(),
            key=lambda queued_job: (
                -self.priority(queued_job),
                queued_job.created,
                queued_job.key.uid,
            ),
        )

    def grant(self, books: Mapping[str, ClaimBook], now: float) -> list[Granted]:
        """Grant blocks to all jobs that fit now, and take these jobs out of the queue."""
        granted_jobs = []
        for queued_job in self.ranked():
            if queued_job.not_before > now:
                continue
            for name in queued_job.pods:
                claims = self._take_claims(queued_job, books[name])
                if claims:
                    granted_jobs.append(Granted(queued_job, name, claims))
                    del self.waiting[queued_job.key.uid]
                    break
        return granted_jobs

    def _take_claims(self, queued_job: QueuedJob, book: ClaimBook) -> tuple[Claim, ...]:
        is_reserved = queued_job.key.uid == book.closed_for
        if not is_reserved and not fit(book.blocks, [queued_job.order] * len(queued_job.instances)):
            return ()
        claims = []
        for instance in queued_job.instances:
            owner = Owner(self.kubernetes, queued_job.key, instance)
            claim = book.take(owner, queued_job.order, group=queued_job.key.uid)
            if claim is None:
                break
            claims.append(claim)
        else:
            return tuple(claims)
        for claim in claims:
            book.release(claim.job)
        return ()

    def waits(self, books: Mapping[str, ClaimBook]) -> Iterable[Waits]:
        """Yield the queued jobs for `guests.Room`. The first has the highest priority."""
        ranked_jobs = self.ranked()
        for queue_index, queued_job in enumerate(ranked_jobs):
            for book_name in queued_job.pods[:1]:
                orders = [queued_job.order] * len(queued_job.instances)
                yield Waits(
                    len(ranked_jobs) - queue_index,
                    queued_job.key.uid,
                    {book_name: orders},
                    alone=True,
                    name=f"job {queued_job.key.namespace}/{queued_job.key.name}",
                    owner=queued_job.key.namespace,
                )


def never(book: ClaimBook, queued_job: QueuedJob) -> str:
    """Return why a pod can never serve a job, however long it waits, or "" if it can."""
    blocks = BuddyBlocks(book.blocks.capacity)
    if fit(blocks, [queued_job.order] * len(queued_job.instances)):
        return ""
    ipus = 1 << queued_job.order
    return (
        f"{len(queued_job.instances)} partitions of {ipus} IPUs do not fit into"
        f" {book.blocks.capacity.bit_count()} IPUs"
    )
