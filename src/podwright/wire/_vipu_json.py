"""Partitions, clusters and allocations in the shape that V-IPU's own `--json` had in 2020.

The field names are those of its protocol, because scripts read them. Further fields are beside them
under `podwright`.
"""

from __future__ import annotations

import enum
from typing import Any

from podwright.wire._device_sets import device_sets
from podwright.wire._values import AllocationInfo, ClusterInfo, DeviceInfo, PartitionInfo


def partition(partition_info: PartitionInfo) -> dict[str, Any]:
    """Return a partition: `partition` with V-IPU 1.18's field names, `podwright` with ours."""
    segment_by_domain = {
        link_domain: place for place, link_domain in enumerate(partition_info.ilds)
    }
    devices = [device for gcd in partition_info.gcds for device in gcd]
    return {
        "partition": {
            "id": partition_info.name,
            "spec": {
                "cluster_id": partition_info.cluster,
                "allocation_id": partition_info.allocation,
                "ipus": [
                    {
                        "ipulink_domain_topology_id": device.domain,
                        "ipulink_domain_routing_id": segment_by_domain.get(device.domain, 0),
                        "topology_id": device.offset,
                        "routing_id": place,
                    }
                    for place, device in enumerate(devices)
                ],
                "ipulink_routing_type": _vendor_enum_name("IRT", partition_info.routing),
                "sync_type": _vendor_enum_name("ST", partition_info.sync_type),
                "num_gcds": partition_info.num_gcds,
                "num_ipulink_segments": partition_info.num_ilds,
                "reconfigurable": partition_info.reconfigurable,
                "gw_routing_type": _vendor_enum_name("GRT", partition_info.gw_routing),
                "num_replicas": partition_info.num_replicas,
            },
            "ready_state": _vendor_enum_name("PS", partition_info.ready_state),
            "ipuof_server_version": partition_info.server_version,
        },
        "podwright": partition_info,
    }


def partition_with_devices(partition_info: PartitionInfo) -> dict[str, Any]:
    """Return the same, with `devices` as programs see them, by the numbers to which they attach."""
    devices = [
        {"id": device_set.id, "gcd": device_set.gcd, "routing_ids": device_set.routing}
        for device_set in device_sets(partition_info)
    ]
    return {**partition(partition_info), "devices": devices}


def cluster(cluster_info: ClusterInfo) -> dict[str, Any]:
    """Return a cluster: the devices of each link domain, and its machines."""
    return {
        "id": cluster_info.name,
        "spec": {
            "agent_ids": cluster_info.machines,
            "ipu_link_domains": [
                {"ipus": [{"topology_id": offset} for offset in range(size)]}
                for size in cluster_info.ild_sizes
            ],
        },
        "podwright": cluster_info,
    }


def allocation(allocation_info: AllocationInfo) -> dict[str, Any]:
    """Return an allocation: its cluster and its machines."""
    return {
        "id": allocation_info.name,
        "spec": {"cluster_id": allocation_info.cluster, "agent_ids": allocation_info.agents},
        "podwright": allocation_info,
    }


def attributes(device_infos: list[DeviceInfo]) -> list[dict[str, Any]]:
    """Return devices' attributes by agent, then by the device's index in it, as in the protocol."""
    devices_by_agent: dict[str, dict[str, Any]] = {}
    for info in device_infos:
        devices_by_agent.setdefault(info.device.machine, {})[str(info.device.index)] = {
            "attributes": info.attributes
        }
    return [
        {"agent": agent, "ipus": attributes_by_index}
        for agent, attributes_by_index in devices_by_agent.items()
    ]


def _vendor_enum_name(prefix: str, enum_member: enum.Enum) -> str:
    return (
        f"{prefix}_UNDEFINED" if enum_member.value == "DEFAULT" else f"{prefix}_{enum_member.value}"
    )
