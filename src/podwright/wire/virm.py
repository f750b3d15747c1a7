"""The vendor's protocol (`virmgrpc.proto`) and Podwright's values: the only module that knows both.

It serves the server's front, and the client that calls a Graphcore controller. The vendor's enums'
UNDEFINED is Podwright's DEFAULT. An unknown number is refused in a request; in an answer it is read
as the member that promises least.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from podwright.errors import InvalidRequest
from podwright.wire._generated import virmgrpc_pb2 as pb
from podwright.wire._ipuof import ipuof_gcds
from podwright.wire._method import CREATORS, EVERYBODY, THEIR_OWN, WAITERS, Rights
from podwright.wire._values import (
    CreateRequest,
    DeviceInfo,
    DeviceRef,
    GatewayRouting,
    OperationState,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    Routing,
    SyncType,
)

__all__ = [
    "GATEWAY_ROUTING",
    "OPERATION_STATE",
    "READY_STATE",
    "ROUTING",
    "SYNC_TYPE",
    "VIRM_METHODS",
    "VirmMethod",
    "attribute_entries",
    "config_message",
    "create_message",
    "create_request",
    "partition_info",
    "partition_message",
    "pb",
    "status_message",
    "with_status",
]

ROUTING = {
    Routing.DEFAULT: pb.IRT_UNDEFINED,
    Routing.DNC: pb.IRT_DNC,
    Routing.SWNC: pb.IRT_SWNC,
    Routing.BTNC: pb.IRT_BTNC,
    Routing.RINGSWNC: pb.IRT_RINGSWNC,
}
GATEWAY_ROUTING = {
    GatewayRouting.DEFAULT: pb.GRT_UNDEFINED,
    GatewayRouting.RING: pb.GRT_RING,
    GatewayRouting.SWRING: pb.GRT_SWRING,
}
SYNC_TYPE = {
    SyncType.DEFAULT: pb.ST_UNDEFINED,
    SyncType.GS2_DEFAULT: pb.ST_GS2_DEFAULT,
    SyncType.GS2_INDEPENDENT_RAILS: pb.ST_GS2_INDEPENDENT_RAILS,
    SyncType.POD_NATIVE_DEFAULT: pb.ST_POD_NATIVE_DEFAULT,
    SyncType.POD_NATIVE_REPLICATED_PIPELINE: pb.ST_POD_NATIVE_REPLICATED_PIPELINE,
}
READY_STATE = {
    ReadyState.PENDING: pb.PS_PENDING,
    ReadyState.ACTIVE: pb.PS_ACTIVE,
    ReadyState.REMOVED: pb.PS_REMOVED,
    ReadyState.ERROR: pb.PS_ERROR,
}
OPERATION_STATE = {
    OperationState.IDLE: pb.POS_IDLE,
    OperationState.CREATING: pb.POS_CREATING,
    OperationState.REMOVING: pb.POS_REMOVING,
    OperationState.RESETTING: pb.POS_RESETTING,
    OperationState.FAILED: pb.POS_FAILED,
    OperationState.FENCING: pb.POS_RESETTING,
}

E = TypeVar("E", bound=enum.Enum)


class VirmMethod(NamedTuple):
    """One call of the vendor's protocol: its gRPC path and messages."""

    path: str
    request: Any
    reply: Any
    may: Rights

    @property
    def changes(self) -> bool:
        """Whether the call changes something."""
        return self.may in (CREATORS, WAITERS)


#: Every call of the vendor's protocol, by name.
VIRM_METHODS = {
    name: VirmMethod(
        f"/virmgrpc.{service}/{name}",
        getattr(pb, f"{stem}Request"),
        getattr(pb, f"{stem}Reply"),
        may,
    )
    for service, name, stem, may in (
        ("VersionService", "GetVersion", "Version", EVERYBODY),
        ("UserService", "ListPartitions", "ListPartitions", EVERYBODY),
        ("UserService", "ListIPUAttributes", "ListIPUAttributes", EVERYBODY),
        # The protocol cannot name a job, so a scheduler creates nothing by it.
        ("UserService", "CreatePartition", "CreatePartition", WAITERS),
        ("UserService", "RemovePartition", "RemovePartition", CREATORS),
        ("UserService", "ResetPartition", "ResetPartition", CREATORS),
        ("UserService", "GetPartitionIpuofConfig", "GetPartitionIpuofConfig", THEIR_OWN),
        ("UserService", "GetPartitionStatus", "GetPartitionStatus", EVERYBODY),
    )
}


