"""Calls over gRPC: to a server of ours, and to one that has only the vendor's protocol."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, cast

import grpc
import pytest

from podwright.client import (
    Address,
    Client,
    NamedServer,
    ServerOptions,
    VirmTransport,
    find_server,
)
from podwright.client._connect_tcp import connect_tcp
from podwright.client._grpc_transport import GrpcChannel
from podwright.errors import (
    Held,
    InvalidRequest,
    NotFound,
    PodwrightError,
    ServerBusy,
    TimedOut,
    Unavailable,
)
from podwright.wire import (
    METHODS,
    PartitionInfo,
    PartitionList,
    PartitionSpec,
    ReadyState,
    ServerInfo,
    Value,
    virm,
)
from podwright.wire.messages import decode, encode, error_metadata, method_path
from tests.client.test_unix import P1

_CODES = {code.name: code for code in grpc.StatusCode}


@contextlib.contextmanager
def serving(handlers: dict[str, grpc.RpcMethodHandler]) -> Iterator[Address]:
    """A gRPC server of these methods, by their paths."""

    class Table(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return handlers.get(details.method)

    with futures.ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, handlers=(Table(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield Address("127.0.0.1", port)
        finally:
            server.stop(None).wait()


def ours(answer: Callable[[str, Value, dict[str, str]], Value]) -> dict[str, Any]:
    """podwright.v1, all of it answered by one function of name, request and metadata."""

    def handler(name: str) -> Any:
        def call(request: Value, context: Any) -> Any:
            try:
                return answer(name, request, dict(context.invocation_metadata()))
            except PodwrightError as error:
                context.set_trailing_metadata(error_metadata(error))
                context.abort(_CODES[error.code], error.message)

        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=lambda data: decode(METHODS[name].request, data),
            response_serializer=encode,
        )

    return {method_path(name): handler(name) for name in METHODS}


def test_a_server_of_ours_is_called_in_our_protocol() -> None:
    import msgspec

    info = msgspec.convert(P1, PartitionInfo)

    def answer(name: str, request: Value, metadata: dict[str, str]) -> Value:
        if name == "GetServerInfo":
            return ServerInfo(version="9.9", apis=["podwright.v1"], simulated=True)
        if name == "ListPartitions":
            return PartitionList(partitions=[info])
        raise Held("u2 holds it", operation="reset", would_work="wait", holder="u2")

    with serving(ours(answer)) as address:
        found = find_server(ServerOptions(str(address)), {})
        with found.client as client:
            assert (found.info.version, found.info.simulated) == ("9.9", True)
            assert found.address == str(address)
            assert client.list_partitions() == [info]
            with pytest.raises(Held) as caught:
                client.reset_partition("p1")
    assert caught.value.message == "reset: u2 holds it. Wait."
    assert caught.value.data == {"holder": "u2"}


def test_of_several_addresses_the_first_that_answers_is_called() -> None:
    def answer(name: str, request: Value, metadata: dict[str, str]) -> Value:
        return ServerInfo(version="second")

    with serving(ours(answer)) as address:
        found = find_server(ServerOptions(f"127.0.0.1:1,{address}"), {})
        found.client.close()
    assert found.info.version == "second"


def test_a_token_travels_as_metadata() -> None:
    from podwright.client import GrpcTransport

    seen: list[dict[str, str]] = []

    def answer(name: str, request: Value, metadata: dict[str, str]) -> Value:
        seen.append(metadata)
        return ServerInfo(version="1")

    with serving(ours(answer)) as address, Client(GrpcTransport(*address, "t0k3n")) as client:
        client.get_server_info()
        with client.another() as other:
            client.close()
            other.get_server_info()
    assert [one["authorization"] for one in seen] == ["Bearer t0k3n"] * 2


@pytest.mark.parametrize("vendors", [False, True])
def test_a_busy_server_is_called_again_after_the_time_that_it_named(vendors: bool) -> None:
    """This holds in both protocols, and only the second of the two calls has an effect."""
    refusals, pauses = [ServerBusy.of(2), ServerBusy.of(3)], list[float]()

    def answer(data: bytes, context: Any) -> bytes:
        if refusals:
            refusal = refusals.pop(0)
            context.set_trailing_metadata(error_metadata(refusal))
            context.abort(grpc.StatusCode.UNAVAILABLE, refusal.message)
        return data

    path = virm.VIRM_METHODS["GetVersion"].path if vendors else method_path("ListPartitions")
    with serving({path: grpc.unary_unary_rpc_method_handler(answer)}) as address:
        channel = GrpcChannel(address, sleep=pauses.append)
        assert channel.call(path, b"x", 60.0, bytes, bytes) == b"x"
        channel.close()
    assert 2.0 <= pauses[0] <= 3.0 <= pauses[1] <= 4.5


def test_a_busy_server_is_not_waited_for_beyond_the_timeout() -> None:
    pauses: list[float] = []

    def answer(name: str, request: Value, metadata: dict[str, str]) -> Value:
        raise ServerBusy.of(60)

    with serving(ours(answer)) as address:
        channel = GrpcChannel(address, sleep=pauses.append)
        with pytest.raises(ServerBusy, match=r"the server is busy, try again in 60 s"):
            channel.call(method_path("ListPartitions"), b"", 30.0, bytes, bytes)
        channel.close()
    assert not pauses


def test_a_server_that_cancels_calls_as_it_ends_is_gone() -> None:
    """gRPC's own end says CANCELLED: other servers than ours, and older ones, end by it."""
    from podwright.client import GrpcTransport

    def cancel(data: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")
        raise AssertionError

    handler = grpc.unary_unary_rpc_method_handler(cancel)
    with (
        serving({method_path("GetServerInfo"): handler}) as address,
        Client(GrpcTransport(*address)) as client,
        pytest.raises(Unavailable, match="unable to connect to VIRM/V-IPU Controller at 127"),
    ):
        client.get_server_info()


def test_a_hanging_server_times_out_and_a_missing_one_is_unavailable() -> None:
    import threading

    from podwright.client import GrpcTransport

    go_on = threading.Event()

    def answer(name: str, request: Value, metadata: dict[str, str]) -> Value:
        go_on.wait(300)
        return ServerInfo(version="1")

    with serving(ours(answer)) as address, Client(GrpcTransport(*address), timeout=0.2) as client:
        with pytest.raises(TimedOut, match=r"gave no answer within 0\.2 s"):
            client.get_server_info()
        go_on.set()
    with (
        Client(GrpcTransport(*address), timeout=120) as client,
        pytest.raises(Unavailable, match="unable to connect to VIRM/V-IPU Controller at 127"),
    ):
        client.get_server_info()


class Controller:
    """The vendor's controller in small: partitions that take `settling` looks to become ready."""

    def __init__(self, settling: int = 2, final: int = virm.pb.PS_ACTIVE) -> None:
        self.settling = settling
        self.final = final
        self.partitions: dict[str, Any] = {}
        self.looks: dict[str, int] = {}
        self.calls: list[tuple[str, Any]] = []

    def handlers(self) -> dict[str, Any]:
        def handler(name: str, call: virm.VirmMethod) -> Any:
            def answer(request: Any, context: Any) -> Any:
                self.calls.append((name, request))
                return getattr(self, name)(request, context, call.reply)

            return grpc.unary_unary_rpc_method_handler(
                answer,
                request_deserializer=call.request.FromString,
                response_serializer=call.reply.SerializeToString,
            )

        return {call.path: handler(name, call) for name, call in virm.VIRM_METHODS.items()}

    def GetVersion(self, request: Any, context: Any, reply: Any) -> Any:
        return reply(version="1.18.0")

    def ListPartitions(self, request: Any, context: Any, reply: Any) -> Any:
        return reply(partitions=self.partitions.values())

    def ListIPUAttributes(self, request: Any, context: Any, reply: Any) -> Any:
        answer = reply()
        answer.entries.add(agent="ag1").ipus[2].attributes["clock"] = "1330MHz"
        return answer

    def CreatePartition(self, request: Any, context: Any, reply: Any) -> Any:
        need = request.requirements
        if need.id in self.partitions:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"partition {need.id} exists")
        ipus = [{"topology_id": n, "routing_id": n} for n in range(need.size)]
        self.partitions[need.id] = virm.pb.Partition(
            id=need.id,
            ready_state=virm.pb.PS_PENDING,
            spec={"cluster_id": "c1", "num_gcds": need.num_gcds or 1, "ipus": ipus},
        )
        self.looks[need.id] = 0
        return reply(partition_id=need.id)

    def ResetPartition(self, request: Any, context: Any, reply: Any) -> Any:
        self.looks[request.partition_id] = 0
        return reply()

    def RemovePartition(self, request: Any, context: Any, reply: Any) -> Any:
        del self.partitions[request.partition_id]
        return reply()

    def GetPartitionStatus(self, request: Any, context: Any, reply: Any) -> Any:
        name = request.partition_id
        if name not in self.partitions:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no partition {name}")
        self.looks[name] += 1
        done = self.looks[name] > self.settling
        state = self.final if done else virm.pb.PS_PENDING
        self.partitions[name].ready_state = state
        operation = virm.pb.POS_IDLE if done else virm.pb.POS_CREATING
        errors = ["ag1 is dead"] if state == virm.pb.PS_ERROR else []
        return reply(
            status={
                "partition_id": name,
                "ready_state": state,
                "operation_state": operation,
                "errors": errors,
            }
        )

    def GetPartitionIpuofConfig(self, request: Any, context: Any, reply: Any) -> Any:
        spec = self.partitions[request.partition_id].spec
        devices = [{"ip": "10.1.0.1", "server_port": 8888, "routing_id": 0, "device_id": 3}]
        return reply(config={"gcd_configs": [{"devices": devices}] * spec.num_gcds})


