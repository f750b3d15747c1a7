"""Podwright's calls in the vendor's protocol, for commands that use a Graphcore controller.

That protocol (V-IPU 1.18, `virmgrpc`) has partitions and devices' attributes, but no clusters,
allocations or leases. A call that it cannot express is refused by name. Its calls that change
something answer at once. A caller that waits asks for the status until it settles, as PopRun does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from podwright.client._grpc_transport import GrpcChannel, Unsupported
from podwright.errors import NotFound, TimedOut
from podwright.wire import (
    CreateRequest,
    DeviceInfo,
    DeviceList,
    DeviceRef,
    Empty,
    ListRequest,
    Method,
    PartitionInfo,
    PartitionList,
    PartitionName,
    ReadyState,
    RemoveRequest,
    ResetRequest,
    ServerInfo,
    Value,
    virm,
)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class VirmTransport:
    """Calls `virmgrpc` over a channel that is already open."""

    #: The protocol has no ids for requests, so a call that changes something is never repeated.
    remembers = False

    def __init__(self, channel: GrpcChannel, pause: Callable[[float], None] = time.sleep) -> None:
        self._channel = channel
        self._pause = pause
        self.where = channel.where

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        """Make one of Podwright's calls, as one or several of the vendor's."""
        return _Call(self._channel, self._pause, time.monotonic() + timeout).do(method, request)

    def another(self) -> VirmTransport:
        """Return a transport to the same server, over a connection of its own."""
        return VirmTransport(self._channel.another(), self._pause)

    def close(self) -> None:
        """Close the connection for good."""
        self._channel.close()


class _Call:
    """One call of Podwright's, and its deadline."""

    def __init__(
        self, channel: GrpcChannel, pause: Callable[[float], None], deadline: float
    ) -> None:
        self._channel = channel
        self._pause = pause
        self._deadline = deadline

    def do(self, method: Method, request: Value) -> Value:
        match method.name, request:
            case "GetServerInfo", _:
                return self._info()
            case "ListPartitions", ListRequest():
                return PartitionList(partitions=self._partitions(request))
            case "ListDevices", ListRequest() if not request.cluster and not request.allocation:
                return DeviceList(devices=self._devices())
            case "GetPartition", PartitionName():
                return self._partition(request.name)
            case "CreatePartition", CreateRequest():
                self._ask("CreatePartition", virm.create_message(request))
                return self._settled(request.spec.name, request.wait)
            case "ResetPartition", ResetRequest():
                self._reset(request)
                return self._settled(request.name, request.wait)
            case "RemovePartition", RemoveRequest():
                self._remove(request)
                return Empty()
        raise Unsupported(
            f"the controller at {self._channel.where} speaks Graphcore's user protocol only, "
            f"which has no {method.name}",
            would_work="partitions can be created, listed, reset and removed, and ipu-attrs listed",
        )

    def _ask(self, name: str, request: Any = None) -> Any:
        call = virm.VIRM_METHODS[name]
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._late(name)
        message = call.request() if request is None else request
        return self._channel.call(
            call.path, message, left, call.request.SerializeToString, call.reply.FromString
        )

    def _late(self, name: str) -> TimedOut:
        return TimedOut(
            f"the controller at {self._channel.where} is not done yet",
            operation=name,
            would_work="it goes on by itself; `vipu list partitions` shows how far it is",
        )

    def _info(self) -> ServerInfo:
        host, _, port = self._channel.where.rpartition(":")
        version = self._ask("GetVersion").version
        return ServerInfo(version=version, apis=["virmgrpc"], host=host.strip("[]"), port=int(port))

    def _partitions(self, request: ListRequest) -> list[PartitionInfo]:
        message = virm.pb.ListPartitionsRequest(allocation_id=request.allocation)
        partitions = [
            virm.partition_info(m) for m in self._ask("ListPartitions", message).partitions
        ]
        return [p for p in partitions if request.cluster in ("", p.cluster)]

    def _devices(self) -> list[DeviceInfo]:
        return [
            DeviceInfo(
                cluster="",
                state="UNKNOWN",
                device=DeviceRef(domain=0, offset=0, machine=entry.agent, index=index),
                attributes=dict(entry.ipus[index].attributes),
            )
            for entry in self._ask("ListIPUAttributes").entries
            for index in sorted(entry.ipus)
        ]

    def _status(self, name: str) -> Any:
        message = virm.pb.GetPartitionStatusRequest(partition_id=name)
        return self._ask("GetPartitionStatus", message).status

    def _partition(self, name: str) -> PartitionInfo:
        everything = self._partitions(ListRequest())
        partition = next((p for p in everything if p.name == name), None)
        if partition is None:
            names = ", ".join(p.name for p in everything) or "none"
            raise NotFound(f"there is no partition {name!r}", would_work=f"there are: {names}")
        partition = virm.with_status(partition, self._status(name))
        if partition.ready_state is not ReadyState.ACTIVE:
            return partition
        message = virm.pb.GetPartitionIpuofConfigRequest(partition_id=name)
        return _with_addresses(partition, self._ask("GetPartitionIpuofConfig", message).config)

    def _reset(self, request: ResetRequest) -> None:
        message = virm.pb.ResetPartitionRequest(
            partition_id=request.name, relocatable=request.relocatable
        )
        self._ask("ResetPartition", message)

    def _remove(self, request: RemoveRequest) -> None:
        message = virm.pb.RemovePartitionRequest(partition_id=request.name, force=request.force)
        self._ask("RemovePartition", message)
        if request.wait:
            self._until(lambda: self._missing_partition(request.name), "RemovePartition")

    def _missing_partition(self, name: str) -> bool:
        try:
            return bool(self._status(name).ready_state == virm.pb.PS_REMOVED)
        except NotFound:
            return True

    def _settled(self, name: str, wait: bool) -> PartitionInfo:
        def settled() -> bool:
            status = self._status(name)
            done = virm.pb.POS_IDLE, virm.pb.POS_FAILED
            return status.operation_state in done and status.ready_state != virm.pb.PS_PENDING

        if wait:
            self._until(settled, name)
        return self._partition(name)

    def _until(self, done: Callable[[], bool], state: str) -> None:
        """Poll until `done` is true.

        If the deadline cuts a poll short, the error says what is not done yet, since then the
        partition is late and not the controller's answer.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                if done():
                    return
            except TimedOut:
                raise self._late(state) from None
            if time.monotonic() + pause > self._deadline:
                raise self._late(state)
            self._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _with_addresses(info: PartitionInfo, config: Any) -> PartitionInfo:
    """Return a partition with its devices' addresses, from its IPUoF configuration."""
    places = [device for gcd in info.gcds for device in gcd]
    gcds = []
    for gcd in config.gcd_configs:
        gcds.append(
            [
                DeviceRef(
                    domain=places[d.routing_id].domain if d.routing_id < len(places) else 0,
                    offset=places[d.routing_id].offset if d.routing_id < len(places) else 0,
                    index=d.device_id,
                    ip=d.ip,
                    server_port=d.server_port,
                    rdma_port=d.rdma_port,
                    arch_id=d.ipu_arch_id,
                    chip_id=d.chip_id,
                )
                for d in gcd.devices
            ]
        )
    return msgspec.structs.replace(info, gcds=gcds) if gcds else info
