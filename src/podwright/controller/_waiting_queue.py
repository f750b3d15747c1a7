"""The waiting line: who is served next. By priority, then age.

Looked at only when devices become free or somebody joins, and then shape by shape: where the first
of a shape cannot start, no other of that shape can, so a thousand waiters cost what a few do.
Somebody behind may start before somebody ahead only on devices that are not kept for that one
(`_reserve`).
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from podwright.controller import _partitions as partitions
from podwright.controller import _quotas as quotas
from podwright.controller._cluster_index import IndexedCluster
from podwright.controller._core import Core
from podwright.controller._reservation import Goal, Reservation, Taken
from podwright.controller._reserve import goal_for, overlap
from podwright.controller._waiter import Order, Waiter
from podwright.errors import NoCapacity, PodwrightError
from podwright.placement import Block

SHAPES: Final = 64  #: tried at one look
REPLAN: Final = 5.0  #: seconds after which the place kept for a waiter is thought over
Key = tuple[Any, ...]


class WaitingQueue:
    """Who waits for what. start: begins what a waiter asked for, on devices or without any."""

    def __init__(self, core: Core, start: Callable[[Waiter, Taken | None], None]) -> None:
        self._core = core
        self._start = start
        self._shapes: dict[Key, list[Waiter]] = {}
        self._named: dict[str, list[Waiter]] = {}
        core.freed = self.freed

    def __iter__(self) -> Iterator[Waiter]:
        groups = (*self._shapes.values(), *self._named.values())
        return iter(sorted((w for group in groups for w in group), key=_order))

    def __len__(self) -> int:
        return sum(map(len, (*self._shapes.values(), *self._named.values())))

    def add(self, waiter: Waiter) -> None:
        """Somebody joins, or returns to his place."""
        if waiter.target:
            group = self._named.setdefault(waiter.target, [])
        else:
            group = self._shapes.setdefault(_key(waiter), [])
        bisect.insort(group, waiter, key=_order)

    def remove(self, waiter: Waiter) -> None:
        """Somebody starts or leaves; what was kept for him is free."""
        if waiter.target:
            _drop(self._named, waiter.target, waiter)
        else:
            _drop(self._shapes, _key(waiter), waiter)
        for pool, kept in list(self._core.reservations.items()):
            if kept.waiter == waiter.id:
                kept.lift()
                del self._core.reservations[pool]

    # -- being told --------------------------------------------------------------------------

    def freed(self, site: IndexedCluster | None, blocks: Sequence[Block], name: str) -> None:
        """Devices are free, or a lease on the partition `name` ended, or machines changed."""
        for kept in self._core.reservations.values():
            if not blocks and not name:
                kept.planned_at = 0.0  # machines or quotas changed: think it over
            if kept.goal.site is site and overlap(kept.goal.blocks, blocks):
                kept.absorb()
        if name in self._named:
            self._look_at(name)
        if self._shapes:
            self.look()

    def look(self) -> None:
        """Start whoever can start now, the first first."""
        heads: list[tuple[Order, Key]] = [(g[0].order, key) for key, g in self._shapes.items()]
        heapq.heapify(heads)
        tried = 0
        while heads and tried < SHAPES:
            tried += 1
            _, key = heapq.heappop(heads)
            waiter = self._first(self._shapes[key])
            if waiter and self._try(waiter) and (group := self._shapes.get(key)):
                heapq.heappush(heads, (group[0].order, key))

    def _first(self, group: Sequence[Waiter]) -> Waiter | None:
        """The first of a shape whose quotas allow it: who is over his keeps nobody else waiting."""
        if not self._core.quotas:
            return group[0]
        over: set[str] = set()
        for waiter in group:
            owner = waiter.caller.name
            if owner not in over:
                if not self._over_quota(waiter):
                    return waiter
                over.add(owner)
        return None

    def _look_at(self, name: str) -> None:
        """Let the first of those who wait for a partition try; all of them when it is gone."""
        gone = name not in self._core.partitions
        group = list(self._named[name])
        for waiter in group if gone else group[:1]:
            self.remove(waiter)
            if gone:
                waiter.target = ""
            if gone and waiter.creates:
                self.add(waiter)
            else:
                self._start(waiter, None)

    # -- placing -----------------------------------------------------------------------------

    def _try(self, waiter: Waiter) -> bool:
        """Start a waiter on devices, if there are any."""
        kept = next((r for r in self._core.reservations.values() if r.waiter == waiter.id), None)
        try:
            taken = self._place(waiter, kept)
            if taken is None and self._over_quota(waiter):
                return False  # nothing is kept for somebody who could not use it
            if taken is None and (kept := self._reserve(waiter, kept)) and not kept.missing:
                taken = self._place(waiter, kept)
        except PodwrightError as error:
            self.remove(waiter)
            waiter.fail(error)
            return True
        if taken is None:
            return False
        self.remove(waiter)
        self._start(waiter, taken)
        return True

    def _place(self, waiter: Waiter, kept: Reservation | None) -> Taken | None:
        whole = kept is not None and not kept.missing
        if kept is not None and whole:
            kept.lift()
        try:
            return partitions.try_place(
                self._core, waiter.checked, owner=waiter.caller.name, duration=waiter.duration
            )
        except NoCapacity:
            return None
        finally:
            if kept is not None and whole:
                kept.absorb()

    def _over_quota(self, waiter: Waiter) -> bool:
        spec = waiter.spec
        size = spec.size or len(spec.devices)
        try:
            quotas.check(self._core, waiter.caller.name, spec.allocation, size, waiter.action)
        except NoCapacity:
            return True
        return False

    def _reserve(self, waiter: Waiter, old: Reservation | None) -> Reservation | None:
        """Keep a place for the first who cannot start in an allocation."""
        core, now = self._core, self._core.now()
        if old is not None and now - old.planned_at < REPLAN:
            return old
        best: Goal | None = None
        spec = waiter.spec
        for site in core.inventory.candidates(spec.cluster, spec.allocation, waiter.action):
            for allocation in site.allocations:
                other = core.reservations.get((site.cluster.name, allocation))
                if spec.allocation not in ("", allocation) or (
                    other is not None and other.waiter != waiter.id and other.order < waiter.order
                ):
                    continue
                goal = goal_for(core, site, spec, allocation)
                if goal and (best is None or goal.starts_at < best.starts_at):
                    best = goal
        if old is not None:
            if best is not None and (best.pool, best.blocks) == (old.goal.pool, old.goal.blocks):
                old.goal, old.planned_at = best, now
                return old
            core.reservations.pop(old.goal.pool).lift()
        if best is None:
            return None
        if (other := core.reservations.pop(best.pool, None)) is not None:
            other.lift()
        made = Reservation(waiter.id, waiter.order, best, now)
        core.reservations[best.pool] = made
        return made


def _order(waiter: Waiter) -> Order:
    return waiter.order


def _key(waiter: Waiter) -> Key:
    """What decides where a waiter can start: two with the same can in the same places."""
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
