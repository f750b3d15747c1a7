"""The vendor's protocol: its numbers, and what they mean in our values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from podwright import wire
from podwright.wire import virm
from podwright.wire.virm import pb

#: V-IPU 1.18 protocol: `number name[:type]`; a type is named where it is not a string.
MESSAGES = {
    "VersionRequest": "",
    "VersionReply": "1 version",
    "ListPartitionsRequest": "1 allocation_id",
    "ListPartitionsReply": "1 partitions:Partition*",
    "ListIPUAttributesRequest": "1 agents*",
    "ListIPUAttributesReply": "1 entries:Entry*",
    "ListIPUAttributesReply.Entry": "1 agent, 2 ipus:IpusEntry*",
    "ListIPUAttributesReply.Attributes": "1 attributes:AttributesEntry*",
    "CreatePartitionRequest": (
        "2 requirements:PartitionRequirements, 3 disable_auto_reset:bool, 5 relocatable:bool"
    ),
    "CreatePartitionReply": "1 partition_id",
    "RemovePartitionRequest": "1 partition_id, 2 force:bool",
    "RemovePartitionReply": "",
    "ResetPartitionRequest": "1 partition_id, 2 relocatable:bool",
    "ResetPartitionReply": "",
    "GetPartitionIpuofConfigRequest": "1 partition_id, 2 gcd_id:GcdID",
    "GetPartitionIpuofConfigReply": "1 config:PartitionConfig",
    "GcdID": "1 id:u32",
    "GetPartitionStatusRequest": "1 partition_id",
    "GetPartitionStatusReply": "1 status:PartitionStatus",
    "PartitionRequirements": (
        "1 id, 2 size:u32, 3 cluster_id, 4 ipulink_routing_type:IpuLinkRoutingType, "
        "5 num_ipulink_segments:u32, 6 gw_routing_type:GatewayRoutingType, 7 sync_type:SyncType, "
        "8 num_gcds:u32, 9 reconfigurable:bool, 10 num_replicas:u32, 11 allocation_id, "
        "12 ipus:PartitionIpu*"
    ),
    "PartitionIpu": (
        "1 ipulink_domain_topology_id:u32, 2 ipulink_domain_routing_id:u32, 3 topology_id:u32, "
        "4 routing_id:u32"
    ),
    "PartitionSpec": (
        "1 cluster_id, 2 ipus:PartitionIpu*, 3 ipulink_routing_type:IpuLinkRoutingType, "
        "4 sync_type:SyncType, 5 num_gcds:u32, 6 num_ipulink_segments:u32, 7 reconfigurable:bool, "
        "8 gw_routing_type:GatewayRoutingType, 9 num_replicas:u32, 10 allocation_id"
    ),
    "Partition": (
        "1 id, 2 spec:PartitionSpec, 3 ready_state:PartitionReadyState, 4 ipuof_server_version"
    ),
    "PartitionStatus": (
        "1 partition_id, 2 ready_state:PartitionReadyState, "
        "3 operation_state:PartitionOperationState, 4 errors*, 5 max_auto_reset_retries:u32, "
        "6 auto_reset_retry_count:u32, 7 last_auto_reset_time:Timestamp"
    ),
    "PartitionConfig": (
        "2 ipulink_routing_type:IpuLinkRoutingType, 3 sync_type:SyncType, 5 reconfigurable:bool, "
        "6 gw_routing_type:GatewayRoutingType, 7 num_ipulink_segments:u32, 8 gcd_configs:Gcd*, "
        "9 ipuof_server_version"
    ),
    "PartitionConfig.Gcd": "2 devices:IpuofDevice*, 3 attributes:AttributesEntry*",
    "IpuofDevice": (
        "1 ip, 2 server_port:u32, 3 rdma_port:u32, 4 device_id:u32, 5 ipulink_segment_id:u32, "
        "6 routing_id:u32, 7 ipu_arch_id:u32, 8 ipu_id:u32, 9 chip_id, 10 gwsw_version, "
        "11 ipum_sw_version"
    ),
    "Allocation": "1 id, 2 spec:AllocationSpec",
    "AllocationSpec": "1 cluster_id, 2 agent_ids*",
}
ENUMS = {
    "IpuLinkRoutingType": "IRT UNDEFINED 0, DNC 1, SWNC 2, BTNC 3, RINGSWNC 4",
    "GatewayRoutingType": "GRT UNDEFINED 0, RING 2, SWRING 3",
    "SyncType": (
        "ST UNDEFINED 0, GS2_DEFAULT 1, GS2_INDEPENDENT_RAILS 2, POD_NATIVE_DEFAULT 3, "
        "POD_NATIVE_REPLICATED_PIPELINE 4"
    ),
    "PartitionReadyState": "PS UNDEFINED 0, PENDING 1, ACTIVE 2, REMOVED 3, ERROR 4",
    "PartitionOperationState": (
        "POS UNDEFINED 0, IDLE 1, CREATING 2, REMOVING 3, RESETTING 4, FAILED 5"
    ),
}


def _described(message: Any) -> str:
    types = {8: ":bool", 9: "", 13: ":u32"}
    parts = []
    for field in message.fields:
        named = field.message_type or field.enum_type
        kind = f":{named.name}" if named else types[field.type]
        parts.append(f"{field.number} {field.name}{kind}{'*' if field.is_repeated else ''}")
    return ", ".join(parts)


def _all_messages() -> dict[str, Any]:
    found = {}
    for name, message in pb.DESCRIPTOR.message_types_by_name.items():
        found[name] = message
        for inner in message.nested_types:
            if not inner.GetOptions().map_entry:
                found[f"{name}.{inner.name}"] = inner
    return found


def test_every_field_has_its_number() -> None:
    assert pb.DESCRIPTOR.package == "virmgrpc"
    assert {name: _described(message) for name, message in _all_messages().items()} == MESSAGES


def test_every_enum_has_its_numbers() -> None:
    found = {}
    for name, kind in pb.DESCRIPTOR.enum_types_by_name.items():
        prefix = kind.values[0].name.removesuffix("UNDEFINED")
        values = ", ".join(f"{v.name.removeprefix(prefix)} {v.number}" for v in kind.values)
        found[name] = f"{prefix.removesuffix('_')} {values}"
    assert found == ENUMS


def test_every_call_has_its_path() -> None:
    paths = {
        f"/{service.full_name}/{call.name}": (call.input_type.name, call.output_type.name)
        for service in pb.DESCRIPTOR.services_by_name.values()
        for call in service.methods
    }
    assert paths == {
        method.path: (method.request.DESCRIPTOR.name, method.reply.DESCRIPTOR.name)
        for method in virm.VIRM_METHODS.values()
    }
    assert "/virmgrpc.UserService/GetPartitionIpuofConfig" in paths
    assert len(paths) == 8


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (virm.ROUTING, wire.Routing),
        (virm.GATEWAY_ROUTING, wire.GatewayRouting),
        (virm.SYNC_TYPE, wire.SyncType),
        (virm.READY_STATE, wire.ReadyState),
        (virm.OPERATION_STATE, wire.OperationState),
    ],
)
def test_tables_cover_both_sides(table: dict[Any, int], kind: Any) -> None:
    assert set(table) == set(kind)
    ours = {wire.OperationState.FENCING} & set(table)  # to V-IPU, it is being reset
    assert len(set(table.values())) == len(table) - len(ours)
    assert all(table[one] == table[wire.OperationState.RESETTING] for one in ours)


DEVICES = [
    [wire.DeviceRef(domain=3, offset=o, machine="m", index=o % 4, ip="10.0.0.1") for o in (0, 1)],
    [wire.DeviceRef(domain=0, offset=o, machine="n", index=o % 4, server_port=9) for o in (0, 1)],
]
INFO = wire.PartitionInfo(
    name="p1",
    cluster="c1",
    allocation="a1",
    size=4,
    num_gcds=2,
    num_replicas=4,
    num_ilds=2,
    routing=wire.Routing.RINGSWNC,
    gw_routing=wire.GatewayRouting.SWRING,
    sync_type=wire.SyncType.POD_NATIVE_DEFAULT,
    ready_state=wire.ReadyState.ACTIVE,
    operation_state=wire.OperationState.IDLE,
    errors=["one", "two"],
    gcds=DEVICES,
    ilds=[3, 0],
    auto_reset_count=2,
    auto_reset_max=3,
    auto_reset_last=1700000000.25,
    server_version="1.9",
)


def test_a_partition_survives_the_vendors_encoding() -> None:
    message = virm.partition_message(INFO)
    assert [
        (
            ipu.ipulink_domain_topology_id,
            ipu.ipulink_domain_routing_id,
            ipu.topology_id,
            ipu.routing_id,
        )
        for ipu in message.spec.ipus
    ] == [(3, 0, 0, 0), (3, 0, 1, 1), (0, 1, 0, 2), (0, 1, 1, 3)]
    back = virm.with_status(virm.partition_info(message), virm.status_message(INFO))
    bare = [[wire.DeviceRef(domain=d.domain, offset=d.offset) for d in gcd] for gcd in DEVICES]
    assert back == msgspec.structs.replace(INFO, gcds=bare)


def test_what_a_foreign_server_leaves_undefined_promises_least() -> None:
    info = virm.partition_info(pb.Partition(id="p", ready_state=99))
    assert info.ready_state is wire.ReadyState.ERROR
    assert info.gcds == []
    known = virm.with_status(info, pb.PartitionStatus(operation_state=99, ready_state=2))
    assert known.operation_state is wire.OperationState.FAILED
    assert known.ready_state is wire.ReadyState.ACTIVE
    assert known.auto_reset_last == 0.0


def test_a_request_survives_the_vendors_encoding() -> None:
    spec = wire.PartitionSpec(
        name="p",
        size=2,
        cluster="c",
        allocation="a",
        num_gcds=2,
        num_replicas=2,
        num_ilds=1,
        routing=wire.Routing.DNC,
        gw_routing=wire.GatewayRouting.RING,
        sync_type=wire.SyncType.GS2_DEFAULT,
        reconfigurable=True,
        devices=[(0, 3), (0, 1)],
        auto_reset=False,
        relocatable=True,
    )
    request = wire.CreateRequest(spec=spec, wait=False)
    assert virm.create_request(virm.create_message(request)) == request


def test_defaults_of_a_bare_request() -> None:
    request = virm.create_request(
        pb.CreatePartitionRequest(requirements={"id": "p", "size": 4, "num_ipulink_segments": 0})
    )
    assert request == wire.CreateRequest(spec=wire.PartitionSpec(name="p", size=4), wait=False)


@pytest.mark.parametrize(
    ("requirements", "says"),
    [
        ({"ipulink_routing_type": 9}, "ipulink_routing_type 9 is not known"),
        ({"gw_routing_type": 1}, "gw_routing_type 1 is not known"),
        ({"sync_type": 77}, "sync_type 77 is not known"),
        ({"ipus": [{"topology_id": 1}]}, "no cluster is named. Give cluster_id"),
        (
            {"cluster_id": "c", "ipus": [{"routing_id": 1}, {"routing_id": 1}]},
            r"routing ids \[1, 1\] do not number the devices",
        ),
    ],
)
def test_requests_that_are_refused(requirements: dict[str, Any], says: str) -> None:
    with pytest.raises(wire.InvalidRequest, match=says):
        virm.create_request(pb.CreatePartitionRequest(requirements=requirements))


def test_devices_chosen_one_by_one_keep_their_order() -> None:
    ipus = [
        {"ipulink_domain_topology_id": 1, "topology_id": 5, "routing_id": 1},
        {"ipulink_domain_topology_id": 1, "topology_id": 4, "routing_id": 0},
    ]
    message = pb.CreatePartitionRequest(requirements={"cluster_id": "c", "ipus": ipus})
    assert virm.create_request(message).spec.devices == [(1, 4), (1, 5)]
    assert virm.create_request(message).spec.size == 2
    for ipu in ipus:
        ipu["routing_id"] = 0
    message = pb.CreatePartitionRequest(requirements={"cluster_id": "c", "ipus": ipus})
    assert virm.create_request(message).spec.devices == [(1, 5), (1, 4)]


def test_ipuof_configuration_of_one_gcd_and_of_all() -> None:
    whole = virm.config_message(INFO, None)
    assert [dict(gcd.attributes) for gcd in whole.gcd_configs] == [
        {"GCD Id": "0"},
        {"GCD Id": "1"},
    ]
    one = virm.config_message(INFO, 1)
    assert [(d.routing_id, d.ipu_id, d.ipulink_segment_id) for d in one.gcd_configs[0].devices] == [
        (2, 0, 1),
        (3, 1, 1),
    ]
    assert one.ipulink_routing_type == pb.IRT_RINGSWNC
    assert one.ipuof_server_version == "1.9"


@pytest.mark.parametrize(
    ("state", "gcd", "kind", "says"),
    [
        ("ACTIVE", 2, wire.NotFound, "there is no GCD 2. A GCD from 0 to 1"),
        ("PENDING", None, wire.WrongState, "it is PENDING. Wait until it is ACTIVE"),
        ("ERROR", 0, wire.WrongState, "it is ERROR. vipu reset partition p1"),
    ],
)
def test_ipuof_configuration_refused(
    state: str, gcd: int | None, kind: type[wire.PodwrightError], says: str
) -> None:
    info = msgspec.structs.replace(INFO, ready_state=wire.ReadyState[state])
    with pytest.raises(kind, match=says):
        virm.config_message(info, gcd)


def test_attributes_by_agent_and_index() -> None:
    devices = [
        wire.DeviceInfo(cluster="c", device=DEVICES[g][i], attributes={"clock": f"{g}{i}"})
        for g in (0, 1)
        for i in (0, 1)
    ]
    reply = virm.attribute_entries(devices)
    assert [(entry.agent, sorted(entry.ipus)) for entry in reply.entries] == [
        ("m", [0, 1]),
        ("n", [0, 1]),
    ]
    assert reply.entries[1].ipus[1].attributes["clock"] == "11"
