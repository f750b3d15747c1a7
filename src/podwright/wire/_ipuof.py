"""A partition's IPUoF configuration: what a host needs to reach the devices of its GCD.

It is made in one place, with the field names of the V-IPU 1.18 protocol (PartitionConfig), because
two things show it: the vendor's GetPartitionIpuofConfig, and the file that `vipu get partition
--ipuof-configs` prints.
"""

from __future__ import annotations

from typing import Any

from podwright.errors import NotFound, WrongState
from podwright.wire._values import PartitionInfo, ReadyState


def ipuof_gcds(partition_info: PartitionInfo, asked_gcd: int | None = None) -> list[dict[str, Any]]:
    """Return `gcd_devices` and `attributes` of one GCD, or of all.

    device_id: the device's index in its machine. routing_id: its place in the partition. ipu_id:
    its place in its GCD. ipulink_segment_id: the index of the link domain within the partition. The
    last three are our reading; Graphcore's documents do not say. Raises wire.NotFound for a GCD
    that does not exist, and wire.WrongState before the partition is ACTIVE.
    """
    action = f"IPUoF configuration of partition {partition_info.name}"
    if asked_gcd is not None and not 0 <= asked_gcd < partition_info.num_gcds:
        last_gcd = partition_info.num_gcds - 1
        raise NotFound(
            f"there is no GCD {asked_gcd}",
            operation=action,
            would_work="GCD 0" if last_gcd == 0 else f"a GCD from 0 to {last_gcd}",
        )
    if partition_info.ready_state is not ReadyState.ACTIVE:
        raise WrongState(
            f"it is {partition_info.ready_state.name}",
            operation=action,
            would_work="wait until it is ACTIVE"
            if partition_info.ready_state is ReadyState.PENDING
            else f"vipu reset partition {partition_info.name}",
        )
    segment_by_domain = {
        link_domain: place_in_gcd for place_in_gcd, link_domain in enumerate(partition_info.ilds)
    }
    gcd_configs, routing_offset = [], 0
    for gcd_number, gcd_devices in enumerate(partition_info.gcds):
        device_entries = [
            {
                "ip": device.ip,
                "server_port": device.server_port,
                "rdma_port": device.rdma_port,
                "device_id": device.index,
                "ipulink_segment_id": segment_by_domain.get(device.domain, 0),
                "routing_id": routing_offset + place_in_gcd,
                "ipu_arch_id": device.arch_id,
                "ipu_id": place_in_gcd,
                "chip_id": device.chip_id,
            }
            for place_in_gcd, device in enumerate(gcd_devices)
        ]
        routing_offset += len(gcd_devices)
        if asked_gcd is None or asked_gcd == gcd_number:
            gcd_configs.append(
                {"devices": device_entries, "attributes": {"GCD Id": str(gcd_number)}}
            )
    return gcd_configs
