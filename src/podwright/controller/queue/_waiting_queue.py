"""The queue: it decides which waiter is served next, by priority and then by age.

It is examined only when devices become free or a waiter joins, and then shape by shape: if the
first waiter of a shape cannot start, no other waiter of that shape can. So a thousand waiters cost
as much as a few. A waiter may start before one ahead of it only on devices that are not reserved
for that one (`_reserve`). Whether the next place in a pool is reserved for a waiter or for a
scheduler's job is decided in `_guest_queue`.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from podwright.controller.partitions import _partitions as partitions
from podwright.controller.queue._guest_queue import GuestQueue
from podwright.controller.queue._waiter import Order, Waiter
from podwright.controller.requests import _quotas as quotas
from podwright.controller.requests._reserve import goal_at, goal_for, in_service, overlap
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._reservation import DeviceClaim, Goal, Reservation
from podwright.errors import NoCapacity, PodwrightError
from podwright.placement import Block

SHAPES: Final = 64  #: tried at one look
REPLAN: Final = 5.0  #: seconds after which the place kept for a waiter is thought over
Key = tuple[Any, ...]


class WaitingQueue:
    """Waiters by shape or name. start: serves a waiter, on claimed devices or without any."""

    def __init__(
        self, state: ControllerState, start: Callable[[Waiter, DeviceClaim | None], None]
    ) -> None:
        self._state = state
        self._start = start
        self._shapes: dict[Key, list[Waiter]] = {}
        self._named: dict[str, list[Waiter]] = {}
        self.guest_queue = GuestQueue(state, self._oldest)
        state.freed = self.freed

    def __iter__(self) -> Iterator[Waiter]:
        groups = (*self._shapes.values(), *self._named.values())
        return iter(sorted((waiter for group in groups for waiter in group), key=_order))

    def __len__(self) -> int:
        return sum(map(len, (*self._shapes.values(), *self._named.values())))

    def add(self, waiter: Waiter) -> None:
        """Add a waiter, or return it to its place."""
        if waiter.target:
            group = self._named.setdefault(waiter.target, [])
        else:
            group = self._shapes.setdefault(_key(waiter), [])
        bisect.insort(group, waiter, key=_order)

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter that starts or leaves; the devices reserved for it become free."""
        if waiter.target:
            _drop(self._named, waiter.target, waiter)
        else:
            _drop(self._shapes, _key(waiter), waiter)
        self._lift(waiter)

    def _lift(self, waiter: Waiter) -> None:
        """Reserve nothing for a waiter any more."""
        for pool, reservation in list(self._state.reservations.items()):
            if reservation.waiter == waiter.id:
                reservation.lift()
                del self._state.reservations[pool]

    # -- being told --------------------------------------------------------------------------

    def freed(self, cluster: IndexedCluster | None, blocks: Sequence[Block], name: str) -> None:
        """Serve waiters after devices became free, a lease on `name` ended or machines changed."""
        for reservation in self._state.reservations.values():
            if not blocks and not name:
                reservation.planned_at = 0.0  # machines or quotas changed: think it over
            if reservation.goal.cluster is cluster and overlap(reservation.goal.blocks, blocks):
                reservation.absorb()
        if name in self._named:
            self._look_at(name)
        if self._shapes or self.guest_queue:
            self.start_ready()

    def start_ready(self) -> None:
        """Start all waiters that can start now, in the order of the queue, and keep places for the
        schedulers' jobs."""
        self._lift_over_quota()
        self.guest_queue.plan(before_people=True)
        heads: list[tuple[Order, Key]] = [(g[0].order, key) for key, g in self._shapes.items()]
        heapq.heapify(heads)
        tried = 0
        while heads and tried < SHAPES:
            tried += 1
            _, key = heapq.heappop(heads)
            waiter = self._first(self._shapes[key])
            if waiter and self._try(waiter) and (group := self._shapes.get(key)):
                heapq.heappush(heads, (group[0].order, key))
        self.guest_queue.plan()

    def _lift_over_quota(self) -> None:
        """Reserve nothing for those who have reached their quota since they got their place."""
        reserved = {place.waiter for place in self._state.reservations.values() if not place.guest}
        if not self._state.quotas or not reserved:
            return
        for group in self._shapes.values():
            for waiter in group:
                if waiter.id in reserved and self._over_quota(waiter):
                    self._lift(waiter)

    def _oldest(self) -> float | None:
        """Since when the first waiter for devices waits; None: there is none. Those who wait for
        their quota do not count."""
        firsts = [self._first(group) for group in self._shapes.values()]
        return min((first.record.since for first in firsts if first is not None), default=None)

    def _first(self, group: Sequence[Waiter]) -> Waiter | None:
        """The first waiter of a shape that is within its quotas; others block nobody."""
        if not self._state.quotas:
            return group[0]
        finished_owners: set[str] = set()
        for waiter in group:
            owner = waiter.caller.name
            if owner not in finished_owners:
                if not self._over_quota(waiter):
                    return waiter
                finished_owners.add(owner)
        return None

    def _look_at(self, name: str) -> None:
        """Try the first waiter for a partition, or all of them if the partition was removed."""
        removed = name not in self._state.partitions
        group = list(self._named[name])
        for waiter in group if removed else group[:1]:
            self.remove(waiter)
            if removed:
                waiter.target = ""
            if removed and waiter.creates:
                self.add(waiter)
            else:
                self._start(waiter, None)

    # -- placing -----------------------------------------------------------------------------

    def _try(self, waiter: Waiter) -> bool:
        """Start a waiter if its devices are free. Returns whether it has left the queue."""
        reservation = next(
            (r for r in self._state.reservations.values() if r.waiter == waiter.id), None
        )
        try:
            claim = self._place(waiter, reservation)
            if claim is None and self._over_quota(waiter):
                return False  # nothing is kept for somebody who could not use it
            if (
                claim is None
                and (reservation := self._reserve(waiter, reservation))
                and not reservation.missing
            ):
                claim = self._place(waiter, reservation)
        except PodwrightError as error:
            self.remove(waiter)
            waiter.fail(error)
            return True
        if claim is None:
            return False
        self.remove(waiter)
        self._start(waiter, claim)
        return True

    def _place(self, waiter: Waiter, reservation: Reservation | None) -> DeviceClaim | None:
        is_free = reservation is not None and not reservation.missing
        if reservation is not None and is_free:
            reservation.lift()
        try:
            return partitions.try_place(
                self._state, waiter.checked, owner=waiter.caller.name, duration=waiter.duration
            )
        except NoCapacity:
            return None
        finally:
            if reservation is not None and is_free:
                reservation.absorb()

    def _over_quota(self, waiter: Waiter) -> bool:
        spec = waiter.spec
        size = spec.size or len(spec.devices)
        try:
            quotas.check(self._state, waiter.caller.name, spec.allocation, size, waiter.action)
        except NoCapacity:
            return True
        return False

    def _reserve(self, waiter: Waiter, old: Reservation | None) -> Reservation | None:
        """Reserve a place for the first waiter of an allocation that cannot start."""
        state, now = self._state, self._state.now()
        if old is not None and now - old.planned_at < REPLAN:
            return old
        if old is None:
            self.guest_queue.plan(before_people=True)
        best: Goal | None = None
        spec = waiter.spec
        for cluster in state.inventory.candidates(spec.cluster, spec.allocation, waiter.action):
            for allocation in cluster.allocations:
                pool = (cluster.layout.name, allocation)
                other = state.reservations.get(pool)
                if spec.allocation not in ("", allocation) or (
                    other is not None
                    and other.waiter != waiter.id
                    and (other.guest or other.order < waiter.order)
                ):
                    continue
                goal = goal_for(state, cluster, waiter.record.name, spec, allocation)
                if goal and (best is None or goal.starts_at < best.starts_at):
                    best = goal
        if old is not None:
            if (stays := self._same_place(waiter, old, best)) is not None:
                old.goal, old.planned_at = stays, now
                return old
            state.reservations.pop(old.goal.pool).lift()
        if best is None:
            return None
        if (other := state.reservations.pop(best.pool, None)) is not None:
            other.lift()
        reservation = Reservation(waiter.id, waiter.order, best, now, waiter.record.name)
        state.reservations[best.pool] = reservation
        return reservation

    def _same_place(self, waiter: Waiter, old: Reservation, best: Goal | None) -> Goal | None:
        """The place of a reservation as it stands now; None if `best` is to take its place.

        The ends of most partitions are estimates: each is expected to last as long again as it has
        so far. Nothing new starts on a reserved place, so the partitions there grow old, and the
        estimate moves away. A place that followed the estimate would change for ever. So it changes
        only for one that by announced ends is free earlier. A place that is free at once was tried
        before (`_place`).
        """
        goal = old.goal
        if best is None or not in_service(self._state, goal):
            return None
        now = goal_at(self._state, goal.cluster, waiter.record.name, goal.allocation, goal.blocks)
        sooner = best.known and now.known and best.starts_at < now.starts_at
        return None if sooner else now


def _order(waiter: Waiter) -> Order:
    return waiter.order


def _key(waiter: Waiter) -> Key:
    """The shape of a request: waiters with equal keys can start in the same places."""
    spec = waiter.spec
    return (
        spec.size,
        spec.cluster,
        spec.allocation,
        spec.num_gcds,
        spec.num_ilds,
        spec.reconfigurable,
        tuple(spec.devices),
        waiter.duration,
    )


def _drop(table: dict[Any, list[Waiter]], key: Any, waiter: Waiter) -> None:
    group = table.get(key, [])
    if waiter in group:
        group.remove(waiter)
        if not group:
            del table[key]
