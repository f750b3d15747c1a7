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
from podwright.wire._method import CREATORS, EVERYBODY, OWN_OBJECTS_ONLY, WAITERS, Rights
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
        ("UserService", "GetPartitionIpuofConfig", "GetPartitionIpuofConfig", OWN_OBJECTS_ONLY),
        ("UserService", "GetPartitionStatus", "GetPartitionStatus", EVERYBODY),
    )
}


def _requested_member(number_by_member: Mapping[E, int], asked_number: int, field_name: str) -> E:
    """Return the member that a request names. Raises wire.InvalidRequest for an unknown number."""
    for enum_member, member_number in number_by_member.items():
        if member_number == asked_number:
            return enum_member
    text = ", ".join(
        f"{enum_member.name} ({member_number})"
        for enum_member, member_number in number_by_member.items()
    )
    raise InvalidRequest(
        f"{field_name} {asked_number} is not known", would_work=f"choose one of {text}"
    )


def _answered_member(
    number_by_member: Mapping[E, int], answered_number: int, fallback_member: E
) -> E:
    """Return the member that an answer names, or the one that promises least."""
    return next(
        (
            enum_member
            for enum_member, member_number in number_by_member.items()
            if member_number == answered_number
        ),
        fallback_member,
    )


def create_request(request_message: Any) -> CreateRequest:
    """Convert CreatePartitionRequest to a request with `wait` False: it is answered once durable.

    Raises wire.InvalidRequest for an unknown enum number and for devices without a cluster.
    """
    requirements = request_message.requirements
    action = f"create partition {requirements.id}" if requirements.id else "create partition"
    if requirements.ipus and not requirements.cluster_id:
        raise InvalidRequest(
            "devices are chosen one by one, but no cluster is named",
            operation=action,
            would_work="give cluster_id",
        )
    return CreateRequest(
        spec=PartitionSpec(
            name=requirements.id,
            size=requirements.size or len(requirements.ipus),
            cluster=requirements.cluster_id,
            allocation=requirements.allocation_id,
            num_gcds=requirements.num_gcds,
            num_replicas=requirements.num_replicas,
            num_ilds=requirements.num_ipulink_segments,
            routing=_requested_member(
                ROUTING, requirements.ipulink_routing_type, "ipulink_routing_type"
            ),
            gw_routing=_requested_member(
                GATEWAY_ROUTING, requirements.gw_routing_type, "gw_routing_type"
            ),
            sync_type=_requested_member(SYNC_TYPE, requirements.sync_type, "sync_type"),
            reconfigurable=requirements.reconfigurable,
            devices=_devices_in_routing_order(requirements.ipus, action),
            auto_reset=not request_message.disable_auto_reset,
            relocatable=request_message.relocatable,
        ),
        wait=False,
    )


def _devices_in_routing_order(requested_ipus: Sequence[Any], action: str) -> list[tuple[int, int]]:
    """Return devices in routing order; without routing ids, in the order of the request."""
    routing_ids = [ipu.routing_id for ipu in requested_ipus]
    if any(routing_ids):
        if sorted(routing_ids) != list(range(len(routing_ids))):
            raise InvalidRequest(
                f"routing ids {routing_ids} do not number the devices",
                operation=action,
                would_work=f"name each of 0 to {len(routing_ids) - 1} once, or none at all",
            )
        requested_ipus = sorted(requested_ipus, key=lambda requested_ipu: requested_ipu.routing_id)
    return [(ipu.ipulink_domain_topology_id, ipu.topology_id) for ipu in requested_ipus]


def create_message(creation_request: CreateRequest) -> Any:
    """Convert a request to CreatePartitionRequest, which has no field for `wait`."""
    partition_spec = creation_request.spec
    return pb.CreatePartitionRequest(
        requirements={
            "id": partition_spec.name,
            "size": partition_spec.size,
            "cluster_id": partition_spec.cluster,
            "allocation_id": partition_spec.allocation,
            "ipulink_routing_type": ROUTING[partition_spec.routing],
            "gw_routing_type": GATEWAY_ROUTING[partition_spec.gw_routing],
            "sync_type": SYNC_TYPE[partition_spec.sync_type],
            "num_ipulink_segments": partition_spec.num_ilds,
            "num_gcds": partition_spec.num_gcds,
            "num_replicas": partition_spec.num_replicas,
            "reconfigurable": partition_spec.reconfigurable,
            "ipus": [
                {
                    "ipulink_domain_topology_id": domain,
                    "topology_id": offset,
                    "routing_id": place,
                }
                for place, (domain, offset) in enumerate(partition_spec.devices)
            ],
        },
        disable_auto_reset=not partition_spec.auto_reset,
        relocatable=partition_spec.relocatable,
    )


