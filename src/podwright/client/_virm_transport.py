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

from podwright.client._grpc_transport import GrpcChannel, UnsupportedCall
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

    def __init__(self, channel: GrpcChannel, sleep: Callable[[float], None] = time.sleep) -> None:
        self._channel = channel
        self._pause = sleep
        self.where = channel.where
        self.server = channel.server

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        """Make one of Podwright's calls, as one or several of the vendor's."""
        return _VirmCall(self._channel, self._pause, time.monotonic() + timeout).do(method, request)

    def another(self) -> VirmTransport:
        """Return a transport to the same server, over a connection of its own."""
        return VirmTransport(self._channel.another(), self._pause)

    def close(self) -> None:
        """Close the connection for good."""
        self._channel.close()


class _VirmCall:
    """One call of Podwright's, and its deadline."""

    def __init__(
        self, channel: GrpcChannel, sleep: Callable[[float], None], deadline: float
    ) -> None:
        self._channel = channel
        self._pause = sleep
        self._deadline = deadline

    def do(self, method: Method, request: Value) -> Value:
        match method.name, request:
            case "GetServerInfo", _:
                return self._server_info()
            case "ListPartitions", ListRequest():
                return PartitionList(partitions=self._list_partitions(request))
            case "ListDevices", ListRequest() if not request.cluster and not request.allocation:
                return DeviceList(devices=self._list_devices())
            case "GetPartition", PartitionName():
                return self._get_partition(request.name)
            case "CreatePartition", CreateRequest():
                self._ask("CreatePartition", virm.create_message(request))
                return self._settled_partition(request.spec.name, request.wait)
            case "ResetPartition", ResetRequest():
                self._reset_partition(request)
                return self._settled_partition(request.name, request.wait)
            case "RemovePartition", RemoveRequest():
                self._remove(request)
                return Empty()
        raise UnsupportedCall(
            f"the controller at {self._channel.where} speaks Graphcore's user protocol only, "
            f"which has no {method.name}",
            would_work="partitions can be created, listed, reset and removed, and ipu-attrs listed",
        )

    def _ask(self, method_name: str, request: Any = None) -> Any:
        method = virm.VIRM_METHODS[method_name]
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise self._timeout_error(method_name)
        message = method.request() if request is None else request
        return self._channel.call(
            method.path,
            message,
            remaining,
            method.request.SerializeToString,
            method.reply.FromString,
        )

    def _timeout_error(self, operation: str) -> TimedOut:
        return TimedOut(
            f"the controller at {self._channel.where} is not done yet",
            operation=operation,
            would_work="it goes on by itself; `vipu list partitions` shows how far it is",
        )

    def _server_info(self) -> ServerInfo:
        host, _, port = self._channel.where.rpartition(":")
        version = self._ask("GetVersion").version
        return ServerInfo(version=version, apis=["virmgrpc"], host=host.strip("[]"), port=int(port))

    def _list_partitions(self, request: ListRequest) -> list[PartitionInfo]:
        message = virm.pb.ListPartitionsRequest(allocation_id=request.allocation)
        partitions = [
            virm.partition_info(partition_message)
            for partition_message in self._ask("ListPartitions", message).partitions
        ]
        return [partition for partition in partitions if request.cluster in ("", partition.cluster)]

    def _list_devices(self) -> list[DeviceInfo]:
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

    def _partition_status(self, partition_name: str) -> Any:
        message = virm.pb.GetPartitionStatusRequest(partition_id=partition_name)
        return self._ask("GetPartitionStatus", message).status

    def _get_partition(self, partition_name: str) -> PartitionInfo:
        all_partitions = self._list_partitions(ListRequest())
        partition = next(
            (candidate for candidate in all_partitions if candidate.name == partition_name), None
        )
        if partition is None:
            known_names = ", ".join(candidate.name for candidate in all_partitions) or "none"
            raise NotFound(
                f"there is no partition {partition_name!r}", would_work=f"there are: {known_names}"
            )
        partition = virm.with_status(partition, self._partition_status(partition_name))
        if partition.ready_state is not ReadyState.ACTIVE:
            return partition
        message = virm.pb.GetPartitionIpuofConfigRequest(partition_id=partition_name)
        return _with_addresses(partition, self._ask("GetPartitionIpuofConfig", message).config)

    def _reset_partition(self, request: ResetRequest) -> None:
        message = virm.pb.ResetPartitionRequest(
            partition_id=request.name, relocatable=request.relocatable
        )
        self._ask("ResetPartition", message)

    def _remove(self, request: RemoveRequest) -> None:
        message = virm.pb.RemovePartitionRequest(partition_id=request.name, force=request.force)
        self._ask("RemovePartition", message)
        if request.wait:
            self._poll_until(lambda: self._missing_partition(request.name), "RemovePartition")

    def _missing_partition(self, partition_name: str) -> bool:
        try:
            return bool(self._partition_status(partition_name).ready_state == virm.pb.PS_REMOVED)
        except NotFound:
            return True

    def _settled_partition(self, partition_name: str, wait: bool) -> PartitionInfo:
        def settled() -> bool:
            status = self._partition_status(partition_name)
            states = virm.pb.POS_IDLE, virm.pb.POS_FAILED
            return status.operation_state in states and status.ready_state != virm.pb.PS_PENDING

        if wait:
            self._poll_until(settled, partition_name)
        return self._get_partition(partition_name)

    def _poll_until(self, is_done: Callable[[], bool], operation: str) -> None:
        """Poll until `is_done` is true.

        If the deadline cuts a poll short, the error says what is not done yet, since then the
        partition is late and not the controller's answer.
        """
        pause_seconds = _FIRST_PAUSE
        while True:
            try:
                if is_done():
                    return
            except TimedOut:
                raise self._timeout_error(operation) from None
            if time.monotonic() + pause_seconds > self._deadline:
                raise self._timeout_error(operation)
            self._pause(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE)


def _with_addresses(partition: PartitionInfo, ipuof_config: Any) -> PartitionInfo:
    """Return a partition with its devices' addresses, from its IPUoF configuration."""
    known_devices = [device for gcd in partition.gcds for device in gcd]
    gcds = []
    for gcd in ipuof_config.gcd_configs:
        gcds.append(
            [
                DeviceRef(
                    domain=known_devices[device_config.routing_id].domain
                    if device_config.routing_id < len(known_devices)
                    else 0,
                    offset=known_devices[device_config.routing_id].offset
                    if device_config.routing_id < len(known_devices)
                    else 0,
                    index=device_config.device_id,
                    ip=device_config.ip,
                    server_port=device_config.server_port,
                    rdma_port=device_config.rdma_port,
                    arch_id=device_config.ipu_arch_id,
                    chip_id=device_config.chip_id,
                )
                for device_config in gcd.devices
            ]
        )
    return msgspec.structs.replace(partition, gcds=gcds) if gcds else partition