@pytest.fixture
def vendor() -> Iterator[tuple[Controller, Client]]:
    controller = Controller()
    with serving(controller.handlers()) as address:
        transport, info = connect_tcp(address, 20)
        assert isinstance(transport, VirmTransport)
        assert (info.version, info.apis, info.port) == ("1.18.0", ["virmgrpc"], address.port)
        with Client(transport, timeout=120) as client:
            controller.calls.clear()
            yield controller, client


def test_a_partition_lives_and_goes_with_the_vendors_controller(
    vendor: tuple[Controller, Client],
) -> None:
    controller, client = vendor
    made = client.create_partition(PartitionSpec(name="p1", size=2, reconfigurable=True))
    assert (made.name, made.ready_state, made.size) == ("p1", ReadyState.ACTIVE, 2)
    assert made.gcds[0][0].ip == "10.1.0.1"
    assert made.gcds[0][0].index == 3
    name, request = controller.calls[0]
    assert name == "CreatePartition"
    assert request.requirements.reconfigurable
    with client.another() as other:
        assert [p.name for p in other.list_partitions()] == ["p1"]
    assert client.list_partitions(cluster="c2") == []
    assert client.reset_partition("p1").ready_state is ReadyState.ACTIVE
    client.remove_partition("p1")
    assert client.list_partitions() == []
    with pytest.raises(NotFound, match="there is no partition 'p1'"):
        client.get_partition("p1")


