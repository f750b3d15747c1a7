"""Which machine each cable of a cluster should lead to, so that a wrong cable can be named."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.fabric._cluster import Cluster, ClusterTopology, DomainTopology


def cabling(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Return, for each machine, port -> the machine at the other end.

    In a link domain, `down` and `up` lead to the machine before and after; in a torus the last
    meets the first. Looped link domains meet by `gw-down` and `gw-up`, each machine with the one in
    the same place of the next link domain. Switched link domains meet at a switch, which machines
    cannot see.
    """
    wanted: dict[str, dict[str, str]] = {}
    domains = [[machine.name for machine in domain.machines] for domain in cluster.domains]
    # Machines in the same place of every link domain form a row of the second tier.
    rows = list(zip(*domains, strict=False)) if cluster.topology is ClusterTopology.LOOPED else []
    closed = cluster.domain_topology is DomainTopology.TORUS
    for domain_index, names in enumerate(domains):
        for i, name in enumerate(names):
            ports = wanted.setdefault(name, {})
            _join(ports, "", names, i, closed)
            if i < len(rows):
                _join(ports, "gw-", rows[i], domain_index, True)
    return wanted


def _join(ports: dict[str, str], prefix: str, row: Sequence[str], place: int, closed: bool) -> None:
    last = len(row) - 1
    if last < 1:
        return
    if place or closed:
        ports[f"{prefix}down"] = row[place - 1]
    if place < last or closed:
        ports[f"{prefix}up"] = row[(place + 1) % len(row)]
