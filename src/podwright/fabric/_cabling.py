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
    cables_by_machine: dict[str, dict[str, str]] = {}
    machines_by_domain = [
        [machine.name for machine in domain.machines] for domain in cluster.domains
    ]
    # Machines in the same place of every link domain form a row of the second tier.
    loop_rows = (
        list(zip(*machines_by_domain, strict=False))
        if cluster.topology is ClusterTopology.LOOPED
        else []
    )
    is_torus = cluster.domain_topology is DomainTopology.TORUS
    for domain_index, names in enumerate(machines_by_domain):
        for machine_index, name in enumerate(names):
            machine_ports = cables_by_machine.setdefault(name, {})
            _add_link_ports(machine_ports, "", names, machine_index, is_torus)
            if machine_index < len(loop_rows):
                _add_link_ports(machine_ports, "gw-", loop_rows[machine_index], domain_index, True)
    return cables_by_machine


def _add_link_ports(
    machine_ports: dict[str, str],
    port_prefix: str,
    machine_names: Sequence[str],
    machine_index: int,
    is_closed: bool,
) -> None:
    last_index = len(machine_names) - 1
    if last_index < 1:
        return
    if machine_index or is_closed:
        machine_ports[f"{port_prefix}down"] = machine_names[machine_index - 1]
    if machine_index < last_index or is_closed:
        machine_ports[f"{port_prefix}up"] = machine_names[(machine_index + 1) % len(machine_names)]
