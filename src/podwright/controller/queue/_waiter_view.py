"""A waiter as callers see it: its place, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from podwright.controller.queue._waiter import Waiter
from podwright.controller.requests._device_claims import place, undo_claim
from podwright.controller.requests._spec import described
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._reservation import Reservation
from podwright.errors import PodwrightError
from podwright.wire import WaiterInfo


def waiter_info(
    state: ControllerState, waiter_queue: Iterable[Waiter], waiter: Waiter, queue_position: int = 0
) -> WaiterInfo:
    """A waiter as callers see it. waiter_queue: the queue in order. queue_position: its place
    there, if known.
    """
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
    queue_position = queue_position or 1 + next(
        (index for index, queued_waiter in enumerate(waiter_queue) if queued_waiter is waiter), 0
    )
    reservation = next(
        (candidate for candidate in state.reservations.values() if candidate.waiter == waiter.id),
        None,
    )
    estimate_s = 0.0
    if waiter.target:
        needs_text = f"partition {waiter.target}, which is held"
    elif reservation is not None:
        needs_text = _blockers_in_words(state, waiter, reservation)
        if reservation.goal.known:
            estimate_s = max(0.0, reservation.goal.starts_at - state.now())
    else:
        turn_text = _turn_in_words(state, waiter)
        if queue_position > 1:
            needs_text = "those ahead" + (
                f"; {turn_text}" if turn_text else ", and devices that are free"
            )
        else:
            needs_text = turn_text or _obstacle_in_words(state, waiter)
    return msgspec.structs.replace(
        info,
        place=queue_position,
        needs=needs_text,
        estimate=estimate_s,
        reserved=reservation.reserved if reservation else 0,
    )


def wanted_in_words(state: ControllerState, waiter: Waiter) -> str:
    """What a waiter wants, as messages name it."""
    verb = "create " if waiter.record.create is not None else "acquire "
    return verb + described(waiter.spec, state.inventory.noun)


def _blockers_in_words(state: ControllerState, waiter: Waiter, reservation: Reservation) -> str:
    """The partitions that must end or move before the place reserved for a waiter is free."""
    goal = reservation.goal
    blocking_partitions = [  # of those that stood in the way when the place was chosen
        entry.record
        for name in goal.partitions
        if (entry := state.partitions.get(name)) is not None and entry.record is not None
    ]
    visible_names = [
        record.name
        for record in blocking_partitions
        if state.sight.user_sees_partition(waiter.record.name, record)
    ]
    names_text = " and ".join(visible_names[:5]) or (
        "other partitions" if blocking_partitions else "devices that are being reset"
    )
    device_count = sum(block.size for block in goal.blocks)
    move_deadlines = [
        pending_move.until
        for pending_move in state.moves.values()
        if pending_move.waiter == waiter.id
    ]
    last_move = f"{datetime.fromtimestamp(max(move_deadlines)):%H:%M:%S}" if move_deadlines else ""
    needed_text = f"move to other devices by {last_move} at the latest" if move_deadlines else "end"
    return (
        f"{names_text} to {needed_text} ({reservation.reserved} of {device_count} devices are "
        "there)"
    )


def _turn_in_words(state: ControllerState, waiter: Waiter) -> str:
    """Whose turn it is before a waiter's, where a place is kept for a scheduler's job; or empty."""
    spec, sight = waiter.spec, state.sight
    for (cluster_name, allocation), reservation in state.reservations.items():
        if (
            reservation.guest
            and spec.cluster in ("", cluster_name)
            and spec.allocation in ("", allocation)
        ):
            is_visible = sight.user_sees_waiter(waiter.record.name, reservation.owner)
            first = reservation.waiter if is_visible else "another guest"
            device_count = sum(block.size for block in reservation.goal.blocks)
            return (
                f"it is the turn of {first} first: {reservation.reserved} of {device_count} "
                f"devices that are kept for it in {allocation} are free"
            )
    return ""


def _obstacle_in_words(state: ControllerState, waiter: Waiter) -> str:
    """What the first of the queue waits for, in the words of the refusal that it would get now.

    `vipu explain` shows the same refusal, so that both say the same.
    """
    try:
        claim = place(state, waiter.checked, owner=waiter.caller.name)
    except PodwrightError as error:
        return error.problem
    undo_claim(state, claim)
    return "its turn, which comes at once"
