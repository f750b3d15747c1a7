"""Moves of what a scheduler made for its jobs.

The scheduler counts those devices as well, so it says who moves, where to and when, after it has
seen to it that it gives nobody else what they move to. It also calls off. All else is as with other
launches: only who can be moved is asked, nothing changes before the launch has ended, and who does
not end in time stays.
"""

from __future__ import annotations

from dataclasses import replace

from podwright.controller._caller import Caller, Role, check_change
from podwright.controller._core import Core, Entry
from podwright.controller._launch_moves import LaunchMoves, row
from podwright.controller._move_planner import MoveStep, movable, movers, shape_of
from podwright.controller._pending_move import PendingMove
from podwright.controller._records import PartitionRecord
from podwright.controller._spec import blocks_of
from podwright.errors import NotFound
from podwright.wire import (
    AskToMoveRequest,
    CallOffMoveRequest,
    Empty,
    JobMoves,
    JobMovesRequest,
    MoveRow,
)


class SchedulerMoves:
    """The part of the controller that moves jobs for their schedulers."""

    _core: Core
    _moves: LaunchMoves

    async def list_job_moves(self, caller: Caller, request: JobMovesRequest) -> JobMoves:
        """Which of the caller's jobs could be moved, are asked to, or are being moved."""
        core, moves, now = self._core, self._moves, self._core.now()

        def mine(partition: str) -> bool:
            entry = core.partitions.get(partition)
            record = entry.record if entry else None
            return (
                record is not None
                and bool(record.job)
                and (caller.role is Role.ADMINISTRATOR or record.creator == caller.name)
                and request.cluster in ("", record.cluster)
                and request.allocation in ("", record.allocation)
            )

        able = movers(core, now, job=True) if moves.allowed else {}
        rows = [
            MoveRow(
                partition=name,
                owner=lease.record.owner,
                size=lease.record.count,
                seconds=lease.move_seconds,
                state="ABLE",
            )
            for name, lease in able.items()
        ]
        rows += [row(move, "ASKED", now) for move in core.moves.values()]
        rows += [row(move, "MOVING", now) for move in moves.moving.values()]
        return JobMoves(allowed=moves.allowed, moves=[one for one in rows if mine(one.partition)])

    async def ask_to_move(self, caller: Caller, request: AskToMoveRequest) -> MoveRow:
        """Ask the launch on a job's partition; the answer is ASKED, or STAYS where it cannot be
        moved, or not there. Raises NotFound where the partition is another job's, Denied."""
        core, now = self._core, self._core.now()
        action = f"move partition {request.partition}"
        entry, record = _of_job(core, caller, request.partition, request.job, action)
        blocks = blocks_of(request.devices)
        known = _pending_move(core, request.partition)
        if known is not None and known.target.blocks == blocks:
            return row(known, "ASKED", now)
        able = self._moves.allowed and sum(block.size for block in blocks) == record.size
        lease = movable(core, entry, now, job=bool(record.job)) if able else None
        stays = MoveRow(partition=record.name, owner=record.owner, size=record.size, state="STAYS")
        if lease is None:
            return stays
        assert entry.site is not None
        found = entry.site.index.find(replace(shape_of(record), blocks=blocks))
        if found is None:
            return stays
        entry.site.index.take(found)
        room_for = request.room_for or "a job"
        return row(self._moves.ask(MoveStep(entry, lease, found), None, room_for), "ASKED", now)

    async def call_off_move(self, caller: Caller, request: CallOffMoveRequest) -> Empty:
        """It need not move any more; one that is moving has, when this returns. Raises NotFound
        where the partition is another job's, Denied."""
        core = self._core
        action = f"let partition {request.partition} where it is"
        entry, _ = _of_job(core, caller, request.partition, request.job, action)
        async with entry.lock:
            known = _pending_move(core, request.partition)
            if known is not None:
                self._moves.call_off(known, "it is not needed any more")
        return Empty()


def _of_job(
    core: Core, caller: Caller, name: str, job: str, action: str
) -> tuple[Entry, PartitionRecord]:
    entry = core.partitions.get(name)
    if entry is None or entry.record is None:
        raise core.missing(name, action)
    check_change(caller, entry.record.owner, action, entry.record.creator)
    if entry.record.job != job:
        raise NotFound(f"partition {name} is not for job {job}", asked=action)
    return entry, entry.record


def _pending_move(core: Core, partition: str) -> PendingMove | None:
    return next((one for one in core.moves.values() if one.partition == partition), None)
