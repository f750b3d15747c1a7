"""gRPC: clients from generated stubs walk every call and status; hostile bytes change nothing."""

from __future__ import annotations

import asyncio
import json
import random
from types import ModuleType
from typing import Any

import grpc
import grpc.aio
import pytest

from podwright import wire
from podwright.server import Server
from podwright.wire import messages, virm
from podwright.wire._generated import podwright_v1_pb2 as v1
from podwright.wire.virm import pb
from tests.server.fakes import FakeController
from tests.server.test_http import REFUSALS

Stubs = dict[str, ModuleType]


@pytest.fixture
def vendor(stubs: Stubs, channel: grpc.aio.Channel) -> Any:
    return stubs["virmgrpc"].UserServiceStub(channel)


@pytest.fixture
def ours(stubs: Stubs, channel: grpc.aio.Channel) -> Any:
    return stubs["podwright_v1"].PodwrightStub(channel)


async def test_a_vendor_client_walks_every_call(
    vendor: Any, stubs: Stubs, channel: grpc.aio.Channel, controller: FakeController
) -> None:
    version = stubs["virmgrpc"].VersionServiceStub(channel)
    assert (await version.GetVersion(pb.VersionRequest())).version

    made = await vendor.CreatePartition(
        pb.CreatePartitionRequest(
            requirements={"id": "p1", "size": 2, "num_gcds": 2, "allocation_id": "a1"},
            disable_auto_reset=True,
        )
    )
    assert made.partition_id == "p1"
    asked = controller.requests[-1]
    assert isinstance(asked, wire.CreateRequest)
    assert not asked.wait
    assert not asked.spec.auto_reset

    (listed,) = (await vendor.ListPartitions(pb.ListPartitionsRequest())).partitions
    assert listed.id == "p1"
    assert listed.ready_state == pb.PS_ACTIVE
    assert listed.spec.num_gcds == 2
    for allocation, count in (("a1", 1), ("other", 0)):
        request = pb.ListPartitionsRequest(allocation_id=allocation)
        assert len((await vendor.ListPartitions(request)).partitions) == count

    ask = pb.GetPartitionStatusRequest(partition_id="p1")
    status = (await vendor.GetPartitionStatus(ask)).status
    assert (status.partition_id, status.operation_state) == ("p1", pb.POS_IDLE)

    config = pb.GetPartitionIpuofConfigRequest(partition_id="p1")
    every = (await vendor.GetPartitionIpuofConfig(config)).config
    assert len(every.gcd_configs) == 2
    config.gcd_id.id = 0
    first = (await vendor.GetPartitionIpuofConfig(config)).config
    assert [gcd.attributes["GCD Id"] for gcd in first.gcd_configs] == ["0"]

    attributes = await vendor.ListIPUAttributes(pb.ListIPUAttributesRequest())
    assert [entry.agent for entry in attributes.entries] == ["ag0", "ag1"]
    chosen = await vendor.ListIPUAttributes(pb.ListIPUAttributesRequest(agents=["ag1"]))
    assert chosen.entries[0].ipus[3].attributes["clock"] == "7"

    await vendor.ResetPartition(pb.ResetPartitionRequest(partition_id="p1", relocatable=True))
    await vendor.RemovePartition(pb.RemovePartitionRequest(partition_id="p1", force=True))
    assert controller.requests[-2:] == [
        wire.ResetRequest(name="p1", relocatable=True),
        wire.RemoveRequest(name="p1", force=True),
    ]
    assert not controller.partitions


