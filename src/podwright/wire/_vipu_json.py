"""Partitions, clusters and allocations in the shape that V-IPU's own `--json` had in 2020.

The field names are those of its protocol, because scripts read them. Further fields are beside them
under `podwright`.
"""

from __future__ import annotations

import enum
from typing import Any

from podwright.wire._subsets import device_sets
from podwright.wire._values import AllocationInfo, ClusterInfo, DeviceInfo, PartitionInfo


def partition(info: PartitionInfo) -> dict[str, Any]:
    """Return a partition: `partition` with V-IPU 1.18's field names, `podwright` with ours."""
    segments = {domain: place for place, domain in enumerate(info.ilds)}
    devices = [device for gcd in info.gcds for device in gcd]
    return {
        "partition": {
            "id": info.name,
            "spec": {
                "cluster_id": info.cluster,
                "allocation_id": info.allocation,
                "ipus": [
                    {
                        "ipulink_domain_topology_id": device.domain,
                        "ipulink_domain_routing_id": segments.get(device.domain, 0),
                        "topology_id": device.offset,
                        "routing_id": place,
                    }
                    for place, device in enumerate(devices)
                ],
                "ipulink_routing_type": _prefixed("IRT", info.routing),
                "sync_type": _prefixed("ST", info.sync_type),
                "num_gcds": info.num_gcds,
                "num_ipulink_segments": info.num_ilds,
                "reconfigurable": info.reconfigurable,
                "gw_routing_type": _prefixed("GRT", info.gw_routing),
                "num_replicas": info.num_replicas,
            },
            "ready_state": _prefixed("PS", info.ready_state),
            "ipuof_server_version": info.server_version,
        },
        "podwright": info,
    }


def partition_in_full(info: PartitionInfo) -> dict[str, Any]:
    """Return the same, with `devices` as programs see them, by the numbers to which they attach."""
    devices = [{"id": d.id, "gcd": d.gcd, "routing_ids": d.routing} for d in device_sets(info)]
    return {**partition(info), "devices": devices}


def cluster(info: ClusterInfo) -> dict[str, Any]:
    """Return a cluster: the devices of each link domain, and its machines."""
    return {
        "id": info.name,
        "spec": {
            "agent_ids": info.machines,
            "ipu_link_domains": [
                {"ipus": [{"topology_id": offset} for offset in range(size)]}
                for size in info.ild_sizes
            ],
        },
        "podwright": info,
    }


def allocation(info: AllocationInfo) -> dict[str, Any]:
    """Return an allocation: its cluster and its machines."""
    return {
        "id": info.name,
        "spec": {"cluster_id": info.cluster, "agent_ids": info.agents},
        "podwright": info,
    }


def attributes(devices: list[DeviceInfo]) -> list[dict[str, Any]]:
    """Return devices' attributes by agent, then by the device's index in it, as in the protocol."""
    agents: dict[str, dict[str, Any]] = {}
    for info in devices:
        agents.setdefault(info.device.machine, {})[str(info.device.index)] = {
            "attributes": info.attributes
        }
    return [{"agent": agent, "ipus": ipus} for agent, ipus in agents.items()]


def _prefixed(prefix: str, member: enum.Enum) -> str:
    return f"{prefix}_UNDEFINED" if member.value == "DEFAULT" else f"{prefix}_{member.value}"
