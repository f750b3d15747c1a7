"""Which sizes still fit, how many devices are left over for each, and which are kept. Pure data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podwright.errors import PodwrightError
from podwright.fabric import Family, family_named
from podwright.placement.fragmentation import fits
from podwright.wire import ClusterInfo, DeviceInfo


def fragments(
    clusters: Iterable[ClusterInfo], devices: Iterable[DeviceInfo]
) -> dict[str, dict[str, Any]]:
    """Return, by cluster, what still fits.

    free: number of free devices. sizes: [size, how many such blocks fit at once, free devices
    outside all of them]. kept: number of free devices that are kept, by the waiter or the
    scheduler's job (`job 7 of slurm`); `?` for those of which the caller may not know.
    """
    devices_by_cluster: dict[str, list[DeviceInfo]] = {}
    for device in devices:
        devices_by_cluster.setdefault(device.cluster, []).append(device)
    fragments_by_cluster: dict[str, dict[str, Any]] = {}
    for cluster in clusters:
        cluster_devices = devices_by_cluster.get(cluster.name, [])
        kept_counts: dict[str, int] = {}
        for device in cluster_devices:
            if device.state == "RESERVED":
                kept_for = device.attributes.get("kept_for") or "?"
                kept_counts[kept_for] = kept_counts.get(kept_for, 0) + 1
        family = _family_or_none(cluster.family)
        fragments_by_cluster[cluster.name] = {
            "free": sum(device.state == "FREE" for device in cluster_devices),
            "sizes": []
            if family is None
            else fits(family, _free_devices_by_allocation(cluster, cluster_devices)),
            "kept": kept_counts,
        }
    return fragments_by_cluster


def _free_devices_by_allocation(
    cluster: ClusterInfo, devices: Iterable[DeviceInfo]
) -> Iterable[list[bool]]:
    """Yield the free devices of a link domain, once for each allocation that has a share of it."""
    flags_by_share: dict[tuple[int, str], list[bool]] = {}
    for device in devices:
        domain = device.device.domain
        flags = flags_by_share.get((domain, device.allocation))
        if flags is None:
            flags = flags_by_share[domain, device.allocation] = [False] * cluster.ild_sizes[domain]
        flags[device.device.offset] = device.state == "FREE"
    return flags_by_share.values()


def _family_or_none(family_name: str) -> Family | None:
    try:
        return family_named(family_name)
    except PodwrightError:  # a family of a package that is not installed here
        return None
