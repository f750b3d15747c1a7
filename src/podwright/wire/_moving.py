"""The values of podwright.v1 about moving launches to other devices."""

from __future__ import annotations

from podwright.wire._method import (
    CREATORS,
    About,
    AuditEntry,
    May,
    Method,
    ObjectKind,
    Repeat,
    Rights,
)
from podwright.wire._value import Value
from podwright.wire._values import Empty, PartitionInfo


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
    Of a scheduler's jobs also ABLE, it could be asked; MOVING, its devices are being changed;
    STAYS, it cannot be moved, or not there.

    waiter: who gets room by it, in the queue or as a scheduler calls him; empty: nobody, its
    machine is drained. size: devices.
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


class JobMovesRequest(Value):
    """Which partitions of a scheduler's jobs could be moved now, and which are asked to."""

    cluster: str = ""
    allocation: str = ""


class JobMoves(Value):
    """allowed: whether the server asks any launch to move. moves: those of the caller's jobs that
    are ABLE, ASKED or MOVING."""

    allowed: bool = True
    moves: list[MoveRow] = []


class AskToMoveRequest(Value):
    """Ask the launch on a job's partition to move to these devices, which nobody else gets until
    it has, or need not any more.

    job: as the partition was created for it. room_for: who gets room by it, in the scheduler's
    words.
    """

    partition: str
    job: str
    devices: list[tuple[int, int]]
    room_for: str = ""


class CallOffMoveRequest(Value):
    """A job's launch need not move any more. job: as its partition was created for it."""

    partition: str
    job: str


#: A scheduler may move what it made for its own jobs.
_SCHEDULER_RIGHTS = Rights(May.ANY, May.NO, May.NO, May.JOBS, May.NO)
_ABOUT_LEASE = About(ObjectKind.LEASE, ("id",))
_ABOUT_JOB_PARTITION = About(ObjectKind.PARTITION, ("partition",))

#: What the answer reveals of other tenants, even where all is private (docs/security.md).
_MOVE_REVEALS = "which devices are free"

CALLS = (
    Method(
        "Move",
        MoveRequest,
        PartitionInfo,
        CREATORS,
        Repeat.SAME,
        _ABOUT_LEASE,
        reveals=_MOVE_REVEALS,
    ),
    Method("ShowMoves", MovesRequest, MoveTable, repeat=Repeat.CHANGES_NOTHING),
    Method("ListJobMoves", JobMovesRequest, JobMoves, _SCHEDULER_RIGHTS, Repeat.CHANGES_NOTHING),
    Method(
        "AskToMove",
        AskToMoveRequest,
        MoveRow,
        _SCHEDULER_RIGHTS,
        Repeat.SAME,
        _ABOUT_JOB_PARTITION,
        AuditEntry.NOTHING,
    ),
    Method(
        "CallOffMove",
        CallOffMoveRequest,
        Empty,
        _SCHEDULER_RIGHTS,
        Repeat.SAME,
        _ABOUT_JOB_PARTITION,
        AuditEntry.NOTHING,
    ),
    Method("AllowMoves", MovesAllowed, MoveTable, repeat=Repeat.SAME),
)
