"""Which launches could move, and where to; `placement.move_plans` chooses among them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from podwright.controller._records import PartitionRecord
from podwright.controller._reservation import Goal, Reservation
from podwright.controller._reserve import MAX_CANDIDATES, candidates, end_of
from podwright.controller._states import READY, state_of
from podwright.fabric import Attachment
from podwright.placement import Block, Placement, Request
from podwright.placement.move_plans import InTheWay, cheapest, may_be_asked

if TYPE_CHECKING:
    from podwright.controller._core import Core, Entry
    from podwright.controller._leases import HeldLease
    from podwright.wire import PartitionSpec


class MoveStep(NamedTuple):
    """A launch, and where its partition could go: taken in the index."""

    entry: Entry
    lease: HeldLease
    target: Placement


def shape_of(record: PartitionRecord) -> Request:
    """What a partition asks of other devices."""
    gcds = record.size if record.profile else record.num_gcds
    return Request(record.size, record.allocation, record.num_ilds, gcds, profile=record.profile)


def movable(core: Core, entry: Entry, now: float, *, job: bool = False) -> HeldLease | None:
    """The lease of a launch that can be moved now; None: it cannot.

    Its partition must be movable, all of it held by this one launch, which has said that its
    instances can be moved. job: of what schedulers made for jobs, since that is in their books as
    well, and they alone say when it moves, and where to.
    """
    record, site = entry.record, entry.site
    if record is None or site is None or not record.movable or record.profile:
        return None
    if bool(record.job) is not job:
        return None
    if entry.fences or entry.lock.locked() or len(entry.leases) != 1 or state_of(record) != READY:
        return None
    if site.cluster.family.attachment is not Attachment.FABRIC or core.hardware.fabric is not None:
        return None  # its devices are not the same to all hosts
    (lease,) = entry.leases.values()
    if lease.ending or lease.late or not lease.move_seconds or lease.record.count != record.size:
        return None
    return lease if may_be_asked(lease.asked_at, now) and not lease.move else None


def movers(core: Core, now: float, *, job: bool = False) -> dict[str, HeldLease]:
    """All launches that can be moved now, by their partitions. job: as `movable` has it."""
    found = ((name, movable(core, entry, now, job=job)) for name, entry in core.partitions.items())
    return {name: lease for name, lease in found if lease is not None}


def plan_room(
    core: Core, kept: Reservation, spec: PartitionSpec, able: Mapping[str, HeldLease]
) -> tuple[Reservation, list[MoveStep]] | None:
    """The place to empty for a waiter, in the stead of `kept`, and who leaves it, the largest
    first. All targets are taken on return. None: nothing has changed.
    """
    now, old = core.now(), kept.goal
    site, size = old.site, sum(block.size for block in old.blocks)
    if not able or site.index.free(old.allocation) + kept.kept < size:
        return None
    held = _held(core, site.cluster.name, old.allocation)
    worth = (_free_at(core, old, now) - now) * size
    places = list(islice(candidates(core, site, spec, old.allocation), MAX_CANDIDATES))
    inside = [_inside(blocks, held) for blocks in places]
    known = {name: _in_the_way(core, name, able) for there in inside for name in there}
    for at, names in cheapest(inside, known, worth):
        lost = max(known[name].seconds for name in names)
        busy = sum(inside[at].values())
        goal = Goal(site, old.allocation, places[at], now + lost, False, busy, tuple(names))
        kept.lift()
        room = Reservation(kept.waiter, kept.order, goal, now)
        # What is neither free nor theirs is being reset, or about to be somebody's.
        steps = _placed(core, names, able) if size - room.kept == busy else None
        if steps:
            return room, steps
        room.lift()
        kept.absorb()
    return None


def _free_at(core: Core, goal: Goal, now: float) -> float:
    """When a place is free by itself, as one can tell now: a guess that has passed was wrong."""
    there = [core.partitions[name].record for name in goal.partitions if name in core.partitions]
    ends = [end_of(record, now)[0] for record in there if record is not None]
    return max([goal.starts_at, *ends])


def undo(steps: Sequence[MoveStep]) -> None:
    """As if nothing had been planned: what was taken is free."""
    for step in steps:
        assert step.entry.site is not None
        step.entry.site.index.release(step.target)


def _placed(
    core: Core, names: Sequence[str], able: Mapping[str, HeldLease]
) -> list[MoveStep] | None:
    steps: list[MoveStep] = []
    for name in names:
        entry = core.partitions[name]
        assert entry.site is not None
        found = entry.site.index.find(shape_of(entry.known))
        if found is None:
            undo(steps)
            return None
        entry.site.index.take(found)
        steps.append(MoveStep(entry, able[name], found))
    return steps


def _held(core: Core, cluster: str, allocation: str) -> dict[int, list[tuple[Block, str]]]:
    """By link domain: which blocks partitions hold there."""
    held: dict[int, list[tuple[Block, str]]] = {}
    for record in core.records():
        if record.cluster == cluster and record.allocation == allocation:
            for block in record.blocks:
                held.setdefault(block.domain, []).append((block, record.name))
    return held


def _inside(
    blocks: Sequence[Block], held: Mapping[int, Sequence[tuple[Block, str]]]
) -> dict[str, int]:
    """Which partitions have how many devices of a place."""
    inside: dict[str, int] = {}
    for block in blocks:
        for other, name in held.get(block.domain, ()):
            if both := _shared(block, other):
                inside[name] = inside.get(name, 0) + both
    return inside


def _shared(a: Block, b: Block) -> int:
    return max(0, min(a.offset + a.size, b.offset + b.size) - max(a.offset, b.offset))


def _in_the_way(core: Core, name: str, able: Mapping[str, HeldLease]) -> InTheWay:
    lease = able.get(name)
    return InTheWay(core.partitions[name].known.size, lease.move_seconds if lease else math.inf)


def on_drained(core: Core, able: Mapping[str, HeldLease]) -> Iterator[MoveStep]:
    """Launches on machines that are drained, as far as there is another place. Targets are taken
    one by one."""
    for site in core.inventory.sites.values():
        for machine in sorted(site.drained):
            for entry in core.on(machine):
                lease = able.get(entry.name)
                if lease is None or lease.move:
                    continue
                found = site.index.find(shape_of(entry.known))
                if found is not None:
                    site.index.take(found)
                    yield MoveStep(entry, lease, found)
