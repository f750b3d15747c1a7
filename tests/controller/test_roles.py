"""Which role may make which call on whose object: one table, and a walk over all of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from podwright.agents import SimulatedMachine
from podwright.controller import Caller, Controller, Role
from podwright.fabric import preset
from podwright.store import MemoryStore
from podwright.wire import (
    METHODS,
    AcquireRequest,
    AgentRequest,
    AllocationRequest,
    BackupRequest,
    ClusterRequest,
    CreateRequest,
    Denied,
    DiscoverRequest,
    LeaseRequest,
    ListRequest,
    MachineName,
    Named,
    PartitionName,
    PartitionSpec,
    PodwrightError,
    QuotaInfo,
    RemoveRequest,
    ResetRequest,
    UserRequest,
    Value,
)

CALLERS = {
    "administrator": Caller("root", 0, Role.ADMINISTRATOR),
    "owner": Caller("alice", 1001, Role.USER),
    "user": Caller("bob", 1002, Role.USER),
    "reader": Caller("ruth", 1003, Role.READER),
    "scheduler": Caller("slurm", 1004, Role.SCHEDULER),
    "key": Caller("carol", None, Role.USER, "key"),
    "anonymous": Caller("anonymous", None, Role.READER, "tcp"),
}
EVERYBODY = set(CALLERS)
CREATORS = EVERYBODY - {"reader", "scheduler"}  # a scheduler: in the name of a job alone
OWNER = {"owner", "administrator"}
ADMINISTRATOR = {"administrator"}

#: Call -> its request, and who may make it. Objects are alice's.
TABLE: dict[str, tuple[Value, set[str]]] = {
    "ListClusters": (ListRequest(), EVERYBODY),
    "ListAllocations": (ListRequest(), EVERYBODY),
    "ListDevices": (ListRequest(), EVERYBODY),
    "ListPartitions": (ListRequest(), EVERYBODY),
    "ListLeases": (ListRequest(), EVERYBODY),
    "ListWaiters": (ListRequest(), EVERYBODY),
    "ListQuotas": (ListRequest(), EVERYBODY),
    "ListAgents": (ListRequest(), EVERYBODY),
    "GetPartition": (PartitionName(name="hers"), EVERYBODY),
    "CreatePartition": (CreateRequest(spec=PartitionSpec(name="new", size=1)), CREATORS),
    "Acquire": (AcquireRequest(spec=PartitionSpec(name="new", size=1), create=True), CREATORS),
    "ResetPartition": (ResetRequest(name="hers"), OWNER),
    "RemovePartition": (RemoveRequest(name="hers"), OWNER),
    "Renew": (LeaseRequest(id="LEASE", epoch=0), OWNER),
    "Release": (LeaseRequest(id="LEASE", epoch=0), OWNER),
    "SetQuota": (QuotaInfo(user="bob", devices=4), ADMINISTRATOR),
    "DrainMachine": (MachineName(name="ag1"), ADMINISTRATOR),
    "ResumeMachine": (MachineName(name="ag1"), ADMINISTRATOR),
    "Backup": (BackupRequest(), ADMINISTRATOR),
    "CreateAgent": (AgentRequest(name="ag9", host="127.0.0.1", port=1), ADMINISTRATOR),
    "RemoveAgent": (Named(name="ag9"), ADMINISTRATOR),
    "DiscoverAgents": (DiscoverRequest(), ADMINISTRATOR),
    "CreateCluster": (ClusterRequest(name="c9", agents=["ag9"]), ADMINISTRATOR),
    "RemoveCluster": (Named(name="pod16"), ADMINISTRATOR),
    "TestCluster": (Named(name="pod16"), ADMINISTRATOR),
    "CreateAllocation": (AllocationRequest(name="a9", size=4), ADMINISTRATOR),
    "RemoveAllocation": (Named(name="pod16"), ADMINISTRATOR),
    "CreateUser": (UserRequest(name="dave"), ADMINISTRATOR),
    "ListUsers": (ListRequest(), ADMINISTRATOR),
    "RemoveUser": (Named(name="dave"), ADMINISTRATOR),
}
#: Answered by the server itself, or to everybody about his own alone; tests of their own.
ELSEWHERE = {
    "GetServerInfo", "IssueToken", "AnnounceAgent", "Wait", "Leave", "Explain", "ListEvents",
}  # fmt: skip


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    cluster = preset("pod16")
    machines = [m for d in cluster.domains for m in d.machines]
    drivers = {m.name: SimulatedMachine(m, cluster.family) for m in machines}
    made = Controller(MemoryStore(), [cluster], drivers, version="test")
    await made.start()
    yield made
    await made.close()


def test_the_table_has_every_call() -> None:
    assert set(TABLE) | ELSEWHERE == set(METHODS)
    assert not set(TABLE) & ELSEWHERE


@pytest.mark.parametrize("method", sorted(TABLE))
@pytest.mark.parametrize("who", sorted(CALLERS))
async def test_each_caller_may_what_the_table_says(
    controller: Controller, who: str, method: str
) -> None:
    request, allowed = TABLE[method]
    alice = CALLERS["owner"]
    spec = PartitionSpec(name="hers", size=4)
    await controller.create_partition(alice, CreateRequest(spec=spec))
    if isinstance(request, LeaseRequest):
        held = await controller.acquire(alice, AcquireRequest(spec=spec, ttl=60))
        request = LeaseRequest(id=held.lease.id, epoch=held.lease.epoch)
    call = getattr(controller, re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower())
    denied = False
    try:
        await call(CALLERS[who], request)
    except Denied:
        denied = True
    except PodwrightError:
        pass  # allowed to ask, whatever the answer is
    assert denied == (who not in allowed)
