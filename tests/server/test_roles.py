"""Which role may make which call on whose object: every cell of the table, through every door."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tools.calls_page import RIGHTS, calls_page

from podwright.hosts import Peer
from podwright.wire import (
    METHODS,
    AcquireRequest,
    AgentRequest,
    AllocationRequest,
    Announcement,
    AskToMoveRequest,
    BackupRequest,
    CallOffMoveRequest,
    ClusterChange,
    ClusterRequest,
    CreateRequest,
    DiscoverRequest,
    EventsRequest,
    ExplainRequest,
    JobMovesRequest,
    JobReport,
    LeaseRequest,
    ListRequest,
    MachineName,
    May,
    MoveRequest,
    MovesAllowed,
    MovesRequest,
    Named,
    PartitionName,
    PartitionSpec,
    QuotaInfo,
    RemoveRequest,
    ResetRequest,
    RevokeRequest,
    Rights,
    ServerInfoRequest,
    TokenRequest,
    UserRequest,
    WaiterName,
    WaitRequest,
    virm,
)
from tests.server.walk import JOB, MINE, THEIRS, Doors, Who, everybody, for_job, is_ours

_pb = virm.pb
ALL = ListRequest()
NEW = PartitionSpec(name="new", size=1)
Ask = Callable[[Doors, Who, str], Any]


def _always(request: Any) -> Ask:
    return lambda doors, who, whose: request


def _new(doors: Doors, who: Who, whose: str) -> Any:
    return for_job(NEW) if who.role == "scheduler" else CreateRequest(spec=NEW)


def _acquire(doors: Doors, who: Who, whose: str) -> Any:
    spec = PartitionSpec(name=whose)
    return AcquireRequest(spec=spec, ttl=99, **(JOB if who.role == "scheduler" else {}))


def _lease(doors: Doors, who: Who, whose: str) -> Any:
    lease = doors.leases[whose]
    return LeaseRequest(id=lease.id, epoch=lease.epoch)


def _move(doors: Doors, who: Who, whose: str) -> Any:
    lease = doors.leases[whose]
    return MoveRequest(id=lease.id, epoch=lease.epoch, move="not asked")


def _ask_to_move(doors: Doors, who: Who, whose: str) -> Any:
    job = "7" if who.role == "scheduler" else ""
    return AskToMoveRequest(partition=whose, job=job, devices=[(0, 15)])


def _call_off(doors: Doors, who: Who, whose: str) -> Any:
    return CallOffMoveRequest(partition=whose, job="7" if who.role == "scheduler" else "")


#: Calls about somebody's object: made for the caller's own and for another's.
OBJECTS: dict[str, Ask] = {
    "GetPartition": lambda d, w, whose: PartitionName(name=whose),
    "ResetPartition": lambda d, w, whose: ResetRequest(name=whose),
    "Acquire": _acquire,
    "Renew": _lease,
    "Move": _move,
    "AskToMove": _ask_to_move,
    "CallOffMove": _call_off,
    "Release": _lease,
    "Leave": lambda d, w, whose: WaiterName(id=d.waiters[whose]),
    "RemovePartition": lambda d, w, whose: RemoveRequest(name=whose),
    "virmgrpc.GetPartitionIpuofConfig": lambda d, w, whose: _pb.GetPartitionIpuofConfigRequest(
        partition_id=whose
    ),
    "virmgrpc.GetPartitionStatus": lambda d, w, whose: _pb.GetPartitionStatusRequest(
        partition_id=whose
    ),
    "virmgrpc.ResetPartition": lambda d, w, whose: _pb.ResetPartitionRequest(partition_id=whose),
    "virmgrpc.RemovePartition": lambda d, w, whose: _pb.RemovePartitionRequest(partition_id=whose),
}
#: The other calls, in an order in which an administrator's succeed.
PLAIN: dict[str, Ask] = {
    "GetServerInfo": _always(ServerInfoRequest()),
    "IssueToken": _always(TokenRequest()),
    **{name: _always(ALL) for name in METHODS if METHODS[name].request is ListRequest},
    "ListEvents": _always(EventsRequest()),
    "Explain": _always(ExplainRequest(spec=NEW)),
    "CreatePartition": _new,
    "Wait": _always(WaitRequest(acquire=AcquireRequest(spec=PartitionSpec(name=f"{MINE}-leased")))),
    "ReportJobs": _always(JobReport()),
    "SetQuota": _always(QuotaInfo(user="bob", devices=999)),
    "DrainMachine": _always(MachineName(name="ag1")),
    "ResumeMachine": _always(MachineName(name="ag1")),
    "ShowMoves": _always(MovesRequest()),
    "ListJobMoves": _always(JobMovesRequest()),
    "AllowMoves": _always(MovesAllowed(allowed=True)),
    "Backup": _always(BackupRequest()),
    "AnnounceAgent": _always(Announcement(name="ag8", host="127.0.0.1", port=1)),
    "DiscoverAgents": _always(DiscoverRequest()),
    "CreateAgent": lambda d, w, _: AgentRequest(name="ag9", host="127.0.0.1", port=d.agent_port),
    "CreateCluster": _always(ClusterRequest(name="c9", agents=["ag9"])),
    "TestCluster": _always(Named(name="c9")),
    "CreateAllocation": _always(AllocationRequest(name="a9", cluster="c9", size=4)),
    "RemoveAllocation": _always(Named(name="a9")),
    "ChangeCluster": _always(ClusterChange(name="c9", add=["ag7"])),
    "RemoveCluster": _always(Named(name="c9")),
    "RemoveAgent": _always(Named(name="ag9")),
    "CreateUser": _always(UserRequest(name="dave")),
    "RevokeCertificate": _always(RevokeRequest(name="dave", number="0123456789abcdef")),
    "RemoveUser": _always(Named(name="dave")),
    "virmgrpc.GetVersion": _always(_pb.VersionRequest()),
    "virmgrpc.ListPartitions": _always(_pb.ListPartitionsRequest()),
    "virmgrpc.ListIPUAttributes": _always(_pb.ListIPUAttributesRequest()),
    "virmgrpc.CreatePartition": _always(
        _pb.CreatePartitionRequest(requirements={"id": "vnew", "size": 1})
    ),
}
CHANGES = {name for name, method in METHODS.items() if method.changes} | {
    f"virmgrpc.{name}" for name, method in virm.VIRM_METHODS.items() if method.changes
}


@pytest.fixture
async def doors(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Doors]:
    folder = Path(tempfile.mkdtemp(prefix="pw-", dir="/tmp"))
    made = Doors(folder / "s")
    monkeypatch.setattr("podwright.http._connection.peer_of", lambda _: Peer(0, made.kernel))
    await made.start()
    yield made
    await made.stop()
    shutil.rmtree(folder)


def test_the_table_has_every_call_and_so_has_the_walk() -> None:
    calls = {*METHODS, *(f"virmgrpc.{name}" for name in virm.VIRM_METHODS)}
    assert set(RIGHTS) == calls
    assert set(OBJECTS) | set(PLAIN) == calls
    assert all(f"| `{call}` |" in calls_page() for call in calls)


def _cells(who: Who) -> list[tuple[str, str, bool]]:
    """Call, whose object, and whether the table allows it."""
    found = []
    for call in (*PLAIN, *OBJECTS):
        if who.door == "unix" and not is_ours(call):
            continue
        may = getattr(RIGHTS[call], who.role)
        if call == "IssueToken" and who.door != "unix":
            may = May.NO
        for whose in (MINE, THEIRS) if call in OBJECTS else (MINE,):
            allowed = may is May.ANY or (may in (May.OWN, May.JOBS) and whose == MINE)
            found.append((call, whose, allowed))
    return found


@pytest.mark.parametrize("who", everybody(), ids=str)
async def test_each_caller_may_what_the_table_says_and_nothing_else(doors: Doors, who: Who) -> None:
    await walk(doors, who)


async def walk(doors: Doors, who: Who) -> None:
    """Every cell of a caller's: first what is refused and changes nothing, then the rest."""
    await doors.tidy(who)
    before = await doors.state()
    cells = _cells(who)
    for call, whose, allowed in cells:
        if not allowed:
            asked = {**PLAIN, **OBJECTS}[call](doors, who, whose)
            code, said = await doors.call(who, call, asked)
            assert code == "PERMISSION_DENIED", (call, whose, code, said)
    assert await doors.state() == before
    for call, whose, allowed in cells:
        if allowed:
            asked = {**PLAIN, **OBJECTS}[call](doors, who, whose)
            code, said = await doors.call(who, call, asked)
            assert code == "OK", (call, whose, code, said)
            if call in CHANGES and (call in OBJECTS or call in _MADE):
                await doors.tidy(who)
            if call in _SHOWN and who.role != "administrator":
                _SHOWN[call](said, who)


