"""Moves of what a scheduler made for its jobs.

The scheduler counts those devices as well, so it says who moves, where to and when, after it has
seen to it that it gives nobody else what they move to. It also calls off. All else is as with other
launches: only who can be moved is asked, nothing changes before the launch has ended, and who does
not end in time stays.
"""

from __future__ import annotations

from dataclasses import replace

from podwright.controller.calls._call_context import Services
from podwright.controller.moves._launch_moves import row
from podwright.controller.moves._move_planner import MoveStep, movable, movers, shape_of
from podwright.controller.requests._spec import blocks_of
from podwright.controller.state._caller import Caller, Role, check_change
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._pending_move import PendingMove
from podwright.controller.state._records import PartitionRecord
from podwright.errors import NotFound
from podwright.wire import (
    AskToMoveRequest,
    CallOffMoveRequest,
    Empty,
    JobMoves,
    JobMovesRequest,
    MoveRow,
)


async def list_job_moves(services: Services, caller: Caller, request: JobMovesRequest) -> JobMoves:
    """The caller's jobs that can move, are asked to move, or are moving."""
    state, launch_moves, now = services.state, services.moves, services.state.now()

    def visible(partition: str) -> bool:
        entry = state.partitions.get(partition)
        record = entry.record if entry else None
        return (
            record is not None
            and bool(record.job)
            and (caller.role is Role.ADMINISTRATOR or record.creator == caller.name)
            and request.cluster in ("", record.cluster)
            and request.allocation in ("", record.allocation)
        )

    movable_leases = movers(state, now, job=True) if launch_moves.allowed else {}
    move_rows = [
        MoveRow(
            partition=name,
            owner=lease.record.owner,
            size=lease.record.count,
            seconds=lease.move_seconds,
            state="ABLE",
        )
        for name, lease in movable_leases.items()
    ]
    move_rows += [row(move, "ASKED", now) for move in state.moves.values()]
    move_rows += [row(move, "MOVING", now) for move in launch_moves.moving.values()]
    return JobMoves(
        allowed=launch_moves.allowed, moves=[move for move in move_rows if visible(move.partition)]
    )


async def ask_to_move(services: Services, caller: Caller, request: AskToMoveRequest) -> MoveRow:
    """Ask the launch on a job's partition; the answer is ASKED, or STAYS where it cannot be
    moved, or not there. Raises NotFound where the partition is another job's, Denied."""
    state, now = services.state, services.state.now()
    action = f"move partition {request.partition}"
    entry, record = _partition_of_job(state, caller, request.partition, request.job, action)
    target_blocks = blocks_of(request.devices)
    pending_move = _pending_move(state, request.partition)
    if pending_move is not None and pending_move.target.blocks == target_blocks:
        return row(pending_move, "ASKED", now)
    can_move = services.moves.allowed and sum(block.size for block in target_blocks) == record.size
    lease = movable(state, entry, now, job=bool(record.job)) if can_move else None
    stays_row = MoveRow(partition=record.name, owner=record.owner, size=record.size, state="STAYS")
    if lease is None:
        return stays_row
    assert entry.cluster is not None
    target_placement = entry.cluster.index.find(replace(shape_of(record), blocks=target_blocks))
    if target_placement is None:
        return stays_row
    entry.cluster.index.take(target_placement)
    room_for = request.room_for or "a job"
    return row(
        services.moves.ask(MoveStep(entry, lease, target_placement), None, room_for), "ASKED", now
    )


async def call_off_move(services: Services, caller: Caller, request: CallOffMoveRequest) -> Empty:
    """It need not move any more; one that is moving has, when this returns. Raises NotFound
    where the partition is another job's, Denied."""
    state = services.state
    action = f"let partition {request.partition} where it is"
    entry, _ = _partition_of_job(state, caller, request.partition, request.job, action)
    async with entry.lock:
        pending_move = _pending_move(state, request.partition)
        if pending_move is not None:
            services.moves.call_off(pending_move, "it is not needed any more")
    return Empty()


def _partition_of_job(
    state: ControllerState, caller: Caller, partition_name: str, job_id: str, action: str
) -> tuple[PartitionEntry, PartitionRecord]:
    entry = state.find(caller, partition_name)
    if entry is None or entry.record is None:
        raise state.missing(partition_name, action, caller)
    check_change(caller, entry.record.owner, action, entry.record.creator)
    if entry.record.job != job_id:
        raise NotFound(f"partition {partition_name} is not for job {job_id}", operation=action)
    return entry, entry.record


def _pending_move(state: ControllerState, partition: str) -> PendingMove | None:
    return next((move for move in state.moves.values() if move.partition == partition), None)
