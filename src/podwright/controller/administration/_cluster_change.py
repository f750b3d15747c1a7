"""Adds machines to a cluster that is in use, or replaces one of its machines.

Partitions on the other machines are not disturbed: a machine keeps its link domain and its place
there, and new machines come after the present ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from podwright.controller.administration import _allocations as allocations
from podwright.controller.hardware import _machines as machines
from podwright.controller.hardware._registry import Registry, put_cluster
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._records import drop_quarantine
from podwright.errors import InvalidRequest, NotFound, WrongState
from podwright.fabric import Cluster, LinkDomain, Machine
from podwright.placement import Index, NodeIndex, Placement
from podwright.store import Change, Delete
from podwright.wire import ClusterChange


@dataclass(frozen=True, slots=True)
class Changed:
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
) -> Changed:
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
    fresh = list(request.add) or [request.by]
    for name in fresh:
        _check_agent(registry, state, cluster, name, fresh, action)
    new_machines = [_machine(registry, name) for name in fresh]
    machines_by_allocation: dict[str, Sequence[str]] = {}
    if not allocations.implicit(cluster):
        machines_by_allocation.update(cluster.allocations)
    if replaces:
        _check_empty(state, cluster, request.replace, action)
        domains = _with_other(cluster.layout, request.replace, new_machines[0])
        machines_by_allocation = {
            name: [request.by if m == request.replace else m for m in own]
            for name, own in machines_by_allocation.items()
        }
    else:
        domains = _with_more(cluster.layout, new_machines, request.link_domain, action)
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
    for name in cluster.places.keys() & (cluster.drained | state.down) - {request.replace}:
        index.drain(name)
    return Changed(layout, index, machines_by_allocation, fresh, request.replace)


def applied(
    state: ControllerState, cluster: IndexedCluster, draft: Changed
) -> tuple[list[Change], Callable[[], None]]:
    """The cluster is another from here on. Returns what has to be written down, and what makes it
    what it was, where that cannot be."""
    left = [q for q in state.quarantine.values() if q.machine == draft.leaving]
    changes: list[Change] = [
        put_cluster(draft.layout),
        *allocations.with_machines(cluster, draft.machines),
        *map(drop_quarantine, left),  # its devices are nobody's any more
    ]
    if draft.leaving in cluster.drained:
        changes.append(Delete(machines.DRAIN, draft.leaving))
    state.lift(cluster)
    restore, was_down = cluster.as_it_was(), state.down & {draft.leaving}
    for quarantined in left:
        del state.quarantine[quarantined.key]
    cluster.redefine(draft.layout, draft.index, draft.machines)
    places = state.inventory.by_machine
    places.pop(draft.leaving, None)
    state.down.discard(draft.leaving)
    for name in draft.fresh:
        places[name] = cluster
        state.mark_down(name, announce=False)  # until its devices are reset

    def undo() -> None:
        restore()
        for name in draft.fresh:
            del places[name]
            state.down.discard(name)
        places.update(dict.fromkeys(cluster.places, cluster))
        state.down.update(was_down)
        for name in cluster.places.keys() & (cluster.drained | state.down):
            cluster.index.drain(name)
        for quarantined in left:
            cluster.index.take(quarantined.placement)
            state.quarantine[quarantined.key] = quarantined

    return changes, undo


def _loose(state: ControllerState, cluster: IndexedCluster, leaving: str) -> list[Placement]:
    """Placements that the index holds and that a new index leaves out.

    These are places reserved for waiters or moves, which are planned anew, and devices of the
    leaving machine that still have to be reset.
    """
    placements = [
        p for r in state.reservations.values() if r.goal.cluster is cluster for p in r.placements
    ]
    placements += [pending.target for pending in state.moves.values() if pending.cluster is cluster]
    return placements + [q.placement for q in state.quarantine.values() if q.machine == leaving]


def _check_agent(
    registry: Registry,
    state: ControllerState,
    cluster: IndexedCluster,
    name: str,
    fresh: Sequence[str],
    action: str,
) -> None:
    known = registry.agent(name, action)
    if fresh.count(name) > 1:
        raise InvalidRequest(
            f"agent {name} is named {fresh.count(name)} times",
            operation=action,
            would_work="name each agent once",
        )
    if (other := state.inventory.by_machine.get(name)) is not None:
        raise WrongState(
            f"agent {name} is in cluster {other.layout.name} already", operation=action
        )
    if known.record.family != cluster.layout.family.name:
        raise InvalidRequest(
            f"agent {name} has devices of family {known.record.family}, and the cluster those of "
            f"{cluster.layout.family.name}",
            operation=action,
            would_work="make a cluster of each",
        )


def _check_empty(state: ControllerState, cluster: IndexedCluster, name: str, action: str) -> None:
    if name not in cluster.places:
        raise NotFound(
            f"there is no machine {name} in cluster {cluster.layout.name}",
            operation=action,
            would_work=f"there are: {', '.join(cluster.machines()[:8])}",
        )
    loose = set(_loose(state, cluster, name))
    remaining = [
        p for p in cluster.index.placements() if p not in loose and name in cluster.parts(p.blocks)
    ]
    if remaining:
        partitions = sorted(entry.name for entry in state.partitions.on(name)) or [
            "a partition that is being made"
        ]
        raise WrongState(
            f"machine {name} has {', '.join(partitions[:8])}"
            f"{' and more' if partitions[8:] else ''} on it",
            operation=action,
            would_work=f"vipu-admin drain machine {name}, then remove these partitions: with "
            "--force, where it does not answer any more",
            partitions=partitions[:100],
        )


def _machine(registry: Registry, name: str) -> Machine:
    record = registry.agents[name].record
    return Machine(record.name, record.host, record.port)


def _with_other(cluster: Cluster, name: str, replacement: Machine) -> tuple[LinkDomain, ...]:
    return tuple(
        replace(d, machines=tuple(replacement if m.name == name else m for m in d.machines))
        for d in cluster.domains
    )


def _with_more(
    cluster: Cluster, new_machines: list[Machine], wanted: str, action: str
) -> tuple[LinkDomain, ...]:
    """More machines at the end of a link domain, or in new ones.

    Our choice where none is named: a domain each where a domain is one machine; the only domain
    where they have room; a new one where they are as many as each of those there has.
    """
    domains, family = cluster.domains, cluster.family
    machine_limit = family.max_domain_devices // family.devices_per_machine
    sizes = {len(domain.machines) for domain in domains}
    names = [domain.name for domain in domains]
    if not wanted and machine_limit == 1:
        new = _unused(names)
        return (*domains, *(LinkDomain(next(new), (machine,)) for machine in new_machines))
    if (
        not wanted
        and len(domains) == 1
        and len(domains[0].machines) + len(new_machines) <= machine_limit
    ):
        wanted = names[0]
    elif not wanted and sizes == {len(new_machines)}:
        wanted = next(_unused(names))
    elif not wanted:
        raise InvalidRequest(
            f"it is not clear where {len(new_machines)} machines belong: the link domains have "
            f"{' or '.join(map(str, sorted(sizes)))}",
            operation=action,
            would_work=f"--link-domain {names[-1]}, or a name of a new one",
        )
    grown = [d for d in domains if d.name == wanted] or [LinkDomain(wanted, ())]
    count = len(grown[0].machines) + len(new_machines)
    if count > machine_limit:
        raise InvalidRequest(
            f"link domain {wanted} would have {count} machines, more than {machine_limit}",
            operation=action,
            would_work="give another --link-domain",
        )
    last = replace(grown[0], machines=(*grown[0].machines, *new_machines))
    if wanted in names:
        return tuple(last if domain.name == wanted else domain for domain in domains)
    return (*domains, last)


def _unused(names: Sequence[str]) -> Iterator[str]:
    return (f"ild{i}" for i in count(len(names)) if f"ild{i}" not in names)