_MADE = {"CreatePartition", "virmgrpc.CreatePartition", "Wait"}


def _events_are_mine(found: Any, who: Who) -> None:
    assert all(who.name in (event.who, event.owner) for event in found.events)


def _quotas_are_mine(found: Any, who: Who) -> None:
    assert {quota.user for quota in found.quotas} <= {who.name}


def _everybodys(found: Any, who: Who) -> None:
    assert {MINE, THEIRS} <= {info.name for info in found.partitions}


def _all(found: Any, who: Who) -> None:
    assert [info.name for info in found.allocations] == ["pod16"]


_SHOWN = {
    "ListEvents": _events_are_mine,
    "ListQuotas": _quotas_are_mine,
    "ListPartitions": _everybodys,
    "ListAllocations": _all,
}


async def test_a_secure_server_answers_nobody_whom_it_does_not_know(doors: Doors) -> None:
    nobody = Who("loopback", "anonymous", "anonymous")
    await doors.tidy(nobody)
    doors.server.make_secure()
    before = await doors.state()
    for call, whose, _ in _cells(nobody):
        asked = {**PLAIN, **OBJECTS}[call](doors, nobody, whose)
        code, said = await doors.call(nobody, call, asked)
        wanted = "OK" if call == "AnnounceAgent" else "UNAUTHENTICATED"
        assert code == wanted, (call, code, said)
    assert await doors.state() == before


def test_rows_are_what_they_look_like() -> None:
    assert RIGHTS["Backup"] == Rights(May.ANY, May.NO, May.NO, May.NO, May.NO)
    assert "| `Backup` | yes | - | - | - | - |" in calls_page()
