"""Launches move to other devices: so that a request in the waiting line that fits by count fits by
shape as well, and so that a machine that is drained becomes empty without ending anybody.

Only who can be moved is asked (`_move_planner.movable`). The answer to its next renewal says so;
it ends its instances and says `Move`; only then its partition gets the other devices (`_move_step`)
and it starts again there. Until then everything can be called off: it does not end in time, the
waiter leaves, the server goes down. Then it goes on, or starts again, where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from podwright.controller import _lease_expiry as ends
from podwright.controller._caller import Caller
from podwright.controller._core import Core, Entry
from podwright.controller._leases import HeldLease
from podwright.controller._move_planner import (
    MoveStep,
    movers,
    on_drained,
    plan_room,
    undo,
)
from podwright.controller._move_step import shift
from podwright.controller._pending_move import PendingMove
from podwright.controller._records import META
from podwright.controller._reservation import Reservation
from podwright.controller._waiter import Waiter
from podwright.placement.move_plans import HOUR
from podwright.store import Opened, Put
from podwright.wire import MoveRequest, MoveRow, MoveTable

PATIENCE: Final = 60.0  #: seconds to end, beyond those that a launch says it loses
_KEY: Final = "moves"


class LaunchMoves:
    """Who is asked to move. waiter: one in the waiting line, by id."""

    def __init__(self, core: Core, waiter: Callable[[str], Waiter | None]) -> None:
        self._core, self._waiter = core, waiter
        self.allowed = True
        self.done = self.failed = 0
        self.moving: dict[str, PendingMove] = {}  #: by lease: those whose devices are being changed

    def load(self, opened: Opened) -> None:
        """Whether they are allowed, as it was said last."""
        body = opened.records.get((META, _KEY))
        self.allowed = body is None or msgspec.json.decode(body, type=bool)

    async def allow(self, allowed: bool) -> None:
        """Ask launches to move from now on, or none; those that were asked need not any more."""
        await self._core.journal.commit([Put(META, _KEY, msgspec.json.encode(allowed))])
        self.allowed = allowed
        self.tick()

    def tick(self) -> None:
        """Call off what need not be, and ask whoever should move now."""
        core, now = self._core, self._core.now()
        for move in list(core.moves.values()):
            if move.lease not in core.moves:
                continue  # called off with another that did not end
            if now >= move.until:
                for other in [one for one in core.moves.values() if one.waiter == move.waiter]:
                    if other is move or move.waiter:
                        late = move.partition
                        self.call_off(other, f"the launch in {late} did not end in time")
            elif not self._stands(move):
                why = "it is not needed any more" if self.allowed else "no launch is to move"
                self.call_off(move, why)
        if not self.allowed or not (able := movers(core, now)):
            return
        busy = {move.waiter for move in core.moves.values()}
        for kept in list(core.reservations.values()):
            if kept.waiter not in busy and (found := self._plan(kept, able)) is not None:
                room, steps = found
                core.reservations[room.goal.pool] = room
                room.planned_at = math.inf  # thought over when it has been called off
                for step in steps:
                    self.ask(step, room)
        for step in on_drained(core, able):
            self.ask(step, None)

    async def move(self, caller: Caller, request: MoveRequest) -> Entry:
        """A launch has ended: its partition gets the devices that were kept for it, if it still
        is to move. Raises Fenced, Denied."""
        core = self._core
        lease = ends.own(core, caller, request.id, request.epoch, "move")
        entry = core.partitions[lease.record.partition]
        async with entry.lock:
            lease = ends.own(core, caller, request.id, request.epoch, "move")
            move = core.moves.get(lease.record.id)
            if move is None or move.id != request.move:
                return entry
            self._forget(move)
            self.moving[move.lease] = move
            try:
                faults = await shift(core, entry, move)
            finally:
                del self.moving[move.lease]
        if faults:
            self.failed += 1
            why = "; ".join(fault.reason for fault in faults)
            core.tell("MoveFailed", move.partition, move.owner, f"it stays: {why}")
            self._think_over(move, 0.0)
            core.freed(None, (), "")
        else:
            self.done += 1
            core.tell("Moved", move.partition, move.owner, _destination(move))
            self._think_over(move, core.now())  # what it left is about to be reset
        return entry

    def show(self) -> MoveTable:
        """Who is asked, and who would be next, if that is allowed."""
        core, now = self._core, self._core.now()
        able = movers(core, now)
        rows = [row(move, "ASKED", now) for move in core.moves.values()]
        busy = {move.waiter for move in core.moves.values()}
        for kept in list(core.reservations.values()):
            if kept.waiter not in busy and (found := self._plan(kept, able)) is not None:
                room, steps = found
                rows += [row(self._pending(step, room), "PLANNED", now) for step in steps]
                undo(steps)
                room.lift()
                kept.absorb()
        return MoveTable(
            allowed=self.allowed,
            moves=rows,
            movable=len(able) + len(movers(core, now, job=True)),
            done=self.done,
            failed=self.failed,
        )

    def _plan(
        self, kept: Reservation, able: Mapping[str, HeldLease]
    ) -> tuple[Reservation, list[MoveStep]] | None:
        waiter = self._waiter(kept.waiter)
        if waiter is None or waiter.starting or not kept.missing:
            return None
        return plan_room(self._core, kept, waiter.spec, able)

    def _pending(
        self, step: MoveStep, room: Reservation | None, word: str = "", room_for: str = ""
    ) -> PendingMove:
        """word: the one that the launch repeats when it has ended; none: nobody is asked yet."""
        core, record, seconds = self._core, step.entry.known, step.lease.move_seconds
        assert step.entry.site is not None
        return PendingMove(
            id=word,
            partition=record.name,
            owner=record.owner,
            size=record.size,
            lease=step.lease.record.id,
            site=step.entry.site,
            target=step.target,
            waiter=room.waiter if room else "",
            room=room.goal.blocks if room else (),
            until=core.now() + PATIENCE + seconds,
            seconds=seconds,
            room_for=room_for,
        )

    def ask(self, step: MoveStep, room: Reservation | None, room_for: str = "") -> PendingMove:
        """Ask a launch. room: for a waiter; room_for: as `PendingMove` has it."""
        core, lease = self._core, step.lease
        move = self._pending(step, room, f"m{core.next_epoch():x}", room_for)
        core.moves[move.lease] = move
        lease.move, lease.move_until = move.id, move.until
        now = core.now()
        lease.asked_at = (*(at for at in lease.asked_at if at > now - HOUR), now)
        whom = move.waiter or room_for
        why = f"to make room for {whom}" if whom else "its machine is drained"
        core.tell("AskToMove", move.partition, move.owner, f"{why}; {_destination(move)}")
        return move

    def _stands(self, move: PendingMove) -> bool:
        """Whether a move would still do what it is for."""
        core = self._core
        lease, entry = core.leases.get(move.lease), core.partitions.get(move.partition)
        if not self.allowed or lease is None or lease.ending or entry is None:
            return False
        if move.room_for:
            return True  # its scheduler knows
        if not move.waiter:
            return not move.site.drained.isdisjoint(entry.machines)
        reservations = core.reservations.values()
        kept = next((one for one in reservations if one.waiter == move.waiter), None)
        return kept is not None and kept.goal.blocks == move.room

    def call_off(self, move: PendingMove, why: str) -> None:
        """It need not any more: it goes on where it is."""
        core = self._core
        self._forget(move)
        self.failed += 1
        core.tell("MoveCalledOff", move.partition, move.owner, why)
        move.site.index.release(move.target)
        self._think_over(move, 0.0)
        core.freed(move.site, move.target.blocks, "")

    def _forget(self, move: PendingMove) -> None:
        del self._core.moves[move.lease]
        if (lease := self._core.leases.get(move.lease)) is not None:
            lease.move, lease.move_until = "", 0.0

    def _think_over(self, move: PendingMove, planned_at: float) -> None:
        """The place of a waiter for whom nobody moves any more is one like any other."""
        core = self._core
        if move.waiter and all(other.waiter != move.waiter for other in core.moves.values()):
            for kept in core.reservations.values():
                if kept.waiter == move.waiter:
                    kept.planned_at = planned_at


def _destination(move: PendingMove) -> str:
    return f"to {' and '.join(move.site.parts(move.target.blocks))}"


def row(move: PendingMove, state: str, now: float) -> MoveRow:
    """A move as others see it."""
    return MoveRow(
        partition=move.partition,
        owner=move.owner,
        size=move.size,
        seconds=move.seconds,
        state=state,
        waiter=move.waiter or move.room_for,
        within=max(0.0, move.until - now) if state == "ASKED" else 0.0,
        to=" ".join(move.site.parts(move.target.blocks)),
    )
