"""Launches without devices, which compile where there are none (PopRun guide, section 2.6).

The names of targets are our choice, apart from pod16, which the guide mentions: they are the
clusters that Podwright knows by name. The options are those that a partition of the launch would
have on such a cluster.
"""

from __future__ import annotations

from podwright.errors import InvalidRequest
from podwright.launcher.options._instance_environment import target_options

TARGET_SIZES = {f"pod{size}": size for size in (4, 8, 16, 32, 64, 128, 256)}
_LINK_DOMAIN_SIZE = 64  # devices of a whole link domain


def offline_options(
    target_name: str, device_count: int, instance_count: int, asked_domains: int | None
) -> str:
    """Return the target options of `device_count` on such a pod. Raises InvalidRequest if it is too
    small.
    """
    from podwright.wire import GatewayRouting, PartitionInfo, Routing, SyncType

    target_size = TARGET_SIZES[target_name]
    if device_count > target_size:
        raise InvalidRequest(
            f"the replicas need {device_count} devices, and {target_name} has {target_size}",
            would_work="Name a larger --offline-target",
        )
    domain_count = asked_domains or -(-device_count // _LINK_DOMAIN_SIZE)
    fills_domains = (
        target_size >= _LINK_DOMAIN_SIZE and device_count == domain_count * _LINK_DOMAIN_SIZE
    )
    partition = PartitionInfo(
        name="",
        cluster=target_name,
        allocation=target_name,
        size=device_count,
        num_gcds=instance_count,
        num_replicas=instance_count,
        num_ilds=domain_count,
        routing=Routing.RINGSWNC if fills_domains else Routing.DNC,
        gw_routing=GatewayRouting.DEFAULT,
        sync_type=SyncType.DEFAULT,
        simulated=False,
    )
    return target_options(partition)