def _asked(table: Mapping[E, int], number: int, field: str) -> E:
    """Return the member that a request names. Raises wire.InvalidRequest for an unknown number."""
    for member, known in table.items():
        if known == number:
            return member
    names = ", ".join(f"{member.name} ({known})" for member, known in table.items())
    raise InvalidRequest(f"{field} {number} is not known", would_work=f"choose one of {names}")


def _said(table: Mapping[E, int], number: int, least: E) -> E:
    """Return the member that an answer names, or the one that promises least."""
    return next((member for member, known in table.items() if known == number), least)


def create_request(message: Any) -> CreateRequest:
    """Convert CreatePartitionRequest to a request with `wait` False: it is answered once durable.

    Raises wire.InvalidRequest for an unknown enum number and for devices without a cluster.
    """
    need = message.requirements
    action = f"create partition {need.id}" if need.id else "create partition"
    if need.ipus and not need.cluster_id:
        raise InvalidRequest(
            "devices are chosen one by one, but no cluster is named",
            operation=action,
            would_work="give cluster_id",
        )
    return CreateRequest(
        spec=PartitionSpec(
            name=need.id,
            size=need.size or len(need.ipus),
            cluster=need.cluster_id,
            allocation=need.allocation_id,
            num_gcds=need.num_gcds,
            num_replicas=need.num_replicas,
            num_ilds=need.num_ipulink_segments,
            routing=_asked(ROUTING, need.ipulink_routing_type, "ipulink_routing_type"),
            gw_routing=_asked(GATEWAY_ROUTING, need.gw_routing_type, "gw_routing_type"),
            sync_type=_asked(SYNC_TYPE, need.sync_type, "sync_type"),
            reconfigurable=need.reconfigurable,
            devices=_chosen(need.ipus, action),
            auto_reset=not message.disable_auto_reset,
            relocatable=message.relocatable,
        ),
        wait=False,
    )


def _chosen(ipus: Sequence[Any], action: str) -> list[tuple[int, int]]:
    """Return devices in routing order; without routing ids, in the order of the request."""
    ids = [ipu.routing_id for ipu in ipus]
    if any(ids):
        if sorted(ids) != list(range(len(ids))):
            raise InvalidRequest(
                f"routing ids {ids} do not number the devices",
                operation=action,
                would_work=f"name each of 0 to {len(ids) - 1} once, or none at all",
            )
        ipus = sorted(ipus, key=lambda ipu: ipu.routing_id)
    return [(ipu.ipulink_domain_topology_id, ipu.topology_id) for ipu in ipus]


def create_message(request: CreateRequest) -> Any:
    """Convert a request to CreatePartitionRequest, which has no field for `wait`."""
    spec = request.spec
    return pb.CreatePartitionRequest(
        requirements={
            "id": spec.name,
            "size": spec.size,
            "cluster_id": spec.cluster,
            "allocation_id": spec.allocation,
            "ipulink_routing_type": ROUTING[spec.routing],
            "gw_routing_type": GATEWAY_ROUTING[spec.gw_routing],
            "sync_type": SYNC_TYPE[spec.sync_type],
            "num_ipulink_segments": spec.num_ilds,
            "num_gcds": spec.num_gcds,
            "num_replicas": spec.num_replicas,
            "reconfigurable": spec.reconfigurable,
            "ipus": [
                {
                    "ipulink_domain_topology_id": domain,
                    "topology_id": offset,
                    "routing_id": place,
                }
                for place, (domain, offset) in enumerate(spec.devices)
            ],
        },
        disable_auto_reset=not spec.auto_reset,
        relocatable=spec.relocatable,
    )


