"""The fronts over the real controller: the vendor's calls as its clients make them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import grpc.aio
import pytest

from podwright import wire
from podwright.agents import Fault, SimulatedMachine
from podwright.client import Client, GrpcTransport, UnixTransport
from podwright.controller import Controller
from podwright.fabric import preset
from podwright.server import ListenOptions, Server
from podwright.store import SQLiteStore
from podwright.wire.virm import pb
from tests.server.fakes import Http

CLUSTER = preset("pod16")


@pytest.fixture
def delays_over() -> asyncio.Event:
    """Delays of machines take until it is set."""
    return asyncio.Event()


@pytest.fixture
def machines(delays_over: asyncio.Event) -> dict[str, SimulatedMachine]:
    async def sleep(seconds: float) -> None:
        await delays_over.wait()

    return {
        machine.name: SimulatedMachine(machine, CLUSTER.family, sleep=sleep)
        for domain in CLUSTER.domains
        for machine in domain.machines
    }


@pytest.fixture
async def real(folder: Path, machines: dict[str, SimulatedMachine]) -> AsyncIterator[Server]:
    store = SQLiteStore(folder / "db")
    running = Server(
        Controller(store, [CLUSTER], machines, version="test"),
        ListenOptions(folder / "s"),
        extra_counters=lambda: {"commits": store.commits},
    )
    await running.start()
    yield running
    await running.stop(1)


@pytest.fixture
async def vendor(real: Server, stubs: dict[str, ModuleType]) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{real.port}") as channel:
        yield stubs["virmgrpc"].UserServiceStub(channel)


async def _state(vendor: Any, name: str, *, after: int = pb.PS_PENDING) -> Any:
    """Poll as PopRun does, until the partition leaves a state."""
    async with asyncio.timeout(120):
        while True:
            ask = pb.GetPartitionStatusRequest(partition_id=name)
            status = (await vendor.GetPartitionStatus(ask)).status
            if status.ready_state != after:
                return status
            await asyncio.sleep(0.01)


async def _create(vendor: Any, name: str, **requirements: Any) -> str:
    request = pb.CreatePartitionRequest(requirements={"id": name, **requirements})
    return str((await vendor.CreatePartition(request)).partition_id)


async def _refused(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.details()
    return caught.value.code()


async def test_create_poll_use_remove(vendor: Any) -> None:
    assert await _create(vendor, "p1", size=8, num_gcds=2) == "p1"
    status = await _state(vendor, "p1")
    assert (status.ready_state, status.operation_state) == (pb.PS_ACTIVE, pb.POS_IDLE)
    ask = pb.GetPartitionIpuofConfigRequest(partition_id="p1", gcd_id={"id": 1})
    (gcd,) = (await vendor.GetPartitionIpuofConfig(ask)).config.gcd_configs
    assert [device.routing_id for device in gcd.devices] == [4, 5, 6, 7]
    assert all(device.ip and device.server_port for device in gcd.devices)
    (listed,) = (await vendor.ListPartitions(pb.ListPartitionsRequest())).partitions
    assert sorted(ipu.topology_id for ipu in listed.spec.ipus) == list(range(8))
    await vendor.ResetPartition(pb.ResetPartitionRequest(partition_id="p1"))
    await vendor.RemovePartition(pb.RemovePartitionRequest(partition_id="p1"))
    assert not (await vendor.ListPartitions(pb.ListPartitionsRequest())).partitions


async def test_creation_answers_before_the_hardware_does(
    vendor: Any, machines: dict[str, SimulatedMachine], delays_over: asyncio.Event
) -> None:
    for machine in machines.values():
        machine.delay("configure", 1.0)
    await _create(vendor, "p1", size=4)
    ask = pb.GetPartitionStatusRequest(partition_id="p1")
    status = (await vendor.GetPartitionStatus(ask)).status
    assert (status.ready_state, status.operation_state) == (pb.PS_PENDING, pb.POS_CREATING)
    config = pb.GetPartitionIpuofConfigRequest(partition_id="p1")
    early = await _refused(vendor.GetPartitionIpuofConfig(config))
    assert early is grpc.StatusCode.FAILED_PRECONDITION
    delays_over.set()
    assert (await _state(vendor, "p1")).ready_state == pb.PS_ACTIVE


async def test_a_machine_that_fails_shows_in_the_status(
    vendor: Any, machines: dict[str, SimulatedMachine]
) -> None:
    for machine in machines.values():
        machine.fail_next("configure", 9, Fault.FAIL)
    await _create(vendor, "p1", size=4)
    status = await _state(vendor, "p1")
    assert status.ready_state == pb.PS_ERROR
    assert status.errors


async def test_refusals_of_the_controller_have_their_status(vendor: Any) -> None:
    codes = grpc.StatusCode
    await _create(vendor, "p1", size=16)
    assert await _refused(_create(vendor, "p1", size=4)) is codes.ALREADY_EXISTS
    assert await _refused(_create(vendor, "p2", size=4)) is codes.RESOURCE_EXHAUSTED
    assert await _refused(_create(vendor, "p2", size=3)) is codes.INVALID_ARGUMENT
    assert await _refused(_create(vendor, "", size=4)) is codes.INVALID_ARGUMENT
    assert await _refused(_create(vendor, "p2", size=4, cluster_id="no")) is codes.NOT_FOUND
    gone = pb.RemovePartitionRequest(partition_id="no")
    assert await _refused(vendor.RemovePartition(gone)) is codes.NOT_FOUND
    far = pb.GetPartitionIpuofConfigRequest(partition_id="p1", gcd_id={"id": 1})
    await _state(vendor, "p1")
    assert await _refused(vendor.GetPartitionIpuofConfig(far)) is codes.NOT_FOUND


async def test_the_anonymous_change_only_what_is_anonymous(real: Server, vendor: Any) -> None:
    assert real.socket_path is not None
    local = await Http.connect(real.socket_path)
    spec = wire.PartitionSpec(name="mine", size=4)
    assert (await local.call("CreatePartition", wire.CreateRequest(spec=spec))).owner
    for call in (
        vendor.RemovePartition(pb.RemovePartitionRequest(partition_id="mine", force=True)),
        vendor.ResetPartition(pb.ResetPartitionRequest(partition_id="mine")),
    ):
        assert await _refused(call) is grpc.StatusCode.PERMISSION_DENIED
    await _create(vendor, "theirs", size=4)
    found = await local.call("GetPartition", wire.PartitionName(name="theirs"))
    assert found.owner == "anonymous"
    await vendor.RemovePartition(pb.RemovePartitionRequest(partition_id="theirs"))
    local.close()


async def test_a_leased_partition_names_its_holder(real: Server, vendor: Any) -> None:
    assert real.socket_path is not None
    local = await Http.connect(real.socket_path)
    await _create(vendor, "p1", size=4)
    await _state(vendor, "p1")
    spec = wire.PartitionSpec(name="p1", size=4)
    held = await local.call("Acquire", wire.AcquireRequest(spec=spec, holder="job 7", keep=True))
    call = vendor.RemovePartition(pb.RemovePartitionRequest(partition_id="p1"))
    with pytest.raises(grpc.aio.AioRpcError, match="job 7") as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await local.call("Release", wire.LeaseRequest(id=held.lease.id, epoch=held.lease.epoch))
    await vendor.RemovePartition(pb.RemovePartitionRequest(partition_id="p1"))
    local.close()


async def test_counters_count(real: Server, vendor: Any) -> None:
    assert real.socket_path is not None
    local = await Http.connect(real.socket_path)
    before = (await local.call("GetServerInfo", wire.ServerInfoRequest())).counters
    await _create(vendor, "p1", size=4)
    await vendor.RemovePartition(pb.RemovePartitionRequest(partition_id="p1"))
    after = (await local.call("GetServerInfo", wire.ServerInfoRequest())).counters
    assert after["calls"] - before["calls"] == 3
    assert after["commits"] > before["commits"]
    local.close()


async def test_lists_come_whole_over_every_door(
    real: Server, vendor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers in small pages: nobody's list lacks anything."""
    monkeypatch.setattr("podwright.controller.calls._list_pages.PAGE", 3)
    names = [f"p{n}" for n in range(8)]
    for name in names:
        await _create(vendor, name, size=1)
    listed = await vendor.ListPartitions(pb.ListPartitionsRequest())
    assert [p.id for p in listed.partitions] == names
    attributes = await vendor.ListIPUAttributes(pb.ListIPUAttributesRequest())
    assert sum(len(entry.ipus) for entry in attributes.entries) == 16
    for transport in (UnixTransport(str(real.socket_path)), GrpcTransport("127.0.0.1", real.port)):
        with Client(transport) as client:
            found = await asyncio.to_thread(client.list_partitions)
            assert [p.name for p in found] == names
            assert len(await asyncio.to_thread(client.list_devices)) == 16
            request = wire.ListRequest(page_size=2)
            page = await asyncio.to_thread(client.call, "ListPartitions", request)
            assert isinstance(page, wire.PartitionList)
            assert [p.name for p in page.partitions] == names[:2]
            assert page.next_page_token == "p1"
