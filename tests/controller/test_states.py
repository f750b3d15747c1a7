"""The table of legal transitions, checked for every pair of states."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from podwright.controller.state._partition_states import GONE, LEGAL_MOVES, READY, move
from podwright.controller.state._records import PartitionRecord
from podwright.errors import Internal
from podwright.placement import Block
from podwright.wire import GatewayRouting, OperationState, ReadyState, Routing, SyncType

RECORD = PartitionRecord(
    name="p1",
    cluster="c",
    allocation="c",
    size=4,
    num_gcds=1,
    num_replicas=1,
    num_ilds=1,
    routing=Routing.DNC,
    gw_routing=GatewayRouting.DEFAULT,
    sync_type=SyncType.DEFAULT,
    blocks=(Block(0, 0, 4),),
    gcds=(Block(0, 0, 4),),
    ready=ReadyState.ACTIVE,
    operation=OperationState.IDLE,
    owner="root",
    creator="root",
    epoch=1,
    created_at=0.0,
)
EVERY = list(product(ReadyState, OperationState))

#: Said a second time, by hand, so that a slip in the table shows.
LEGAL = {
    "PENDING/CREATING": "PENDING/CREATING ACTIVE/IDLE ERROR/FAILED PENDING/REMOVING",
    "ACTIVE/IDLE": "PENDING/RESETTING ACTIVE/RESETTING PENDING/REMOVING ERROR/FAILED",
    "PENDING/RESETTING": "PENDING/RESETTING ACTIVE/IDLE ERROR/FAILED PENDING/REMOVING",
    "ACTIVE/RESETTING": "ACTIVE/RESETTING ACTIVE/IDLE ERROR/FAILED PENDING/REMOVING",
    "PENDING/REMOVING": "PENDING/REMOVING REMOVED/IDLE ERROR/FAILED",
    "ERROR/FAILED": "PENDING/RESETTING PENDING/REMOVING ERROR/FAILED PENDING/CREATING",
    "REMOVED/IDLE": "",
}


def _name(state: tuple[ReadyState, OperationState]) -> str:
    return f"{state[0].value}/{state[1].value}"


@pytest.mark.parametrize("before", EVERY, ids=_name)
def test_every_pair_of_states_is_allowed_or_refused_as_the_table_says(
    before: tuple[ReadyState, OperationState],
) -> None:
    record = msgspec.structs.replace(RECORD, ready=before[0], operation=before[1])
    legal = LEGAL.get(_name(before), "").split()
    for after in EVERY:
        if _name(after) in legal:
            moved = move(record, after, epoch=7)
            assert (moved.ready, moved.operation, moved.epoch) == (*after, 7)
        else:
            with pytest.raises(Internal, match="cannot go from"):
                move(record, after)


def test_every_state_can_be_reached_and_left_but_the_last() -> None:
    reached = {READY} | {state for after in LEGAL_MOVES.values() for state in after}
    assert reached == set(LEGAL_MOVES)
    assert [state for state, after in LEGAL_MOVES.items() if not after] == [GONE]
