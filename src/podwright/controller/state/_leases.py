"""Leases: which devices they cover, which of them end together, and when. Pure but for the heap.

Leases of one partition are disjoint, except that a child lies inside its parent. Renewing
moves the end in memory only; the heap is corrected when an old end comes up.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from podwright.controller.state._read_only_mapping import ReadOnlyMapping
from podwright.controller.state._records import LeaseRecord
from podwright.controller.state._sorted_names import SortedNames
from podwright.wire import LeaseInfo


@dataclass(slots=True)
class HeldLease:
    """A live lease. ending: its end is under way, so it can no longer be renewed.

    late: it was not renewed in time, but what it lies in goes on, and decides: a job's processes
    may be suspended. It is over when somebody else in there wants its devices.
    move_seconds: what its launch loses by a move; 0: it cannot be moved. move: the word under which
    it is asked to, until `move_until`. asked_at: when it was asked, in the last hour.
    seen: the server has seen a process of its launch on its own host. missed: how many looks in a
    row have found none.
    """

    record: LeaseRecord
    expires: float
    ending: bool = False
    late: bool = False
    move_seconds: float = 0.0
    move: str = ""
    move_until: float = 0.0
    asked_at: tuple[float, ...] = ()
    seen: bool = False
    missed: int = 0


class LeaseIndex(ReadOnlyMapping[HeldLease]):
    """All live leases by id, and a heap of their ends.

    Renewing changes `expires` alone, so the heap may have an end that is too early, and never one
    that is too late. `due` puts such a lease back under its new end. A lease that it returns is no
    longer in the heap: its end is under way. Whoever then finds that it was renewed meanwhile, or
    renews one that is `late`, calls `watch` again. So every lease is in the heap, is being ended,
    or is late. One that was released stays in the heap until its end comes, or until half of the
    heap are such: a lease may be given for an hour and end in a moment.
    """

    STALE_ALLOWANCE = 64  #: released ones that are not worth a look

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[float, str]] = []
        self.ids = SortedNames()  #: of all leases, in order
        #: Those of launches whose processes can be told by a mark.
        self.marked: dict[str, HeldLease] = {}

    @property
    def watched(self) -> int:
        """The number of ends in the heap."""
        return len(self._heap)

    def add(self, lease: HeldLease) -> None:
        """Add a lease, and watch it."""
        self._by_name[lease.record.id] = lease
        self.ids.add(lease.record.id)
        if lease.record.run:
            self.marked[lease.record.id] = lease
        self.watch(lease)

    def remove(self, name: str) -> None:
        """Forget a lease by its id, if it is there."""
        self._by_name.pop(name, None)
        self.ids.discard(name)
        self.marked.pop(name, None)

    def watch(self, lease: HeldLease) -> None:
        """Watch for the end of a lease, as it is now."""
        if len(self._heap) > 2 * len(self) + self.STALE_ALLOWANCE:
            self._heap = [entry for entry in self._heap if entry[1] in self._by_name]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (lease.expires, lease.record.id))

    def due(self, now: float) -> list[HeldLease]:
        """The leases that have expired; each is returned once, unless it is watched again."""
        expired_leases = []
        while self._heap and self._heap[0][0] <= now:
            _, lease_id = heapq.heappop(self._heap)
            lease = self._by_name.get(lease_id)
            if lease is None or lease.ending:
                continue
            if lease.expires > now:
                heapq.heappush(self._heap, (lease.expires, lease_id))
            else:
                expired_leases.append(lease)
        return expired_leases


@contextmanager
def ending(ending_leases: Sequence[HeldLease]) -> Iterator[None]:
    """A context for the commit that ends leases: renewals fail. If it fails, the leases go on."""
    for lease in ending_leases:
        lease.ending = True
    try:
        yield
    except BaseException:
        for lease in ending_leases:
            lease.ending = False
        raise


def mask_of(first_index: int, device_count: int) -> int:
    """Bits of `device_count` devices from `first_index` on, in routing order."""
    return ((1 << device_count) - 1) << first_index


def ancestors(lease_id: str, leases_by_id: Mapping[str, HeldLease]) -> set[str]:
    """The lease and those it lies in."""
    ancestor_ids: set[str] = set()
    while lease_id and lease_id not in ancestor_ids:
        ancestor_ids.add(lease_id)
        lease = leases_by_id.get(lease_id)
        lease_id = lease.record.parent if lease else ""
    return ancestor_ids


def descendants(lease_id: str, candidate_leases: Iterable[HeldLease]) -> list[HeldLease]:
    """The lease and those that lie in it, parents first."""
    tree: list[HeldLease] = []
    tree_ids = {lease_id}
    # Ids are given in order of time and a child is younger than its parent.
    for candidate_lease in sorted(candidate_leases, key=lambda held_lease: held_lease.record.epoch):
        if candidate_lease.record.id in tree_ids or candidate_lease.record.parent in tree_ids:
            tree_ids.add(candidate_lease.record.id)
            tree.append(candidate_lease)
    return tree


def free_subset(
    first_index: int, device_count: int, subset_size: int, occupied_mask: int
) -> int | None:
    """Where `subset_size` devices (a power of two, aligned) are free within [first, first+count).

    The tightest hole is taken, so that larger subsets stay whole; the lowest of equals.
    """
    best_hole: tuple[int, int] | None = None
    for subset_start in range(first_index, first_index + device_count, subset_size):
        if subset_start + subset_size > first_index + device_count or occupied_mask & mask_of(
            subset_start, subset_size
        ):
            continue
        hole_size, hole_start = subset_size, subset_start
        while hole_size * 2 <= device_count:
            buddy_start = hole_start - (hole_start % (hole_size * 2))
            if (
                buddy_start < first_index
                or buddy_start + hole_size * 2 > first_index + device_count
                or occupied_mask & mask_of(buddy_start, hole_size * 2)
            ):
                break
            hole_size, hole_start = hole_size * 2, buddy_start
        if best_hole is None or hole_size < best_hole[0]:
            best_hole = (hole_size, subset_start)
    return best_hole[1] if best_hole else None


def lease_info_of(lease: HeldLease, partition_size: int, now: float) -> LeaseInfo:
    """The lease as callers see it. partition_size: the number of devices of its partition."""
    record = lease.record
    whole_partition = record.count == partition_size
    return LeaseInfo(
        id=record.id,
        partition=record.partition,
        epoch=record.epoch,
        holder=record.holder,
        owner=record.owner,
        ttl=record.ttl,
        expires_in=max(0.0, lease.expires - now),
        parent=record.parent,
        devices=[] if whole_partition else list(range(record.first, record.first + record.count)),
        hosts=list(record.hosts),
        move=lease.move,
        move_within=max(0.0, lease.move_until - now) if lease.move else 0.0,
    )
