"""Launches without devices, which compile where there are none (PopRun guide, section 2.6).

The names of targets are our choice, apart from pod16, which the guide mentions: they are the
clusters that Podwright knows by name. The options are those that a partition of the launch would
have on such a cluster.
"""

from __future__ import annotations

from podwright.errors import InvalidRequest
from podwright.launcher.options._environment import target_options

TARGETS = {f"pod{size}": size for size in (4, 8, 16, 32, 64, 128, 256)}
_DOMAIN = 64  # devices of a whole link domain


def offline_options(target: str, devices: int, instances: int, ilds: int | None) -> str:
    """Return the target options of `devices` on such a pod. Raises InvalidRequest if it is too
    small.
    """
    from podwright.wire import GatewayRouting, PartitionInfo, Routing, SyncType

    size = TARGETS[target]
    if devices > size:
        raise InvalidRequest(
            f"the replicas need {devices} devices, and {target} has {size}",
            would_work="Name a larger --offline-target",
        )
    domains = ilds or -(-devices // _DOMAIN)
    whole_domains = size >= _DOMAIN and devices == domains * _DOMAIN
    partition = PartitionInfo(
        name="",
        cluster=target,
        allocation=target,
        size=devices,
        num_gcds=instances,
        num_replicas=instances,
        num_ilds=domains,
        routing=Routing.RINGSWNC if whole_domains else Routing.DNC,
        gw_routing=GatewayRouting.DEFAULT,
        sync_type=SyncType.DEFAULT,
        simulated=False,
    )
    return target_options(partition)
