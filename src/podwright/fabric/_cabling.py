"""Which machine each cable of a cluster should lead to, so that a wrong one can be named."""

from __future__ import annotations

from podwright.fabric._cluster import Cluster, ClusterTopology, DomainTopology


def cabling(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Machine -> port -> the machine at the other end.

    In a link domain `down` and `up` lead to the machine before and after; in a torus the last
    meets the first. Looped link domains meet by `gw-down` and `gw-up`, machine by machine in the
    same place. Switched ones meet at a switch, of which machines see nothing.
    """
    wanted: dict[str, dict[str, str]] = {}
    domains = [[machine.name for machine in domain.machines] for domain in cluster.domains]
    for d, names in enumerate(domains):
        closed = cluster.domain_topology is DomainTopology.TORUS
        for i, name in enumerate(names):
            ports = wanted.setdefault(name, {})
            _join(ports, "", names, i, closed)
            if cluster.topology is ClusterTopology.LOOPED:
                across = [column[i] for column in domains if i < len(column)]
                if len(across) == len(domains):
                    _join(ports, "gw-", across, d, True)
    return wanted


def _join(ports: dict[str, str], prefix: str, row: list[str], place: int, closed: bool) -> None:
    last = len(row) - 1
    if last < 1:
        return
    if place or closed:
        ports[f"{prefix}down"] = row[place - 1]
    if place < last or closed:
        ports[f"{prefix}up"] = row[(place + 1) % len(row)]
