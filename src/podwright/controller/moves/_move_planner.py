"""Finds launches that could move, and their targets; `placement.move_plans` chooses among them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from podwright.controller.requests._reserve_devices import MAX_CANDIDATES, candidates, end_of
from podwright.controller.state._partition_states import READY, state_of
from podwright.controller.state._records import PartitionRecord
from podwright.controller.state._reservation import Goal, Reservation
from podwright.fabric import Attachment
from podwright.placement import Block, Placement, Request
from podwright.placement.move_plans import BlockingJob, cheapest_places, may_be_asked

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState
    from podwright.controller.state._leases import HeldLease
    from podwright.controller.state._partition_index import PartitionEntry
    from podwright.wire import PartitionSpec


class MoveStep(NamedTuple):
    """A launch and the target of its partition, which the index has taken."""

    entry: PartitionEntry
    lease: HeldLease
    target: Placement


def shape_of(record: PartitionRecord) -> Request:
    """The placement request of a partition that moves."""
    gcds = record.size if record.profile else record.num_gcds
    return Request(record.size, record.allocation, record.num_ilds, gcds, profile=record.profile)


def movable(
    state: ControllerState, entry: PartitionEntry, now: float, *, job: bool = False
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
    found: dict[str, HeldLease] = {}
    for lease in state.leases.values():
        entry = state.partitions.get(lease.record.partition) if lease.move_seconds else None
        if entry is not None and movable(state, entry, now, job=job) is lease:
            found[entry.name] = lease
    return found


def plan_room(
    state: ControllerState,
    reservation: Reservation,
    spec: PartitionSpec,
    movable_leases: Mapping[str, HeldLease],
) -> tuple[Reservation, list[MoveStep]] | None:
    """The place to empty for a waiter, instead of `reservation`, and the moves that empty it.

    The largest launch moves first. All targets are taken on return. None: nothing has changed.
    """
    now, current_goal = state.now(), reservation.goal
    cluster, device_count = current_goal.cluster, sum(block.size for block in current_goal.blocks)
    if (
        not movable_leases
        or cluster.index.free(current_goal.allocation) + reservation.reserved < device_count
    ):
        return None
    occupied_by_domain = _occupied_blocks(state, cluster.layout.name, current_goal.allocation)
    worth_device_seconds = (
        _time_free_without_moves(state, current_goal, reservation.owner, now) - now
    ) * device_count
    candidate_places = list(
        islice(candidates(state, cluster, spec, current_goal.allocation), MAX_CANDIDATES)
    )
    occupants_by_place = [
        _inside(place_blocks, occupied_by_domain) for place_blocks in candidate_places
    ]
    obstacles_by_partition = {
        name: _obstructing_partition(state, name, movable_leases)
        for occupants in occupants_by_place
        for name in occupants
    }
    for place_index, moving_partitions in cheapest_places(
        occupants_by_place, obstacles_by_partition, worth_device_seconds
    ):
        lost_seconds = max(obstacles_by_partition[name].seconds for name in moving_partitions)
        occupied_devices = sum(occupants_by_place[place_index].values())
        goal = Goal(
            cluster,
            current_goal.allocation,
            candidate_places[place_index],
            now + lost_seconds,
            False,
            occupied_devices,
            tuple(moving_partitions),
        )
        reservation.lift()
        planned_room = Reservation(
            reservation.waiter, reservation.order, goal, now, reservation.owner
        )
        # What is neither free nor theirs is being reset, or about to be somebody's.
        move_steps = (
            _place_moves(state, moving_partitions, movable_leases)
            if device_count - planned_room.reserved == occupied_devices
            else None
        )
        if move_steps:
            return planned_room, move_steps
        planned_room.lift()
        reservation.reserve_free_blocks()
    return None


def _time_free_without_moves(state: ControllerState, goal: Goal, owner: str, now: float) -> float:
    """When a place becomes free without moves, as far as is known; past guesses are ignored."""
    records = [
        state.partitions[name].record for name in goal.partitions if name in state.partitions
    ]
    times = [
        end_of(record, now, seen=state.sight.user_sees_partition(owner, record))[0]
        for record in records
        if record is not None
    ]
    return max([goal.starts_at, *times])


def undo(move_steps: Sequence[MoveStep]) -> None:
    """Undo planned moves: free their targets."""
    for step in move_steps:
        assert step.entry.cluster is not None
        step.entry.cluster.index.release(step.target)


def _place_moves(
    state: ControllerState, partition_names: Sequence[str], movable_leases: Mapping[str, HeldLease]
) -> list[MoveStep] | None:
    steps: list[MoveStep] = []
    for partition_name in partition_names:
        entry = state.partitions[partition_name]
        assert entry.cluster is not None
        target = entry.cluster.index.find(shape_of(entry.known))
        if target is None:
            undo(steps)
            return None
        entry.cluster.index.take(target)
        steps.append(MoveStep(entry, movable_leases[partition_name], target))
    return steps


def _occupied_blocks(
    state: ControllerState, cluster_name: str, allocation: str
) -> dict[int, list[tuple[Block, str]]]:
    """The blocks that partitions occupy, with the partition's name, by link domain."""
    occupied_by_domain: dict[int, list[tuple[Block, str]]] = {}
    for entry in state.partitions.in_pool(cluster_name, allocation):
        for block in entry.known.blocks:
            occupied_by_domain.setdefault(block.domain, []).append((block, entry.name))
    return occupied_by_domain


def _inside(
    blocks: Sequence[Block], occupied_by_domain: Mapping[int, Sequence[tuple[Block, str]]]
) -> dict[str, int]:
    """The number of devices of a place that each partition occupies, by its name."""
    occupied_counts: dict[str, int] = {}
    for block in blocks:
        for occupied_block, name in occupied_by_domain.get(block.domain, ()):
            if devices := _shared_device_count(block, occupied_block):
                occupied_counts[name] = occupied_counts.get(name, 0) + devices
    return occupied_counts


def _shared_device_count(first_block: Block, second_block: Block) -> int:
    return max(
        0,
        min(first_block.offset + first_block.size, second_block.offset + second_block.size)
        - max(first_block.offset, second_block.offset),
    )


def _obstructing_partition(
    state: ControllerState, partition_name: str, movable_leases: Mapping[str, HeldLease]
) -> BlockingJob:
    lease = movable_leases.get(partition_name)
    return BlockingJob(
        state.partitions[partition_name].known.size, lease.move_seconds if lease else math.inf
    )


def moves_off_drained(
    state: ControllerState, movable_leases: Mapping[str, HeldLease]
) -> Iterator[MoveStep]:
    """Launches on machines that are drained, as far as there is another place. Targets are taken
    one by one."""
    for cluster in state.inventory.clusters.values():
        for machine in sorted(cluster.drained):
            for entry in state.partitions.on(machine):
                lease = movable_leases.get(entry.name)
                if lease is None or lease.move:
                    continue
                target = cluster.index.find(shape_of(entry.known))
                if target is not None:
                    cluster.index.take(target)
                    yield MoveStep(entry, lease, target)