def partition_message(served_partition: PartitionInfo) -> Any:
    """Convert a partition to Partition."""
    segment_by_domain = {
        link_domain: place for place, link_domain in enumerate(served_partition.ilds)
    }
    devices = [device for gcd in served_partition.gcds for device in gcd]
    return pb.Partition(
        id=served_partition.name,
        ready_state=READY_STATE[served_partition.ready_state],
        ipuof_server_version=served_partition.server_version,
        spec={
            "cluster_id": served_partition.cluster,
            "allocation_id": served_partition.allocation,
            "ipulink_routing_type": ROUTING[served_partition.routing],
            "gw_routing_type": GATEWAY_ROUTING[served_partition.gw_routing],
            "sync_type": SYNC_TYPE[served_partition.sync_type],
            "num_gcds": served_partition.num_gcds,
            "num_ipulink_segments": served_partition.num_ilds,
            "num_replicas": served_partition.num_replicas,
            "reconfigurable": served_partition.reconfigurable,
            "ipus": [
                {
                    "ipulink_domain_topology_id": device.domain,
                    "ipulink_domain_routing_id": segment_by_domain.get(device.domain, 0),
                    "topology_id": device.offset,
                    "routing_id": place,
                }
                for place, device in enumerate(devices)
            ],
        },
    )


def partition_info(vendor_partition: Any) -> PartitionInfo:
    """Convert the Partition of a foreign controller. What it does not contain stays empty."""
    spec_message = vendor_partition.spec
    ordered_ipus = sorted(spec_message.ipus, key=lambda ipu: ipu.routing_id)
    devices = [
        DeviceRef(domain=ipu_message.ipulink_domain_topology_id, offset=ipu_message.topology_id)
        for ipu_message in ordered_ipus
    ]
    gcd_count = spec_message.num_gcds or 1
    devices_per_gcd = -(-len(devices) // gcd_count) or 1
    return PartitionInfo(
        name=vendor_partition.id,
        cluster=spec_message.cluster_id,
        allocation=spec_message.allocation_id,
        size=len(devices),
        num_gcds=gcd_count,
        num_replicas=spec_message.num_replicas or gcd_count,
        num_ilds=spec_message.num_ipulink_segments or 1,
        routing=_answered_member(ROUTING, spec_message.ipulink_routing_type, Routing.DEFAULT),
        gw_routing=_answered_member(
            GATEWAY_ROUTING, spec_message.gw_routing_type, GatewayRouting.DEFAULT
        ),
        sync_type=_answered_member(SYNC_TYPE, spec_message.sync_type, SyncType.DEFAULT),
        reconfigurable=spec_message.reconfigurable,
        ready_state=_answered_member(READY_STATE, vendor_partition.ready_state, ReadyState.ERROR),
        gcds=[
            devices[first_device : first_device + devices_per_gcd]
            for first_device in range(0, len(devices), devices_per_gcd)
        ],
        ilds=list(dict.fromkeys(device.domain for device in devices)),
        server_version=vendor_partition.ipuof_server_version,
    )


def status_message(served_partition: PartitionInfo) -> Any:
    """Convert a partition to PartitionStatus."""
    reply = pb.PartitionStatus(
        partition_id=served_partition.name,
        ready_state=READY_STATE[served_partition.ready_state],
        operation_state=OPERATION_STATE[served_partition.operation_state],
        errors=served_partition.errors,
        max_auto_reset_retries=served_partition.auto_reset_max,
        auto_reset_retry_count=served_partition.auto_reset_count,
    )
    if served_partition.auto_reset_last:
        reply.last_auto_reset_time.FromNanoseconds(
            round(served_partition.auto_reset_last * 1e6) * 1000
        )
    return reply


def with_status(served_partition: PartitionInfo, status_reply: Any) -> PartitionInfo:
    """Return a foreign controller's partition with what its PartitionStatus adds."""
    reset = status_reply.last_auto_reset_time
    return msgspec.structs.replace(
        served_partition,
        ready_state=_answered_member(READY_STATE, status_reply.ready_state, ReadyState.ERROR),
        operation_state=_answered_member(
            OPERATION_STATE, status_reply.operation_state, OperationState.FAILED
        ),
        errors=list(status_reply.errors),
        auto_reset_max=status_reply.max_auto_reset_retries,
        auto_reset_count=status_reply.auto_reset_retry_count,
        auto_reset_last=reset.ToMicroseconds() / 1e6,
    )


def config_message(served_partition: PartitionInfo, gcd_number: int | None) -> Any:
    """Convert a partition to PartitionConfig of one GCD, or of all.

    Raises as `wire.ipuof_gcds` does.
    """
    return pb.PartitionConfig(
        ipulink_routing_type=ROUTING[served_partition.routing],
        sync_type=SYNC_TYPE[served_partition.sync_type],
        reconfigurable=served_partition.reconfigurable,
        gw_routing_type=GATEWAY_ROUTING[served_partition.gw_routing],
        num_ipulink_segments=served_partition.num_ilds,
        gcd_configs=ipuof_gcds(served_partition, gcd_number),
        ipuof_server_version=served_partition.server_version,
    )


def attribute_entries(device_infos: Sequence[DeviceInfo]) -> Any:
    """Convert devices to ListIPUAttributesReply, by agent and by the index in the machine."""
    reply = pb.ListIPUAttributesReply()
    entry_by_agent: dict[str, Any] = {}
    for device_info in device_infos:
        name = device_info.device.machine
        if name not in entry_by_agent:
            entry_by_agent[name] = reply.entries.add(agent=name)
        entry_by_agent[name].ipus[device_info.device.index].attributes.update(
            device_info.attributes
        )
    return reply
