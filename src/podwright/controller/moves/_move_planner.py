"""Finds launches that could move, and their targets; `placement.move_plans` chooses among them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from podwright.controller.requests._reserve import MAX_CANDIDATES, candidates, end_of
from podwright.controller.state._records import PartitionRecord
from podwright.controller.state._reservation import Goal, Reservation
from podwright.controller.state._states import READY, state_of
from podwright.fabric import Attachment
from podwright.placement import Block, Placement, Request
from podwright.placement.move_plans import InTheWay, cheapest, may_be_asked

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState
    from podwright.controller.state._leases import HeldLease
    from podwright.controller.state._partition_index import Entry
    from podwright.wire import PartitionSpec


class MoveStep(NamedTuple):
    """A launch and the target of its partition, which the index has taken."""

    entry: Entry
    lease: HeldLease
    target: Placement


def shape_of(record: PartitionRecord) -> Request:
    """The placement request of a partition that moves."""
    gcds = record.size if record.profile else record.num_gcds
    return Request(record.size, record.allocation, record.num_ilds, gcds, profile=record.profile)


def movable(
    state: ControllerState, entry: Entry, now: float, *, job: bool = False
) -> HeldLease | None:
    """The lease of a launch that can be moved now; None: it cannot.

    Its partition must be movable, all of it held by this one launch, which has said that its
    instances can be moved. job: of what schedulers made for jobs, since that is in their books as
    well, and they alone say when it moves, and where to.
    """
    record, cluster = entry.record, entry.cluster
    if record is None or cluster is None or not record.movable or record.profile:
        return None
    if bool(record.job) is not job:
        return None
    if entry.fences or entry.lock.locked() or len(entry.leases) != 1 or state_of(record) != READY:
        return None
    if (
        cluster.layout.family.attachment is not Attachment.FABRIC
        or state.hardware.fabric is not None
    ):
        return None  # its devices are not the same to all hosts
    (lease,) = entry.leases.values()
    if lease.ending or lease.late or not lease.move_seconds or lease.record.count != record.size:
        return None
    return lease if may_be_asked(lease.asked_at, now) and not lease.move else None


def movers(state: ControllerState, now: float, *, job: bool = False) -> dict[str, HeldLease]:
    """All launches that can be moved now, by their partitions. job: as `movable` has it."""
    leases = (
        (name, movable(state, entry, now, job=job)) for name, entry in state.partitions.items()
    )
    return {name: lease for name, lease in leases if lease is not None}


def plan_room(
    state: ControllerState,
    reservation: Reservation,
    spec: PartitionSpec,
    able: Mapping[str, HeldLease],
) -> tuple[Reservation, list[MoveStep]] | None:
    """The place to empty for a waiter, instead of `reservation`, and the moves that empty it.

    The largest launch moves first. All targets are taken on return. None: nothing has changed.
    """
    now, old = state.now(), reservation.goal
    cluster, size = old.cluster, sum(block.size for block in old.blocks)
    if not able or cluster.index.free(old.allocation) + reservation.reserved < size:
        return None
    occupied = _occupied(state, cluster.layout.name, old.allocation)
    worth = (_free_at(state, old, reservation.owner, now) - now) * size
    places = list(islice(candidates(state, cluster, spec, old.allocation), MAX_CANDIDATES))
    occupants_by_place = [_inside(blocks, occupied) for blocks in places]
    known = {
        name: _in_the_way(state, name, able)
        for occupants in occupants_by_place
        for name in occupants
    }
    for place_index, names in cheapest(occupants_by_place, known, worth):
        lost = max(known[name].seconds for name in names)
        busy = sum(occupants_by_place[place_index].values())
        goal = Goal(
            cluster, old.allocation, places[place_index], now + lost, False, busy, tuple(names)
        )
        reservation.lift()
        room = Reservation(reservation.waiter, reservation.order, goal, now, reservation.owner)
        # What is neither free nor theirs is being reset, or about to be somebody's.
        steps = _placed(state, names, able) if size - room.reserved == busy else None
        if steps:
            return room, steps
        room.lift()
        reservation.absorb()
    return None


def _free_at(state: ControllerState, goal: Goal, owner: str, now: float) -> float:
    """When a place becomes free without moves, as far as is known; past guesses are ignored."""
    records = [
        state.partitions[name].record for name in goal.partitions if name in state.partitions
    ]
    end_times = [
        end_of(record, now, seen=state.sight.partition_to(owner, record))[0]
        for record in records
        if record is not None
    ]
    return max([goal.starts_at, *end_times])


def undo(steps: Sequence[MoveStep]) -> None:
    """Undo planned moves: free their targets."""
    for step in steps:
        assert step.entry.cluster is not None
        step.entry.cluster.index.release(step.target)


def _placed(
    state: ControllerState, names: Sequence[str], able: Mapping[str, HeldLease]
) -> list[MoveStep] | None:
    steps: list[MoveStep] = []
    for name in names:
        entry = state.partitions[name]
        assert entry.cluster is not None
        target = entry.cluster.index.find(shape_of(entry.known))
        if target is None:
            undo(steps)
            return None
        entry.cluster.index.take(target)
        steps.append(MoveStep(entry, able[name], target))
    return steps


def _occupied(
    state: ControllerState, cluster: str, allocation: str
) -> dict[int, list[tuple[Block, str]]]:
    """The blocks that partitions occupy, with the partition's name, by link domain."""
    occupied: dict[int, list[tuple[Block, str]]] = {}
    for record in state.partitions.records():
        if record.cluster == cluster and record.allocation == allocation:
            for block in record.blocks:
                occupied.setdefault(block.domain, []).append((block, record.name))
    return occupied


def _inside(
    blocks: Sequence[Block], occupied: Mapping[int, Sequence[tuple[Block, str]]]
) -> dict[str, int]:
    """The number of devices of a place that each partition occupies, by its name."""
    occupied_counts: dict[str, int] = {}
    for block in blocks:
        for other, name in occupied.get(block.domain, ()):
            if both := _shared(block, other):
                occupied_counts[name] = occupied_counts.get(name, 0) + both
    return occupied_counts


def _shared(a: Block, b: Block) -> int:
    return max(0, min(a.offset + a.size, b.offset + b.size) - max(a.offset, b.offset))


def _in_the_way(state: ControllerState, name: str, able: Mapping[str, HeldLease]) -> InTheWay:
    lease = able.get(name)
    return InTheWay(state.partitions[name].known.size, lease.move_seconds if lease else math.inf)


def on_drained(state: ControllerState, able: Mapping[str, HeldLease]) -> Iterator[MoveStep]:
    """Launches on machines that are drained, as far as there is another place. Targets are taken
    one by one."""
    for cluster in state.inventory.clusters.values():
        for machine in sorted(cluster.drained):
            for entry in state.partitions.on(machine):
                lease = able.get(entry.name)
                if lease is None or lease.move:
                    continue
                target = cluster.index.find(shape_of(entry.known))
                if target is not None:
                    cluster.index.take(target)
                    yield MoveStep(entry, lease, target)
