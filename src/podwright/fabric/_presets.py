"""Clusters that have a name, for demonstrations, tests and machines without devices."""

from __future__ import annotations

from podwright.fabric._cluster import (
    Cluster,
    ClusterTopology,
    DomainTopology,
    LinkDomain,
    Machine,
)
from podwright.fabric._family import HGX8, IPU, NVL72, Family

_DEVICES_BY_IPU_PRESET = {f"pod{size}": size for size in (4, 8, 16, 32, 64, 128, 256)}
#: The family, and the number of its link domains.
_GPU_PRESETS: dict[str, tuple[Family, int]] = {
    "hgx8": (HGX8, 1),
    "hgx8x4": (HGX8, 4),
    "nvl72": (NVL72, 1),
}


def presets() -> list[str]:
    """Return the names that `preset` knows: IPUs, the smallest cluster first, then GPUs."""
    return [*_DEVICES_BY_IPU_PRESET, *_GPU_PRESETS]


def preset(name: str) -> Cluster:
    """Return the simulated cluster of that name. Raises ValueError, which lists the known names."""
    if name in _GPU_PRESETS:
        return simulated_gpus(name, *_GPU_PRESETS[name])
    if name not in _DEVICES_BY_IPU_PRESET:
        raise ValueError(f"no preset {name!r}; there are: {', '.join(presets())}")
    return simulated_ipus(name, _DEVICES_BY_IPU_PRESET[name])


def simulated_gpus(cluster_name: str, family: Family, domain_count: int) -> Cluster:
    """Return a simulated GPU cluster: link domains of a family, joined by a network's switches."""
    machines_per_domain = family.max_domain_devices // family.devices_per_machine
    machines = [Machine(f"gpu{i + 1}") for i in range(domain_count * machines_per_domain)]
    return Cluster(
        name=cluster_name,
        family=family,
        domains=tuple(
            LinkDomain(
                f"nvl{i}", tuple(machines[i * machines_per_domain : (i + 1) * machines_per_domain])
            )
            for i in range(domain_count)
        ),
        topology=ClusterTopology.SWITCHED if domain_count > 1 else ClusterTopology.NONE,
        simulated=True,
    )


def simulated_ipus(cluster_name: str, device_count: int) -> Cluster:
    """Return a simulated IPU cluster: link domains of 64 devices, looped where there are several.

    device_count: number of devices; a multiple of 4 up to 64, then a multiple of 64. A whole POD64
    is cabled as a torus and a smaller pod as a mesh, like the vendor's own.
    """
    devices_per_machine, devices_per_domain = IPU.devices_per_machine, IPU.max_domain_devices
    if (
        device_count <= 0
        or device_count % devices_per_machine
        or (device_count > devices_per_domain and device_count % devices_per_domain)
    ):
        raise ValueError(f"{device_count} is not a size of a pod: a multiple of 4 to 64, or of 64")
    machines = [Machine(f"ag{i + 1}") for i in range(device_count // devices_per_machine)]
    machines_per_domain = min(device_count, devices_per_domain) // devices_per_machine
    domains = tuple(
        LinkDomain(f"ild{i // machines_per_domain}", tuple(machines[i : i + machines_per_domain]))
        for i in range(0, len(machines), machines_per_domain)
    )
    return Cluster(
        name=cluster_name,
        family=IPU,
        domains=domains,
        domain_topology=DomainTopology.TORUS
        if device_count >= devices_per_domain
        else DomainTopology.MESH,
        topology=ClusterTopology.LOOPED if len(domains) > 1 else ClusterTopology.NONE,
        simulated=True,
    )
