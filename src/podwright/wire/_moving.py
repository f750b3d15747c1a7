"""The values of podwright.v1 about moving launches to other devices."""

from __future__ import annotations

from podwright.wire._method import CREATORS, Method, Repeat
from podwright.wire._value import Value
from podwright.wire._values import PartitionInfo


class MoveRequest(Value):
    """Nothing of a launch runs any more, on any of its hosts: give its partition the other devices.

    id, epoch: its lease. move: the word of `LeaseInfo.move`. Where the server has meanwhile thought
    better of it, the partition stays where it is; the answer says where that is, in any case.
    """

    id: str
    epoch: int
    move: str


class MoveRow(Value):
    """A move. state: ASKED, its launch was told; PLANNED, it would be next, if that is allowed.

    waiter: who gets room by it; empty: nobody, its machine is drained. size: devices.
    seconds: what its launch loses. within: seconds that it still has to end, where it was asked.
    to: the machines of its other devices.
    """

    partition: str
    owner: str = ""
    size: int = 0
    seconds: float = 0.0
    state: str = "PLANNED"
    waiter: str = ""
    within: float = 0.0
    to: str = ""


class MovesRequest(Value):
    """Which launches are asked to move, and which would be."""


class MoveTable(Value):
    """allowed: whether the server asks any launch to move. movable: how many partitions could be,
    now. done, failed: moves since the server's start."""

    allowed: bool = True
    moves: list[MoveRow] = []
    movable: int = 0
    done: int = 0
    failed: int = 0


class MovesAllowed(Value):
    """Whether the server asks any launch to move. It is kept."""

    allowed: bool


CALLS = (
    Method("Move", MoveRequest, PartitionInfo, CREATORS, Repeat.SAME),
    Method("ShowMoves", MovesRequest, MoveTable, repeat=Repeat.READS),
    Method("AllowMoves", MovesAllowed, MoveTable, repeat=Repeat.SAME),
)
