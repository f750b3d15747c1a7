"""The two state machines of a partition as one table of legal moves.

V-IPU 1.18 has a ready state and an operation state; how they go together is our choice:
while a step is under way the partition is PENDING, except that the reset of a part of a
reconfigurable partition leaves the rest ACTIVE.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from podwright.controller.state._records import PartitionRecord
from podwright.errors import Internal
from podwright.wire import OperationState, ReadyState

State = tuple[ReadyState, OperationState]

CREATING: Final = (ReadyState.PENDING, OperationState.CREATING)
READY: Final = (ReadyState.ACTIVE, OperationState.IDLE)
RESETTING: Final = (ReadyState.PENDING, OperationState.RESETTING)
RESETTING_PART: Final = (ReadyState.ACTIVE, OperationState.RESETTING)
REMOVING: Final = (ReadyState.PENDING, OperationState.REMOVING)
BROKEN: Final = (ReadyState.ERROR, OperationState.FAILED)
GONE: Final = (ReadyState.REMOVED, OperationState.IDLE)

#: From each state to those that may follow. A step that a crash interrupted is begun again:
#: that is the move of a state to itself.
LEGAL_MOVES: Final[dict[State, frozenset[State]]] = {
    CREATING: frozenset({CREATING, READY, BROKEN, REMOVING}),
    READY: frozenset({RESETTING, RESETTING_PART, REMOVING, BROKEN}),
    RESETTING: frozenset({RESETTING, READY, BROKEN, REMOVING}),
    RESETTING_PART: frozenset({RESETTING_PART, READY, BROKEN, REMOVING}),
    REMOVING: frozenset({REMOVING, GONE, BROKEN}),
    BROKEN: frozenset({RESETTING, REMOVING, BROKEN, CREATING}),  # CREATING: on other devices
    GONE: frozenset(),
}


def state_of(record: PartitionRecord) -> State:
    """Both states of a partition."""
    return record.ready, record.operation


def move(record: PartitionRecord, target_state: State, **field_changes: Any) -> PartitionRecord:
    """The record after a move, with other fields changed on the way.

    Raises Internal for a move that the table does not have: that is a fault of ours.
    """
    if target_state not in LEGAL_MOVES.get((record.ready, record.operation), ()):
        raise Internal(
            f"partition {record.name} cannot go from "
            f"{record.ready.value}/{record.operation.value} to "
            f"{target_state[0].value}/{target_state[1].value}"
        )
    return msgspec.structs.replace(
        record, ready=target_state[0], operation=target_state[1], **field_changes
    )