def test_a_partition_in_error_comes_back_with_its_errors() -> None:
    controller = Controller(final=virm.pb.PS_ERROR)
    with serving(controller.handlers()) as address:
        transport, _ = connect_tcp(address, 20)
        with Client(transport, timeout=120) as client:
            made = client.create_partition(PartitionSpec(name="p1", size=2))
    assert (made.ready_state, made.errors) == (ReadyState.ERROR, ["ag1 is dead"])


def test_the_vendors_refusals_keep_their_codes(vendor: tuple[Controller, Client]) -> None:
    _, client = vendor
    client.create_partition(PartitionSpec(name="p1", size=2))
    with pytest.raises(PodwrightError, match=r"partition p1 exists\.") as caught:
        client.create_partition(PartitionSpec(name="p1", size=2))
    assert caught.value.code == "ALREADY_EXISTS"


def test_attributes_come_from_the_vendors_controller(vendor: tuple[Controller, Client]) -> None:
    _, client = vendor
    (device,) = client.list_devices()
    assert (device.device.machine, device.device.index) == ("ag1", 2)
    assert device.attributes == {"clock": "1330MHz"}


def test_what_the_vendors_protocol_lacks_is_refused_by_name(
    vendor: tuple[Controller, Client],
) -> None:
    _, client = vendor
    with pytest.raises(InvalidRequest, match="user protocol only, which has no ListClusters"):
        client.list_clusters()
    with pytest.raises(InvalidRequest, match="has no Renew"):
        client.renew("l1", 1)


def test_waiting_for_the_vendors_controller_ends_in_time() -> None:
    controller = Controller(settling=10**6)
    with serving(controller.handlers()) as address:
        transport, _ = connect_tcp(address, 20)
        with Client(transport, timeout=3) as client:  # the calls themselves take no time
            with pytest.raises(TimedOut, match="not done yet"):
                client.create_partition(PartitionSpec(name="p1", size=2))
            info = client.create_partition(PartitionSpec(name="p2", size=2), wait=False)
    assert info.ready_state is ReadyState.PENDING


class FakeVirm:
    """A controller that never finishes."""

    where = "pod:8090"
    server = NamedServer(where)

    def call(self, path: str, message: Any, timeout: float, encode: Any, decode: Any) -> Any:
        """Its answer, all defaults: PENDING, and no operation state that is an end."""
        reply = decode(b"")
        if path.endswith("GetPartitionStatus"):
            reply.status.ready_state = virm.pb.PS_PENDING
        return reply

    def close(self) -> None:
        """Nothing to close."""


def test_a_last_poll_that_is_cut_short_says_what_is_late() -> None:
    """On a busy machine the last poll may have 0.04 s left: the controller did answer before."""

    class Slow(FakeVirm):
        polls = 0

        def call(self, path: str, *rest: Any) -> Any:
            if path.endswith("GetPartitionStatus"):
                self.polls += 1
                if self.polls > 1:
                    raise TimedOut("the server at pod:8090 gave no answer within 0.04 s")
            return super().call(path, *rest)

    channel = Slow()
    client = Client(VirmTransport(cast(Any, channel), sleep=lambda seconds: None), timeout=60)
    with pytest.raises(TimedOut, match="the controller at pod:8090 is not done yet"):
        client.create_partition(PartitionSpec(name="p1", size=2))
    assert channel.polls == 2
