"""Which of the jobs that wait gets its IPUs now. Pure, but for the books that it writes.

The oldest comes first; one that does not fit is passed by those that do, until room is made for it
(`guests.Room`). A job gets all of its partitions or none, and all from one controller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from podwright.guests import Waits
from podwright.kubernetes._claims import Claim, ClaimBook, Owner
from podwright.kubernetes._ipu_job import JobKey
from podwright.placement.buddy_blocks import Blocks, fit


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits. created: seconds since 1970. pods: the books that it may be in, by name.
    not_before: by the operator's clock; after a start that failed."""

    key: JobKey
    created: float
    instances: tuple[int, ...]
    order: int
    pods: tuple[str, ...]
    not_before: float = 0.0

    @property
    def rank(self) -> tuple[float, str]:
        """Who is first."""
        return self.created, self.key.uid


class Granted(NamedTuple):
    """A job's blocks are in a book: its partitions can be made."""

    job: QueuedJob
    pod: str
    claims: tuple[Claim, ...]


@dataclass(slots=True)
class JobQueue:
    """All that wait, by uid."""

    kubernetes: str
    waiting: dict[str, QueuedJob] = field(default_factory=dict)

    def ranked(self) -> list[QueuedJob]:
        """First first."""
        return sorted(self.waiting.values(), key=lambda one: one.rank)

    def grant(self, books: Mapping[str, ClaimBook], now: float) -> list[Granted]:
        """Blocks for all that fit now. They no longer wait."""
        out = []
        for one in self.ranked():
            if one.not_before > now:
                continue
            for pod in one.pods:
                claims = self._take(one, books[pod])
                if claims:
                    out.append(Granted(one, pod, claims))
                    del self.waiting[one.key.uid]
                    break
        return out

    def _take(self, one: QueuedJob, book: ClaimBook) -> tuple[Claim, ...]:
        mine = one.key.uid == book.closed_for
        if not mine and not fit(book.blocks, [one.order] * len(one.instances)):
            return ()
        claims = []
        for instance in one.instances:
            owner = Owner(self.kubernetes, one.key, instance)
            claim = book.take(owner, one.order, whole=one.key.uid)
            if claim is None:
                break
            claims.append(claim)
        else:
            return tuple(claims)
        for claim in claims:
            book.release(claim.job)
        return ()

    def waits(self, asked: Mapping[str, ClaimBook]) -> Iterable[Waits]:
        """For `guests.Room`: the oldest has the highest priority."""
        ranked = self.ranked()
        for place, one in enumerate(ranked):
            for pod in one.pods[:1]:
                orders = [one.order] * len(one.instances)
                yield Waits(len(ranked) - place, one.key.uid, {pod: orders})


def never(book: ClaimBook, one: QueuedJob) -> str:
    """Why a pod can never serve a job, however long it waits; empty: it can."""
    empty = Blocks(book.blocks.capacity)
    if fit(empty, [one.order] * len(one.instances)):
        return ""
    size = 1 << one.order
    return (
        f"{len(one.instances)} partitions of {size} IPUs do not fit into"
        f" {book.blocks.capacity.bit_count()} IPUs"
    )


def unowned(books: Collection[ClaimBook], uids: Collection[str]) -> list[tuple[ClaimBook, Claim]]:
    """What jobs hold that are none of these."""
    return [
        (book, claim)
        for book in books
        for claim in book.holdings.values()
        if claim.owner.job.uid not in uids
    ]
