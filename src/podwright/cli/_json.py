"""What `--json` prints.

Listings of partitions, clusters and allocations have the shape that V-IPU's own had in 2020, with
the field names of its protocol, because scripts read that; what we know beyond it stands beside
it under `podwright`. Everything else is our values as they are, all fields, defaults too.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from podwright.wire import (
    AllocationInfo,
    ClusterInfo,
    DeviceInfo,
    PartitionInfo,
    device_sets,
    plain,
)


def text(value: Any) -> str:
    """Values, or what is made of them, as JSON for people: two blanks a level."""
    return msgspec.json.format(msgspec.json.encode(plain(value)), indent=2).decode()


def line(value: Any) -> str:
    """The same on one line."""
    return msgspec.json.encode(plain(value)).decode()


def partition(info: PartitionInfo) -> dict[str, Any]:
    """A partition: `partition` as V-IPU 1.18 names its fields, `podwright` as we do."""
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
    """The same, and what programs see in it: `devices`, by the numbers that they attach to."""
    devices = [{"id": d.id, "gcd": d.gcd, "routing_ids": d.routing} for d in device_sets(info)]
    return {**partition(info), "devices": devices}


def cluster(info: ClusterInfo) -> dict[str, Any]:
    """A cluster: the devices of each link domain, and its machines."""
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
    """An allocation: its cluster and its machines."""
    return {
        "id": info.name,
        "spec": {"cluster_id": info.cluster, "agent_ids": info.agents},
        "podwright": info,
    }


def attributes(devices: list[DeviceInfo]) -> list[dict[str, Any]]:
    """Devices' attributes by agent, then by the device's index in it, as the protocol has them."""
    agents: dict[str, dict[str, Any]] = {}
    for info in devices:
        agents.setdefault(info.device.machine, {})[str(info.device.index)] = {
            "attributes": info.attributes
        }
    return [{"agent": agent, "ipus": ipus} for agent, ipus in agents.items()]


def _prefixed(prefix: str, member: enum.Enum) -> str:
    return f"{prefix}_UNDEFINED" if member.value == "DEFAULT" else f"{prefix}_{member.value}"
