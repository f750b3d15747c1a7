"""Adds machines to a cluster that is in use, or replaces one of its machines.

Partitions on the other machines are not disturbed: a machine keeps its link domain and its place
there, and new machines come after the present ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from podwright.controller.administration import _allocations as allocations
from podwright.controller.hardware._registry import Registry, put_cluster
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._records import DRAIN, drop_quarantine
from podwright.errors import InvalidRequest, NotFound, WrongState
from podwright.fabric import Cluster, LinkDomain, Machine
from podwright.placement import Index, NodeIndex, Placement
from podwright.store import Change, Delete
from podwright.wire import ClusterChange


@dataclass(frozen=True, slots=True)
class ClusterDraft:
    """A cluster as it is to be. machines: of each allocation that was defined.

    fresh: machines that join; their devices are reset first. leaving: the machine that leaves, or
    empty.
    """

    layout: Cluster
    index: Index | NodeIndex
    machines: Mapping[str, Sequence[str]]
    fresh: Sequence[str]
    leaving: str


def drafted(
    state: ControllerState, registry: Registry, cluster: IndexedCluster, request: ClusterChange
) -> ClusterDraft:
    """The change that is asked for; nothing is changed yet.

    Raises InvalidRequest, NotFound or WrongState.
    """
    replaces = bool(request.replace or request.by)
    action = f"change cluster {request.name[:80]}"
    if replaces == bool(request.add) or replaces != bool(request.replace and request.by):
        raise InvalidRequest(
            "a change adds machines, or replaces one by another",
            operation=action,
            would_work="vipu-admin add machine AGENT --cluster NAME, "
            "or vipu-admin replace machine NAME --by AGENT",
        )
    new_names = list(request.add) or [request.by]
    for machine_name in new_names:
        _check_agent(registry, state, cluster, machine_name, new_names, action)
    new_machines = [_registered_machine(registry, machine_name) for machine_name in new_names]
    machines_by_allocation: dict[str, Sequence[str]] = {}
    if not allocations.is_implicit(cluster):
        machines_by_allocation.update(cluster.allocations)
    if replaces:
        _check_empty(state, cluster, request.replace, action)
        domains = _with_replacement(cluster.layout, request.replace, new_machines[0])
        machines_by_allocation = {
            allocation_name: [
                request.by if member == request.replace else member for member in machine_names
            ]
            for allocation_name, machine_names in machines_by_allocation.items()
        }
    else:
        domains = _with_added_machines(cluster.layout, new_machines, request.link_domain, action)
    layout = replace(cluster.layout, domains=domains)
    try:
        index = cluster.redefined(layout, machines_by_allocation)
    except ValueError as error:
        raise WrongState(
            f"partitions would have no legal place in it: {error}",
            operation=action,
            would_work="remove partitions over several link domains first: the loop is another",
        ) from None
    for placement in _loose(state, cluster, request.replace):
        index.release(placement)
    for machine_name in cluster.places.keys() & (cluster.drained | state.down) - {request.replace}:
        index.drain(machine_name)
    return ClusterDraft(layout, index, machines_by_allocation, new_names, request.replace)


def applied(
    state: ControllerState, cluster: IndexedCluster, draft: ClusterDraft
) -> tuple[list[Change], Callable[[], None]]:
    """The cluster is another from here on. Returns what has to be written down, and what makes it
    what it was, where that cannot be."""
    dropped_quarantines = [
        quarantine
        for quarantine in state.quarantine.values()
        if quarantine.machine == draft.leaving
    ]
    changes: list[Change] = [
        put_cluster(draft.layout),
        *allocations.allocation_puts(cluster, draft.machines),
        *map(drop_quarantine, dropped_quarantines),  # its devices are nobody's any more
    ]
    if draft.leaving in cluster.drained:
        changes.append(Delete(DRAIN, draft.leaving))
    state.lift(cluster)
    restore_cluster, was_down = cluster.make_restore(), state.down & {draft.leaving}
    for quarantined in dropped_quarantines:
        del state.quarantine[quarantined.key]
    cluster.redefine(draft.layout, draft.index, draft.machines)
    cluster_by_machine = state.inventory.by_machine
    cluster_by_machine.pop(draft.leaving, None)
    state.down.discard(draft.leaving)
    for machine_name in draft.fresh:
        cluster_by_machine[machine_name] = cluster
        state.mark_down(machine_name, announce=False)  # until its devices are reset

    def undo() -> None:
        restore_cluster()
        for machine_name in draft.fresh:
            del cluster_by_machine[machine_name]
            state.down.discard(machine_name)
        cluster_by_machine.update(dict.fromkeys(cluster.places, cluster))
        state.down.update(was_down)
        for machine_name in cluster.places.keys() & (cluster.drained | state.down):
            cluster.index.drain(machine_name)
        for quarantined in dropped_quarantines:
            cluster.index.take(quarantined.placement)
            state.quarantine[quarantined.key] = quarantined

    return changes, undo


def _loose(state: ControllerState, cluster: IndexedCluster, leaving: str) -> list[Placement]:
    """Placements that the index holds and that a new index leaves out.

    These are places reserved for waiters or moves, which are planned anew, and devices of the
    leaving machine that still have to be reset.
    """
    placements = [
        placement
        for reservation in state.reservations.values()
        if reservation.goal.cluster is cluster
        for placement in reservation.placements
    ]
    placements += [move.target for move in state.moves.values() if move.cluster is cluster]
    return placements + [
        quarantined.placement
        for quarantined in state.quarantine.values()
        if quarantined.machine == leaving
    ]


def _check_agent(
    registry: Registry,
    state: ControllerState,
    cluster: IndexedCluster,
    agent_name: str,
    agent_names: Sequence[str],
    action: str,
) -> None:
    agent = registry.agent(agent_name, action)
    if agent_names.count(agent_name) > 1:
        raise InvalidRequest(
            f"agent {agent_name} is named {agent_names.count(agent_name)} times",
            operation=action,
            would_work="name each agent once",
        )
    if (other_cluster := state.inventory.by_machine.get(agent_name)) is not None:
        raise WrongState(
            f"agent {agent_name} is in cluster {other_cluster.layout.name} already",
            operation=action,
        )
    if agent.record.family != cluster.layout.family.name:
        raise InvalidRequest(
            f"agent {agent_name} has devices of family {agent.record.family}, and the cluster "
            f"those of {cluster.layout.family.name}",
            operation=action,
            would_work="make a cluster of each",
        )


def _check_empty(
    state: ControllerState, cluster: IndexedCluster, machine_name: str, action: str
) -> None:
    if machine_name not in cluster.places:
        raise NotFound(
            f"there is no machine {machine_name} in cluster {cluster.layout.name}",
            operation=action,
            would_work=f"there are: {', '.join(cluster.machines()[:8])}",
        )
    loose_placements = set(_loose(state, cluster, machine_name))
    remaining_placements = [
        placement
        for placement in cluster.index.placements()
        if placement not in loose_placements and machine_name in cluster.parts(placement.blocks)
    ]
    if remaining_placements:
        partition_names = sorted(
            partition.name for partition in state.partitions.on(machine_name)
        ) or ["a partition that is being made"]
        raise WrongState(
            f"machine {machine_name} has {', '.join(partition_names[:8])}"
            f"{' and more' if partition_names[8:] else ''} on it",
            operation=action,
            would_work=f"vipu-admin drain machine {machine_name}, then remove these partitions: "
            "with --force, where it does not answer any more",
            partitions=partition_names[:100],
        )


def _registered_machine(registry: Registry, agent_name: str) -> Machine:
    record = registry.agents[agent_name].record
    return Machine(record.name, record.host, record.port)


def _with_replacement(
    cluster: Cluster, replaced_name: str, replacement: Machine
) -> tuple[LinkDomain, ...]:
    return tuple(
        replace(
            domain,
            machines=tuple(
                replacement if machine.name == replaced_name else machine
                for machine in domain.machines
            ),
        )
        for domain in cluster.domains
    )


def _with_added_machines(
    cluster: Cluster, new_machines: list[Machine], domain_name: str, action: str
) -> tuple[LinkDomain, ...]:
    """More machines at the end of a link domain, or in new ones.

    Our choice where none is named: a domain each where a domain is one machine; the only domain
    where they have room; a new one where they are as many as each of those there has.
    """
    domains, family = cluster.domains, cluster.family
    machine_limit = family.max_domain_devices // family.devices_per_machine
    domain_sizes = {len(domain.machines) for domain in domains}
    domain_names = [domain.name for domain in domains]
    if not domain_name and machine_limit == 1:
        new_names = _unused_names(domain_names)
        return (*domains, *(LinkDomain(next(new_names), (machine,)) for machine in new_machines))
    if (
        not domain_name
        and len(domains) == 1
        and len(domains[0].machines) + len(new_machines) <= machine_limit
    ):
        domain_name = domain_names[0]
    elif not domain_name and domain_sizes == {len(new_machines)}:
        domain_name = next(_unused_names(domain_names))
    elif not domain_name:
        raise InvalidRequest(
            f"it is not clear where {len(new_machines)} machines belong: the link domains have "
            f"{' or '.join(map(str, sorted(domain_sizes)))}",
            operation=action,
            would_work=f"--link-domain {domain_names[-1]}, or a name of a new one",
        )
    matching_domains = [
        link_domain for link_domain in domains if link_domain.name == domain_name
    ] or [LinkDomain(domain_name, ())]
    machine_count = len(matching_domains[0].machines) + len(new_machines)
    if machine_count > machine_limit:
        raise InvalidRequest(
            f"link domain {domain_name} would have {machine_count} machines, more than "
            f"{machine_limit}",
            operation=action,
            would_work="give another --link-domain",
        )
    grown_domain = replace(
        matching_domains[0], machines=(*matching_domains[0].machines, *new_machines)
    )
    if domain_name in domain_names:
        return tuple(grown_domain if domain.name == domain_name else domain for domain in domains)
    return (*domains, grown_domain)


def _unused_names(domain_names: Sequence[str]) -> Iterator[str]:
    return (f"ild{i}" for i in count(len(domain_names)) if f"ild{i}" not in domain_names)
