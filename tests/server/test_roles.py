"""The calls that each role may make on whose objects: every cell of the table, through every
door.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools.calls_page import RIGHTS, calls_page

from podwright.hosts import Peer
from podwright.wire import (
    METHODS,
    About,
    AcquireRequest,
    AgentRequest,
    AllocationRequest,
    Announcement,
    ClusterChange,
    ClusterRequest,
    CreateRequest,
    ExplainRequest,
    May,
    Method,
    ObjectKind,
    PartitionSpec,
    QuotaInfo,
    RevokeRequest,
    Rights,
    Value,
    WaitRequest,
    virm,
)
from tests.server.walk import JOB, MINE, THEIRS, Doors, Who, everybody, for_job, is_ours

_pb = virm.pb
NEW = PartitionSpec(name="new", size=1)
Ask = Callable[[Doors, Who, str], Any]


def _always(request: Any) -> Ask:
    return lambda doors, who, whose: request


#: The names of things by kind, where a call is about something that belongs to nobody.
NAMES = {
    ObjectKind.MACHINE: "ag1",
    ObjectKind.AGENT: "ag9",
    ObjectKind.CLUSTER: "c9",
    ObjectKind.ALLOCATION: "a9",
    ObjectKind.USER: "dave",
    ObjectKind.QUOTA: "bob",
    ObjectKind.SHARE: "slurm",
}
#: What a request needs besides the name of its object, where no sample of the type will do.
BESIDES: dict[type[Value], dict[str, Any]] = {
    AcquireRequest: {"ttl": 99},
    AgentRequest: {"host": "127.0.0.1"},
    AllocationRequest: {"cluster": "c9", "size": 4},
    Announcement: {"host": "127.0.0.1", "port": 1},
    ClusterChange: {"add": ["ag7"]},
    ClusterRequest: {"agents": ["ag9"]},
    ExplainRequest: {"spec": NEW},
    QuotaInfo: {"devices": 999},
    RevokeRequest: {"number": "0123456789abcdef"},
    WaitRequest: {"acquire": AcquireRequest(spec=PartitionSpec(name=f"{MINE}-leased"))},
}
SAMPLES: dict[Any, Any] = {bool: True, str: "not asked", list[tuple[int, int]]: [(0, 15)]}


def _is_of_somebody(method: Method) -> bool:
    """Return whether a call is about an existing object with an owner."""
    about = method.about
    return about is not None and about.kind.owned and not about.new and method.name != "Wait"


def _request(method: Method, doors: Doors, who: Who, whose: str) -> Any:
    """Return a request as its row describes it."""
    kind, about = method.request, method.about
    values = dict(BESIDES.get(kind, {}))
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    if about is not None and method.name != "Wait":
        name = _name(about, doors, whose)
        field, _, inner = about.fields[0].partition(".")
        values[field] = PartitionSpec(name=name) if inner else name
        if about.kind is ObjectKind.LEASE:
            values["epoch"] = doors.leases[whose].epoch
        if kind is AgentRequest:
            values["port"] = doors.agent_port
    if about is not None and about.kind is ObjectKind.PARTITION and who.role == "scheduler":
        values |= {name: value for name, value in JOB.items() if name in fields}
    for name, known in fields.items():
        if known.required and name not in values:
            scheduler = who.role == "scheduler"
            assert known.type in SAMPLES, f"SAMPLES or BESIDES needs a {kind.__name__}.{name}"
            values[name] = "7" * scheduler if name == "job" else SAMPLES[known.type]
    return kind(**values)


def _name(about: About, doors: Doors, whose: str) -> str:
    if about.kind is ObjectKind.PARTITION:
        return whose
    if about.kind is ObjectKind.LEASE:
        return doors.leases[whose].id
    if about.kind is ObjectKind.WAITER:
        return doors.waiters[whose]
    return NAMES[about.kind]


def _new(doors: Doors, who: Who, whose: str) -> Any:
    return for_job(NEW) if who.role == "scheduler" else CreateRequest(spec=NEW)


def _ours(method: Method) -> Ask:
    return _new if method.name == "CreatePartition" else partial(_request, method)


def _in_order(names: Iterable[str]) -> list[str]:
    """So that an administrator's calls succeed: what is made first goes last, and a cluster is
    changed when nothing is set apart in it."""
    found = list(names)
    made = [name for name in found if name.startswith("Create")]
    gone = [name for name in reversed(found) if name.startswith("Remove")]
    gone.insert(gone.index("RemoveCluster"), "ChangeCluster")
    return [*made, *(name for name in found if name not in (*made, *gone)), *gone]


#: Calls about somebody's object: made for the caller's own and for another's.
OBJECTS: dict[str, Ask] = {
    **{name: _ours(method) for name, method in METHODS.items() if _is_of_somebody(method)},
    "virmgrpc.GetPartitionIpuofConfig": lambda d, w, whose: _pb.GetPartitionIpuofConfigRequest(
        partition_id=whose
    ),
    "virmgrpc.GetPartitionStatus": lambda d, w, whose: _pb.GetPartitionStatusRequest(
        partition_id=whose
    ),
    "virmgrpc.ResetPartition": lambda d, w, whose: _pb.ResetPartitionRequest(partition_id=whose),
    "virmgrpc.RemovePartition": lambda d, w, whose: _pb.RemovePartitionRequest(partition_id=whose),
}
#: The other calls.
PLAIN: dict[str, Ask] = {
    **{
        name: _ours(METHODS[name])
        for name in _in_order(name for name in METHODS if name not in OBJECTS)
    },
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


def test_the_page_shows_the_rights_of_a_row() -> None:
    assert RIGHTS["Backup"] == Rights(May.ANY, May.NO, May.NO, May.NO, May.NO)
    assert "| `Backup` | yes | - | - | - | - |" in calls_page()
