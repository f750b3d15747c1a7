"""Launches move to other devices.

There are two reasons: free devices suffice for a queued request by count but not by shape, or a
drained machine is to become empty without ending a launch.

Only launches that can be moved are asked (`_move_planner.movable`). The reply to the launch's next
renewal carries the request. The launch ends its instances and calls `Move`. Only then does its
partition get the other devices (`_swap_partition_devices`), and the launch starts again there.
Until then the move can be called off, because the launch does not end in time, the waiter leaves or
the server stops. The launch then continues, or starts again, on its old devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from podwright.controller.moves._move_planner import (
    MoveStep,
    movers,
    moves_off_drained,
    plan_room,
    undo,
)
from podwright.controller.moves._swap_partition_devices import shift
from podwright.controller.partitions import _lease_lifetime as ends
from podwright.controller.queue._waiter import Waiter
from podwright.controller.state._caller import Caller
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._pending_move import PendingMove
from podwright.controller.state._records import META
from podwright.controller.state._reservation import Reservation
from podwright.placement.move_plans import HOUR_SECONDS
from podwright.store import Opened, Put
from podwright.wire import MoveRequest, MoveRow, MoveTable

ENDING_PATIENCE_S: Final = 60.0  #: seconds to end, beyond those that a launch says it loses
_RECORD_KEY: Final = "moves"


class LaunchMoves:
    """The launches that are asked to move. waiter_by_id: returns a waiter of the queue."""

    def __init__(
        self, state: ControllerState, waiter_by_id: Callable[[str], Waiter | None]
    ) -> None:
        self._state, self._waiter = state, waiter_by_id
        self.allowed = True
        self.done = self.failed = 0
        self.moving: dict[str, PendingMove] = {}  #: by lease: those whose devices are being changed

    def load(self, opened: Opened) -> None:
        """Load from the store whether moves are allowed."""
        allowed_json = opened.records.get((META, _RECORD_KEY))
        self.allowed = allowed_json is None or msgspec.json.decode(allowed_json, type=bool)

    async def allow(self, allowed: bool) -> None:
        """Allow or forbid moves. Forbidding them calls off those that were asked for."""
        await self._state.journal.commit([Put(META, _RECORD_KEY, msgspec.json.encode(allowed))])
        self.allowed = allowed
        self.tick()

    def tick(self) -> None:
        """Call off moves that are no longer needed, and ask the launches that should move now."""
        state, now = self._state, self._state.now()
        for move in list(state.moves.values()):
            if move.lease not in state.moves:
                continue  # called off with another that did not end
            if now >= move.until:
                for other_move in [
                    pending for pending in state.moves.values() if pending.waiter == move.waiter
                ]:
                    if other_move is move or move.waiter:
                        late_partition = move.partition
                        self.call_off(
                            other_move, f"the launch in {late_partition} did not end in time"
                        )
            elif not self._still_useful(move):
                reason = "it is not needed any more" if self.allowed else "no launch is to move"
                self.call_off(move, reason)
        if not self.allowed or not (movable_leases := movers(state, now)):
            return
        for _, room, steps in self._plan_moves(movable_leases):
            state.reservations[room.goal.pool] = room
            room.planned_at = math.inf  # thought over when it has been called off
            for step in steps:
                self.ask(step, room)
        for step in moves_off_drained(state, movable_leases):
            self.ask(step, None)

    async def move(self, caller: Caller, request: MoveRequest) -> PartitionEntry:
        """Give the partition of a launch that has ended its instances the devices reserved for it.

        Nothing moves if the move was called off. Raises Fenced, Denied.
        """
        state = self._state
        lease = ends.own(state, caller, request.id, request.epoch, "move")
        entry = state.partitions[lease.record.partition]
        async with entry.lock:
            lease = ends.own(state, caller, request.id, request.epoch, "move")
            move = state.moves.get(lease.record.id)
            if move is None or move.id != request.move:
                return entry
            self._forget_move(move)
            self.moving[move.lease] = move
            try:
                faults = await shift(state, entry, move)
            finally:
                del self.moving[move.lease]
        if faults:
            self.failed += 1
            reason = "; ".join(fault.reason for fault in faults)
            state.record_event("MoveFailed", move.partition, move.owner, f"it stays: {reason}")
            self._allow_replanning(move, 0.0)
            state.freed(None, (), "")
        else:
            self.done += 1
            state.record_event("Moved", move.partition, move.owner, _destination_text(move))
            self._allow_replanning(move, state.now())  # what it left is about to be reset
        return entry

    def show(self) -> MoveTable:
        """The launches that are asked to move, and those that could be asked next."""
        state, now = self._state, self._state.now()
        movable_leases = movers(state, now)
        move_rows = [row(move, "ASKED", now) for move in state.moves.values()]
        for reservation, planned_room, move_steps in self._plan_moves(movable_leases):
            move_rows += [
                row(self._make_pending_move(step, planned_room), "PLANNED", now)
                for step in move_steps
            ]
            undo(move_steps)
            planned_room.lift()
            reservation.reserve_free_blocks()
        return MoveTable(
            allowed=self.allowed,
            moves=move_rows,
            movable=len(movable_leases) + len(movers(state, now, job=True)),
            done=self.done,
            failed=self.failed,
        )

    def _plan_moves(
        self, movable_leases: Mapping[str, HeldLease]
    ) -> Iterator[tuple[Reservation, Reservation, list[MoveStep]]]:
        """For each waiter who could get room by moves: what is reserved for him, what would be, and
        the moves. Each plan has taken its devices, so what becomes of one decides on the next."""
        waiters_with_moves = {move.waiter for move in self._state.moves.values()}
        for reservation in list(self._state.reservations.values()):
            waiter = self._waiter(reservation.waiter)
            if waiter is None or waiter.starting or not reservation.missing:
                continue
            if reservation.waiter not in waiters_with_moves and (
                planned_room := plan_room(self._state, reservation, waiter.spec, movable_leases)
            ):
                yield reservation, *planned_room

    def _make_pending_move(
        self,
        step: MoveStep,
        planned_room: Reservation | None,
        move_id: str = "",
        room_for: str = "",
    ) -> PendingMove:
        """move_id: the one that the launch repeats when it has ended; none: nobody is asked yet."""
        state, partition_record, move_seconds = (
            self._state,
            step.entry.known,
            step.lease.move_seconds,
        )
        assert step.entry.cluster is not None
        return PendingMove(
            id=move_id,
            partition=partition_record.name,
            owner=partition_record.owner,
            size=partition_record.size,
            lease=step.lease.record.id,
            cluster=step.entry.cluster,
            target=step.target,
            waiter=planned_room.waiter if planned_room else "",
            room=planned_room.goal.blocks if planned_room else (),
            until=state.now() + ENDING_PATIENCE_S + move_seconds,
            seconds=move_seconds,
            room_for=room_for,
        )

    def ask(
        self, step: MoveStep, planned_room: Reservation | None, room_for: str = ""
    ) -> PendingMove:
        """Ask a launch to move. planned_room: the waiter's place. room_for: see `PendingMove`."""
        state, lease = self._state, step.lease
        move = self._make_pending_move(step, planned_room, f"m{state.epochs.next():x}", room_for)
        state.moves[move.lease] = move
        lease.move, lease.move_until = move.id, move.until
        now = state.now()
        lease.asked_at = (
            *(asked_at for asked_at in lease.asked_at if asked_at > now - HOUR_SECONDS),
            now,
        )
        beneficiary = move.waiter or room_for
        if planned_room is not None and not state.sight.user_sees_waiter(
            move.owner, planned_room.owner
        ):
            beneficiary = "another who waits"
        elif room_for and not state.sight.user_sees_waiter(move.owner, ""):
            beneficiary = "a job"  # the scheduler does not say whose it is
        reason = f"to make room for {beneficiary}" if beneficiary else "its machine is drained"
        state.record_event(
            "AskToMove", move.partition, move.owner, f"{reason}; {_destination_text(move)}"
        )
        return move

    def _still_useful(self, pending_move: PendingMove) -> bool:
        """Whether the reason for a move still exists."""
        state = self._state
        lease, entry = (
            state.leases.get(pending_move.lease),
            state.partitions.get(pending_move.partition),
        )
        if not self.allowed or lease is None or lease.ending or entry is None:
            return False
        if pending_move.room_for:
            return True  # its scheduler knows
        if not pending_move.waiter:
            return not pending_move.cluster.drained.isdisjoint(entry.machines)
        reservations = state.reservations.values()
        reservation = next(
            (candidate for candidate in reservations if candidate.waiter == pending_move.waiter),
            None,
        )
        return reservation is not None and reservation.goal.blocks == pending_move.room

    def call_off(self, move: PendingMove, reason: str) -> None:
        """Cancel a requested move: the launch continues on its devices."""
        state = self._state
        self._forget_move(move)
        self.failed += 1
        state.record_event("MoveCalledOff", move.partition, move.owner, reason)
        move.cluster.index.release(move.target)
        self._allow_replanning(move, 0.0)
        state.freed(move.cluster, move.target.blocks, "")

    def _forget_move(self, move: PendingMove) -> None:
        del self._state.moves[move.lease]
        if (lease := self._state.leases.get(move.lease)) is not None:
            lease.move, lease.move_until = "", 0.0

    def _allow_replanning(self, move: PendingMove, planned_at: float) -> None:
        """Allow a waiter's place to be planned anew once no launch moves for it."""
        state = self._state
        if move.waiter and all(
            other_move.waiter != move.waiter for other_move in state.moves.values()
        ):
            for reservation in state.reservations.values():
                if reservation.waiter == move.waiter:
                    reservation.planned_at = planned_at


def _destination_text(move: PendingMove) -> str:
    return f"to {' and '.join(move.cluster.parts(move.target.blocks))}"


def row(pending_move: PendingMove, move_state: str, now: float) -> MoveRow:
    """A move as callers see it."""
    return MoveRow(
        partition=pending_move.partition,
        owner=pending_move.owner,
        size=pending_move.size,
        seconds=pending_move.seconds,
        state=move_state,
        waiter=pending_move.waiter or pending_move.room_for,
        within=max(0.0, pending_move.until - now) if move_state == "ASKED" else 0.0,
        to=" ".join(pending_move.cluster.parts(pending_move.target.blocks)),
    )
