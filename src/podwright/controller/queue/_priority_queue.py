"""The queue: it decides which waiter is served next, by priority and then by age.

It is examined only when devices become free or a waiter joins, and then shape by shape: if the
first waiter of a shape cannot start, no other waiter of that shape can. So a thousand waiters cost
as much as a few. A waiter may start before one ahead of it only on devices that are not reserved
for that one (`_reserve_for_waiter`). Whether the next place in a pool is reserved for a waiter or
for a scheduler's job is decided in `_guest_first_jobs`.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from podwright.controller.queue._guest_first_jobs import GuestQueue
from podwright.controller.queue._waiter import Waiter, WaiterOrder
from podwright.controller.requests import _quotas as quotas
from podwright.controller.requests._device_claims import DeviceClaim, try_place
from podwright.controller.requests._reserve_devices import goal_at, goal_for, in_service
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._reservation import Goal, Reservation
from podwright.errors import NoCapacity, PodwrightError
from podwright.placement import Block

MOST_SHAPES: Final = 64  #: tried at one look
REPLAN_PERIOD_S: Final = 5.0  #: seconds after which the place kept for a waiter is thought over
Key = tuple[Any, ...]


class WaitingQueue:
    """Waiters by shape or name. start_waiter: serves one, on claimed devices or without any."""

    def __init__(
        self, state: ControllerState, start_waiter: Callable[[Waiter, DeviceClaim | None], None]
    ) -> None:
        self._state = state
        self._start = start_waiter
        self._shapes: dict[Key, list[Waiter]] = {}
        self._named: dict[str, list[Waiter]] = {}
        self.guest_queue = GuestQueue(state, self._first_waiter)
        #: Pools whose place is a scheduler's, so that a waiter got none there in this look.
        self._awaited_pools: set[tuple[str, str]] = set()
        state.freed = self.freed

    def __iter__(self) -> Iterator[Waiter]:
        waiter_groups = (*self._shapes.values(), *self._named.values())
        return iter(
            sorted(
                (waiter for group in waiter_groups for waiter in group),
                key=_waiter_order,
            )
        )

    def __len__(self) -> int:
        return sum(map(len, (*self._shapes.values(), *self._named.values())))

    def add(self, waiter: Waiter) -> None:
        """Add a waiter, or return it to its place."""
        if waiter.target:
            group = self._named.setdefault(waiter.target, [])
        else:
            group = self._shapes.setdefault(_shape_key(waiter), [])
        bisect.insort(group, waiter, key=_waiter_order)

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter that starts or leaves; the devices reserved for it become free."""
        if waiter.target:
            _drop_from_group(self._named, waiter.target, waiter)
        else:
            _drop_from_group(self._shapes, _shape_key(waiter), waiter)
        self._lift_reservation(waiter)

    def _lift_reservation(self, waiter: Waiter) -> None:
        """Reserve nothing for a waiter any more."""
        for pool, reservation in list(self._state.reservations.items()):
            if reservation.waiter == waiter.id:
                reservation.lift()
                del self._state.reservations[pool]

    # -- being told --------------------------------------------------------------------------

    def freed(
        self, cluster: IndexedCluster | None, blocks: Sequence[Block], partition_name: str
    ) -> None:
        """Serve waiters after devices became free, a lease on `partition_name` ended or machines
        changed.
        """
        if not blocks and not partition_name:
            for reservation in self._state.reservations.values():
                if not reservation.guest:
                    reservation.planned_at = 0.0  # machines or quotas changed: think it over
        if cluster is not None:
            self.guest_queue.freed(cluster, blocks)
        if partition_name in self._named:
            self._try_partition_waiters(partition_name)
        if self._shapes or self.guest_queue:
            self.start_ready()

    def start_ready(self) -> None:
        """Start all waiters that can start now, in the order of the queue, and keep places for the
        schedulers' jobs."""
        self._lift_over_quota()
        self._awaited_pools.clear()
        self.guest_queue.plan(before_people=True)
        shape_heads: list[tuple[WaiterOrder, Key]] = [
            (shape_waiters[0].order, key) for key, shape_waiters in self._shapes.items()
        ]
        heapq.heapify(shape_heads)
        tried_count, is_held_back = 0, False
        while shape_heads and tried_count < MOST_SHAPES:
            tried_count += 1
            _, shape_key = heapq.heappop(shape_heads)
            waiter = self._next_of_shape(self._shapes[shape_key])
            if waiter and self._is_held_back(waiter):
                is_held_back = True
                break  # nobody passes it meanwhile
            had_place = waiter is not None and self._has_place(waiter)
            if waiter is None or not self._try_waiter(waiter):
                continue
            if had_place:
                self.start_ready()  # the pool's next place is for the first without one
                return
            if remaining_waiters := self._shapes.get(shape_key):
                heapq.heappush(shape_heads, (remaining_waiters[0].order, shape_key))
        self.guest_queue.plan(before_people=is_held_back)

    def _is_held_back(self, waiter: Waiter) -> bool:
        return not self._has_place(waiter) and self.guest_queue.holds_back(waiter.spec)

    def _has_place(self, waiter: Waiter) -> bool:
        return any(
            reservation.waiter == waiter.id for reservation in self._state.reservations.values()
        )

    def _lift_over_quota(self) -> None:
        """Reserve nothing for those who have reached their quota since they got their place."""
        reserving_ids = {
            reservation.waiter
            for reservation in self._state.reservations.values()
            if not reservation.guest
        }
        if not self._state.quotas or not reserving_ids:
            return
        for waiters in self._shapes.values():
            for waiter in waiters:
                if waiter.id in reserving_ids and self._is_over_quota(waiter):
                    self._lift_reservation(waiter)

    def _first_waiter(self) -> Waiter | None:
        """The first waiter for devices; None: there is none. Those who wait for their quota do not
        count."""
        first_waiters = [
            self._first_within_quota(shape_waiters) for shape_waiters in self._shapes.values()
        ]
        return min(filter(None, first_waiters), key=_waiter_order, default=None)

    def _next_of_shape(self, shape_waiters: Sequence[Waiter]) -> Waiter | None:
        """The waiter of a shape that has a place, unless one of higher priority came; or else the
        first."""
        first = self._first_within_quota(shape_waiters)
        for reservation in self._state.reservations.values():
            index = bisect.bisect_left(shape_waiters, reservation.order, key=_waiter_order)
            if index == len(shape_waiters) or shape_waiters[index].id != reservation.waiter:
                continue
            if first is None or reservation.order[0] <= first.order[0]:
                return shape_waiters[index]
        return first

    def _first_within_quota(self, shape_waiters: Sequence[Waiter]) -> Waiter | None:
        """The first waiter of a shape that is within its quotas; others block nobody."""
        if not self._state.quotas:
            return shape_waiters[0]
        owners_over_quota: set[str] = set()
        for waiter in shape_waiters:
            owner = waiter.caller.name
            if owner not in owners_over_quota:
                if not self._is_over_quota(waiter):
                    return waiter
                owners_over_quota.add(owner)
        return None

    def _try_partition_waiters(self, partition_name: str) -> None:
        """Try the first waiter for a partition, or all of them if the partition was removed."""
        is_removed = partition_name not in self._state.partitions
        partition_waiters = list(self._named[partition_name])
        for waiter in partition_waiters if is_removed else partition_waiters[:1]:
            self.remove(waiter)
            if is_removed:
                waiter.target = ""
            if is_removed and waiter.creates:
                self.add(waiter)
            else:
                self._start(waiter, None)

    # -- placing -----------------------------------------------------------------------------

    def _try_waiter(self, waiter: Waiter) -> bool:
        """Start a waiter if its devices are free. Returns whether it has left the queue."""
        reservation = next(
            (
                candidate
                for candidate in self._state.reservations.values()
                if candidate.waiter == waiter.id
            ),
            None,
        )
        try:
            claim = self._place_waiter(waiter, reservation)
            if claim is None and self._is_over_quota(waiter):
                return False  # nothing is kept for somebody who could not use it
            if (
                claim is None
                and (reservation := self._reserve_for_waiter(waiter, reservation))
                and not reservation.missing
            ):
                claim = self._place_waiter(waiter, reservation)
        except PodwrightError as error:
            self.remove(waiter)
            waiter.fail(error)
            return True
        if claim is None:
            return False
        self.remove(waiter)
        self._start(waiter, claim)
        return True

    def _place_waiter(self, waiter: Waiter, reservation: Reservation | None) -> DeviceClaim | None:
        is_free = reservation is not None and not reservation.missing
        if reservation is not None and is_free:
            reservation.lift()
        try:
            return try_place(self._state, waiter.checked, owner=waiter.caller.name)
        except NoCapacity:
            return None
        finally:
            if reservation is not None and is_free:
                reservation.reserve_free_blocks()

    def _is_over_quota(self, waiter: Waiter) -> bool:
        spec = waiter.spec
        count = spec.size or len(spec.devices)
        try:
            quotas.check(self._state, waiter.caller.name, spec.allocation, count, waiter.action)
        except NoCapacity:
            return True
        return False

    def _reserve_for_waiter(
        self, waiter: Waiter, old_reservation: Reservation | None
    ) -> Reservation | None:
        """Reserve a place for the first waiter of an allocation that cannot start."""
        state, now = self._state, self._state.now()
        if old_reservation is not None and now - old_reservation.planned_at < REPLAN_PERIOD_S:
            return old_reservation
        if old_reservation is None:
            self.guest_queue.plan(before_people=True)
        best_goal: Goal | None = None
        spec = waiter.spec
        for cluster in state.inventory.candidates(spec.cluster, spec.allocation, waiter.action):
            for allocation_name in cluster.allocations:
                pool = (cluster.layout.name, allocation_name)
                other_reservation = state.reservations.get(pool)
                if spec.allocation not in ("", allocation_name):
                    continue
                if other_reservation is not None and other_reservation.guest:
                    self._awaited_pools.add(pool)
                if pool in self._awaited_pools or (
                    other_reservation is not None
                    and other_reservation.waiter != waiter.id
                    and other_reservation.order[0] <= waiter.order[0]  # it stays with its waiter
                ):
                    continue
                goal = goal_for(state, cluster, waiter.record.name, spec, allocation_name)
                if goal and (best_goal is None or goal.starts_at < best_goal.starts_at):
                    best_goal = goal
        if old_reservation is not None:
            if (
                same_goal := self._goal_at_same_place(waiter, old_reservation, best_goal)
            ) is not None:
                old_reservation.goal, old_reservation.planned_at = same_goal, now
                return old_reservation
            state.reservations.pop(old_reservation.goal.pool).lift()
        if best_goal is None:
            return None
        if (other_reservation := state.reservations.pop(best_goal.pool, None)) is not None:
            other_reservation.lift()
        reservation = Reservation(waiter.id, waiter.order, best_goal, now, waiter.record.name)
        state.reservations[best_goal.pool] = reservation
        return reservation

    def _goal_at_same_place(
        self, waiter: Waiter, old_reservation: Reservation, best_goal: Goal | None
    ) -> Goal | None:
        """The place of a reservation as it stands now; None if `best_goal` is to take its place.

        The ends of most partitions are estimates: each is expected to last as long again as it has
        so far. Nothing new starts on a reserved place, so the partitions there grow old, and the
        estimate moves away. A place that followed the estimate would change for ever. So it changes
        only for one that by announced ends is free earlier. A place that is free at once was tried
        before (`_place_waiter`).
        """
        old_goal = old_reservation.goal
        if best_goal is None or not in_service(self._state, old_goal):
            return None
        current_goal = goal_at(
            self._state, old_goal.cluster, waiter.record.name, old_goal.allocation, old_goal.blocks
        )
        is_sooner = (
            best_goal.known and current_goal.known and best_goal.starts_at < current_goal.starts_at
        )
        return None if is_sooner else current_goal


def _waiter_order(waiter: Waiter) -> WaiterOrder:
    return waiter.order


def _shape_key(waiter: Waiter) -> Key:
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
    )


def _drop_from_group(
    groups_by_key: dict[Any, list[Waiter]], group_key: Any, waiter: Waiter
) -> None:
    waiter_group = groups_by_key.get(group_key, [])
    if waiter in waiter_group:
        waiter_group.remove(waiter)
        if not waiter_group:
            del groups_by_key[group_key]