@pytest.mark.parametrize("kind", REFUSALS)
async def test_every_refusal_has_its_status_and_reason(
    vendor: Any, ours: Any, controller: FakeController, kind: type[wire.PodwrightError]
) -> None:
    refusal = kind("a problem", operation="it", would_work="that", holder="älice")
    controller.fail = {"remove_partition": refusal, "renew": refusal}
    for call in (
        vendor.RemovePartition(pb.RemovePartitionRequest(partition_id="p")),
        ours.Renew(v1.LeaseRequest(id="l", epoch=1)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        error = caught.value
        assert error.code() is grpc.StatusCode[kind.code]
        assert error.details() == "it: a problem. That."
        body = dict(error.trailing_metadata())[messages.ERROR_KEY]
        assert json.loads(body) == refusal.to_json()


async def test_refusals_that_the_front_itself_makes(vendor: Any) -> None:
    for call, code, says in (
        (
            vendor.GetPartitionStatus(pb.GetPartitionStatusRequest(partition_id="no")),
            "NOT_FOUND",
            "there is no partition no",
        ),
        (
            vendor.ListIPUAttributes(pb.ListIPUAttributesRequest(agents=["no"])),
            "NOT_FOUND",
            "there is no agent no",
        ),
        (
            vendor.CreatePartition(pb.CreatePartitionRequest(requirements={"sync_type": 9})),
            "INVALID_ARGUMENT",
            "sync_type 9 is not known",
        ),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=says) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode[code]


async def test_a_long_refusal_reaches_its_caller(vendor: Any, controller: FakeController) -> None:
    controller.fail["remove_partition"] = wire.NoCapacity("x" * 50_000, free=[1] * 9000)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await vendor.RemovePartition(pb.RemovePartitionRequest(partition_id="p"))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_fault_of_ours_says_nothing_of_its_inside(
    vendor: Any, controller: FakeController, caplog: pytest.LogCaptureFixture
) -> None:
    controller.fail["remove_partition"] = ZeroDivisionError("secret")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await vendor.RemovePartition(pb.RemovePartitionRequest(partition_id="p"))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(caught.value)
    assert "secret" in caplog.text


async def test_every_call_of_podwright_v1(ours: Any, controller: FakeController) -> None:
    spec = {"name": "p1", "size": 1}
    walk: dict[str, Any] = {
        "GetServerInfo": v1.ServerInfoRequest(),
        "ListClusters": v1.ListRequest(),
        "ListAllocations": v1.ListRequest(),
        "ListDevices": v1.ListRequest(),
        "ListPartitions": v1.ListRequest(),
        "ListLeases": v1.ListRequest(),
        "CreatePartition": v1.CreateRequest(spec=spec),
        "GetPartition": v1.PartitionName(name="p1"),
        "ResetPartition": v1.ResetRequest(name="p1"),
        "RemovePartition": v1.RemoveRequest(name="p1"),
        "Acquire": v1.AcquireRequest(spec=spec),
        "Renew": v1.LeaseRequest(id="l1", epoch=2**40),
        "Release": v1.LeaseRequest(id="l1", epoch=1),
    }
    replies = {name: await getattr(ours, name)(request) for name, request in walk.items()}
    assert set(walk) <= set(wire.METHODS)
    assert replies["GetServerInfo"].caller == "anonymous"
    assert replies["GetServerInfo"].role == "reader"
    assert replies["GetPartition"].ready_state == v1.READY_STATE_ACTIVE
    assert replies["GetPartition"].operation_state == v1.OPERATION_STATE_IDLE
    assert replies["Acquire"].lease.ttl == 300.0
    assert replies["Renew"].epoch == 2**40
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ours.IssueToken(v1.TokenRequest())
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    del controller


async def test_both_fronts_say_the_same(ours: Any, server: Server, http: Any) -> None:
    for name in ("ListClusters", "ListDevices", "ListPartitions"):
        method = wire.METHODS[name]
        message = await getattr(ours, name)(v1.ListRequest())
        value = messages.decode(method.reply, message.SerializeToString())
        assert value == await http.call(name, wire.ListRequest())
    del server


async def test_an_unknown_call_is_unimplemented(channel: grpc.aio.Channel) -> None:
    for path in ("/virmgrpc.UserService/ListAllocations", "/podwright.v1.Podwright/Nothing", "/x"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(path)(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_thousands_of_mutated_messages(
    channel: grpc.aio.Channel, controller: FakeController
) -> None:
    rng = random.Random(4711)
    paths = {
        virm.VIRM_METHODS["CreatePartition"].path: pb.CreatePartitionRequest(
            requirements={"id": "p1", "size": 4, "ipus": [{"routing_id": 1}], "cluster_id": "c"}
        ).SerializeToString(),
        virm.VIRM_METHODS["GetPartitionIpuofConfig"].path: pb.GetPartitionIpuofConfigRequest(
            partition_id="p1", gcd_id={"id": 1}
        ).SerializeToString(),
        messages.method_path("Acquire"): messages.encode(
            wire.AcquireRequest(spec=wire.PartitionSpec(name="p", size=4, devices=[(0, 1)]))
        ),
    }

    async def one(path: str, data: bytes) -> grpc.StatusCode:
        try:
            await channel.unary_unary(path)(data)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    seen: set[grpc.StatusCode] = set()
    for _ in range(40):
        batch = []
        for path, good in paths.items():
            for _ in range(20):
                data = bytearray(good)
                for _ in range(rng.randint(1, 4)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                batch.append(one(path, bytes(data)))
        seen.update(await asyncio.gather(*batch))
        for kept in (controller.partitions, controller.requests, controller.callers):
            kept.clear()
    assert grpc.StatusCode.INVALID_ARGUMENT in seen
    assert grpc.StatusCode.OK in seen
    assert not seen & {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}


async def test_a_message_too_big_is_refused(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(messages.method_path("ListLeases"))(b"\0" * 2**21)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_bytes_that_are_no_http2(server: Server, ours: Any) -> None:
    rng = random.Random(7)
    for _ in range(100):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if rng.random() < 0.5 else b""
        writer.write(start + rng.randbytes(rng.randint(1, 300)))
        writer.close()
        del reader
    assert (await ours.GetServerInfo(v1.ServerInfoRequest())).port == server.port
