"""A partition's IPUoF configuration: what a host needs to reach the devices of its GCD.

It is made in one place, with the field names of the V-IPU 1.18 protocol (PartitionConfig), because
two things show it: the vendor's GetPartitionIpuofConfig, and the file that `vipu get partition
--ipuof-configs` prints.
"""

from __future__ import annotations

from typing import Any

from podwright.errors import NotFound, WrongState
from podwright.wire._values import PartitionInfo, ReadyState


def ipuof_gcds(info: PartitionInfo, gcd: int | None = None) -> list[dict[str, Any]]:
    """Return `devices` and `attributes` of one GCD, or of all.

    device_id: the device's index in its machine. routing_id: its place in the partition. ipu_id:
    its place in its GCD. ipulink_segment_id: the index of the link domain within the partition. The
    last three are our reading; Graphcore's documents do not say. Raises wire.NotFound for a GCD
    that does not exist, and wire.WrongState before the partition is ACTIVE.
    """
    action = f"IPUoF configuration of partition {info.name}"
    if gcd is not None and not 0 <= gcd < info.num_gcds:
        last = info.num_gcds - 1
        raise NotFound(
            f"there is no GCD {gcd}",
            operation=action,
            would_work="GCD 0" if last == 0 else f"a GCD from 0 to {last}",
        )
    if info.ready_state is not ReadyState.ACTIVE:
        raise WrongState(
            f"it is {info.ready_state.name}",
            operation=action,
            would_work="wait until it is ACTIVE"
            if info.ready_state is ReadyState.PENDING
            else f"vipu reset partition {info.name}",
        )
    segments = {domain: place for place, domain in enumerate(info.ilds)}
    gcds, routing = [], 0
    for number, devices in enumerate(info.gcds):
        described = [
            {
                "ip": device.ip,
                "server_port": device.server_port,
                "rdma_port": device.rdma_port,
                "device_id": device.index,
                "ipulink_segment_id": segments.get(device.domain, 0),
                "routing_id": routing + place,
                "ipu_arch_id": device.arch_id,
                "ipu_id": place,
                "chip_id": device.chip_id,
            }
            for place, device in enumerate(devices)
        ]
        routing += len(devices)
        if gcd is None or gcd == number:
            gcds.append({"devices": described, "attributes": {"GCD Id": str(number)}})
    return gcds
