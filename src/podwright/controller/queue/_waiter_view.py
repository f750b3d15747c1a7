"""A waiter as callers see it: its place, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from podwright.controller.partitions import _partitions as partitions
from podwright.controller.queue._waiter import Waiter
from podwright.controller.requests._spec import described
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._reservation import Reservation
from podwright.errors import PodwrightError
from podwright.wire import WaiterInfo


def waiter_info(
    state: ControllerState, line: Iterable[Waiter], waiter: Waiter, place: int = 0
) -> WaiterInfo:
    """A waiter as callers see it. line: the queue in order. place: its place there, if known."""
    record = waiter.record
    waiter_state = "DONE" if waiter.partition else "STARTING" if waiter.starting else "WAITING"
    info = WaiterInfo(
        id=record.id,
        owner=record.name,
        state=waiter_state,
        asked=waiter.action,
        priority=record.priority,
        since=record.since,
    )
    if waiter_state != "WAITING":
        return info
    place = place or 1 + next((i for i, other in enumerate(line) if other is waiter), 0)
    reservation = next((r for r in state.reservations.values() if r.waiter == waiter.id), None)
    estimate = 0.0
    if waiter.target:
        needs = f"partition {waiter.target}, which is held"
    elif reservation is not None:
        needs = _needs(state, waiter, reservation)
        if reservation.goal.known:
            estimate = max(0.0, reservation.goal.starts_at - state.now())
    else:
        needs = "those ahead, and devices that are free" if place > 1 else _obstacle(state, waiter)
    return msgspec.structs.replace(
        info,
        place=place,
        needs=needs,
        estimate=estimate,
        reserved=reservation.reserved if reservation else 0,
    )


def wanted_in_words(state: ControllerState, waiter: Waiter) -> str:
    """What a waiter wants, as messages name it."""
    verb = "create " if waiter.record.create is not None else "acquire "
    return verb + described(waiter.spec, state.inventory.noun)


def _needs(state: ControllerState, waiter: Waiter, reservation: Reservation) -> str:
    """The partitions that must end or move before the place reserved for a waiter is free."""
    goal = reservation.goal
    standing = [  # of those that stood in the way when the place was chosen
        entry.record
        for name in goal.partitions
        if (entry := state.partitions.get(name)) is not None and entry.record is not None
    ]
    named = [
        record.name for record in standing if state.sight.partition_to(waiter.record.name, record)
    ]
    names = " and ".join(named[:5]) or (
        "other partitions" if standing else "devices that are being reset"
    )
    wanted = sum(block.size for block in goal.blocks)
    moves = [pending.until for pending in state.moves.values() if pending.waiter == waiter.id]
    last_move = f"{datetime.fromtimestamp(max(moves)):%H:%M:%S}" if moves else ""
    needed = f"move to other devices by {last_move} at the latest" if moves else "end"
    return f"{names} to {needed} ({reservation.reserved} of {wanted} devices are there)"


def _obstacle(state: ControllerState, waiter: Waiter) -> str:
    """What the first of the queue waits for, in the words of the refusal that it would get now.

    `vipu explain` shows the same refusal, so that both say the same.
    """
    try:
        claim = partitions.place(
            state, waiter.checked, owner=waiter.caller.name, duration=waiter.duration
        )
    except PodwrightError as error:
        return error.problem
    partitions.untake(state, claim)
    return "its turn, which comes at once"