def partition_message(info: PartitionInfo) -> Any:
    """Convert a partition to Partition."""
    segments = {domain: place for place, domain in enumerate(info.ilds)}
    devices = [device for gcd in info.gcds for device in gcd]
    return pb.Partition(
        id=info.name,
        ready_state=READY_STATE[info.ready_state],
        ipuof_server_version=info.server_version,
        spec={
            "cluster_id": info.cluster,
            "allocation_id": info.allocation,
            "ipulink_routing_type": ROUTING[info.routing],
            "gw_routing_type": GATEWAY_ROUTING[info.gw_routing],
            "sync_type": SYNC_TYPE[info.sync_type],
            "num_gcds": info.num_gcds,
            "num_ipulink_segments": info.num_ilds,
            "num_replicas": info.num_replicas,
            "reconfigurable": info.reconfigurable,
            "ipus": [
                {
                    "ipulink_domain_topology_id": device.domain,
                    "ipulink_domain_routing_id": segments.get(device.domain, 0),
                    "topology_id": device.offset,
                    "routing_id": place,
                }
                for place, device in enumerate(devices)
            ],
        },
    )


def partition_info(message: Any) -> PartitionInfo:
    """Convert the Partition of a foreign controller. What it does not contain stays empty."""
    spec = message.spec
    ipus = sorted(spec.ipus, key=lambda ipu: ipu.routing_id)
    devices = [DeviceRef(domain=i.ipulink_domain_topology_id, offset=i.topology_id) for i in ipus]
    gcds = spec.num_gcds or 1
    share = -(-len(devices) // gcds) or 1
    return PartitionInfo(
        name=message.id,
        cluster=spec.cluster_id,
        allocation=spec.allocation_id,
        size=len(devices),
        num_gcds=gcds,
        num_replicas=spec.num_replicas or gcds,
        num_ilds=spec.num_ipulink_segments or 1,
        routing=_said(ROUTING, spec.ipulink_routing_type, Routing.DEFAULT),
        gw_routing=_said(GATEWAY_ROUTING, spec.gw_routing_type, GatewayRouting.DEFAULT),
        sync_type=_said(SYNC_TYPE, spec.sync_type, SyncType.DEFAULT),
        reconfigurable=spec.reconfigurable,
        ready_state=_said(READY_STATE, message.ready_state, ReadyState.ERROR),
        gcds=[devices[n : n + share] for n in range(0, len(devices), share)],
        ilds=list(dict.fromkeys(device.domain for device in devices)),
        server_version=message.ipuof_server_version,
    )


def status_message(info: PartitionInfo) -> Any:
    """Convert a partition to PartitionStatus."""
    status = pb.PartitionStatus(
        partition_id=info.name,
        ready_state=READY_STATE[info.ready_state],
        operation_state=OPERATION_STATE[info.operation_state],
        errors=info.errors,
        max_auto_reset_retries=info.auto_reset_max,
        auto_reset_retry_count=info.auto_reset_count,
    )
    if info.auto_reset_last:
        status.last_auto_reset_time.FromNanoseconds(round(info.auto_reset_last * 1e6) * 1000)
    return status


def with_status(info: PartitionInfo, status: Any) -> PartitionInfo:
    """Return a foreign controller's partition with what its PartitionStatus adds."""
    last = status.last_auto_reset_time
    return msgspec.structs.replace(
        info,
        ready_state=_said(READY_STATE, status.ready_state, ReadyState.ERROR),
        operation_state=_said(OPERATION_STATE, status.operation_state, OperationState.FAILED),
        errors=list(status.errors),
        auto_reset_max=status.max_auto_reset_retries,
        auto_reset_count=status.auto_reset_retry_count,
        auto_reset_last=last.ToMicroseconds() / 1e6,
    )


def config_message(info: PartitionInfo, gcd: int | None) -> Any:
    """Convert a partition to PartitionConfig of one GCD, or of all.

    Raises as `wire.ipuof_gcds` does.
    """
    return pb.PartitionConfig(
        ipulink_routing_type=ROUTING[info.routing],
        sync_type=SYNC_TYPE[info.sync_type],
        reconfigurable=info.reconfigurable,
        gw_routing_type=GATEWAY_ROUTING[info.gw_routing],
        num_ipulink_segments=info.num_ilds,
        gcd_configs=ipuof_gcds(info, gcd),
        ipuof_server_version=info.server_version,
    )


def attribute_entries(devices: Sequence[DeviceInfo]) -> Any:
    """Convert devices to ListIPUAttributesReply, by agent and by the index in the machine."""
    reply = pb.ListIPUAttributesReply()
    entries: dict[str, Any] = {}
    for info in devices:
        agent = info.device.machine
        if agent not in entries:
            entries[agent] = reply.entries.add(agent=agent)
        entries[agent].ipus[info.device.index].attributes.update(info.attributes)
    return reply
