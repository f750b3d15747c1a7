"""A cluster that is in use gets more machines, or another one in a machine's place.

What lies on the others stays where it is and goes on: a machine keeps its link domain and its
place there, and new ones come behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from podwright.controller import _allocations as allocations
from podwright.controller import _machines as machines
from podwright.controller._cluster_index import IndexedCluster
from podwright.controller._core import Core
from podwright.controller._records import drop_quarantine
from podwright.controller._registry import Registry, put_cluster
from podwright.errors import InvalidRequest, NotFound, WrongState
from podwright.fabric import Cluster, LinkDomain, Machine
from podwright.placement import Index, NodeIndex, Placement
from podwright.store import Change, Delete
from podwright.wire import ClusterChange


@dataclass(frozen=True, slots=True)
class Changed:
    """A cluster as it is to be. machines: of each allocation that was defined.

    fresh: machines that come in, whose devices are reset first. gone: the one that leaves, or
    empty.
    """

    cluster: Cluster
    index: Index | NodeIndex
    machines: Mapping[str, Sequence[str]]
    fresh: Sequence[str]
    gone: str


def drafted(
    core: Core, registry: Registry, site: IndexedCluster, request: ClusterChange
) -> Changed:
    """The change that is asked for; nothing is changed yet.

    Raises InvalidRequest, NotFound or WrongState.
    """
    replaces = bool(request.replace or request.by)
    action = f"change cluster {request.name[:80]}"
    if replaces == bool(request.add) or replaces != bool(request.replace and request.by):
        raise InvalidRequest(
            "a change adds machines, or replaces one by another",
            asked=action,
            would_work="vipu-admin add machine AGENT --cluster NAME, "
            "or vipu-admin replace machine NAME --by AGENT",
        )
    fresh = list(request.add) or [request.by]
    for name in fresh:
        _check_agent(registry, core, site, name, fresh, action)
    made = [_machine(registry, name) for name in fresh]
    inside: dict[str, Sequence[str]] = {}
    if not allocations.implicit(site):
        inside.update(site.allocations)
    if replaces:
        _check_empty(core, site, request.replace, action)
        domains = _with_other(site.cluster, request.replace, made[0])
        inside = {
            name: [request.by if m == request.replace else m for m in own]
            for name, own in inside.items()
        }
    else:
        domains = _with_more(site.cluster, made, request.link_domain, action)
    cluster = replace(site.cluster, domains=domains)
    try:
        index = site.redefined(cluster, inside)
    except ValueError as error:
        raise WrongState(
            f"partitions would have no legal place in it: {error}",
            asked=action,
            would_work="remove partitions over several link domains first: the loop is another",
        ) from None
    for placement in _loose(core, site, request.replace):
        index.release(placement)
    for name in site.places.keys() & (site.drained | core.down) - {request.replace}:
        index.drain(name)
    return Changed(cluster, index, inside, fresh, request.replace)


def applied(
    core: Core, site: IndexedCluster, draft: Changed
) -> tuple[list[Change], Callable[[], None]]:
    """The cluster is another from here on. Returns what has to be written down, and what makes it
    what it was, where that cannot be."""
    left = [q for q in core.quarantine.values() if q.machine == draft.gone]
    changes: list[Change] = [
        put_cluster(draft.cluster),
        *allocations.with_machines(site, draft.machines),
        *map(drop_quarantine, left),  # its devices are nobody's any more
    ]
    if draft.gone in site.drained:
        changes.append(Delete(machines.DRAIN, draft.gone))
    core.lift(site)
    again, was_down = site.as_it_was(), core.down & {draft.gone}
    for quarantined in left:
        del core.quarantine[quarantined.key]
    site.redefine(draft.cluster, draft.index, draft.machines)
    places = core.inventory.by_machine
    places.pop(draft.gone, None)
    core.down.discard(draft.gone)
    for name in draft.fresh:
        places[name] = site
        core.mark_down(name, told=False)  # until its devices are reset

    def undo() -> None:
        again()
        for name in draft.fresh:
            del places[name]
            core.down.discard(name)
        places.update(dict.fromkeys(site.places, site))
        core.down.update(was_down)
        for name in site.places.keys() & (site.drained | core.down):
            site.index.drain(name)
        for quarantined in left:
            site.index.take(quarantined.placement)
            core.quarantine[quarantined.key] = quarantined

    return changes, undo


def _loose(core: Core, site: IndexedCluster, gone: str) -> list[Placement]:
    """What is held in the index and does not come along: places kept for waiters, which are
    planned anew, and devices of the machine that goes which still had to be reset."""
    kept = [p for r in core.reservations.values() if r.goal.site is site for p in r.held]
    kept += [pending.target for pending in core.moves.values() if pending.site is site]
    return kept + [q.placement for q in core.quarantine.values() if q.machine == gone]


def _check_agent(
    registry: Registry,
    core: Core,
    site: IndexedCluster,
    name: str,
    fresh: Sequence[str],
    action: str,
) -> None:
    known = registry.agent(name, action)
    if fresh.count(name) > 1:
        raise InvalidRequest(
            f"agent {name} is named {fresh.count(name)} times",
            asked=action,
            would_work="name each agent once",
        )
    if (other := core.inventory.by_machine.get(name)) is not None:
        raise WrongState(f"agent {name} is in cluster {other.cluster.name} already", asked=action)
    if known.record.family != site.cluster.family.name:
        raise InvalidRequest(
            f"agent {name} has devices of family {known.record.family}, and the cluster those of "
            f"{site.cluster.family.name}",
            asked=action,
            would_work="a cluster of each",
        )


def _check_empty(core: Core, site: IndexedCluster, name: str, action: str) -> None:
    if name not in site.places:
        raise NotFound(
            f"there is no machine {name} in cluster {site.cluster.name}",
            asked=action,
            would_work=f"there are: {', '.join(site.machines()[:8])}",
        )
    loose = set(_loose(core, site, name))
    others = [p for p in site.index.held() if p not in loose and name in site.parts(p.blocks)]
    if others:
        inside = sorted(entry.name for entry in core.on(name)) or ["a partition that is being made"]
        raise WrongState(
            f"machine {name} has {', '.join(inside[:8])}{' and more' if inside[8:] else ''} on it",
            asked=action,
            would_work=f"vipu-admin drain machine {name}, then remove these partitions: with "
            "--force, where it does not answer any more",
            partitions=inside[:100],
        )


def _machine(registry: Registry, name: str) -> Machine:
    record = registry.agents[name].record
    return Machine(record.name, record.host, record.port)


def _with_other(cluster: Cluster, name: str, by: Machine) -> tuple[LinkDomain, ...]:
    return tuple(
        replace(d, machines=tuple(by if m.name == name else m for m in d.machines))
        for d in cluster.domains
    )


def _with_more(
    cluster: Cluster, made: list[Machine], wanted: str, action: str
) -> tuple[LinkDomain, ...]:
    """More machines at the end of a link domain, or in new ones.

    Our choice where none is named: a domain each where a domain is one machine; the only domain
    where they have room; a new one where they are as many as each of those there has.
    """
    domains, family = cluster.domains, cluster.family
    most = family.max_domain_devices // family.devices_per_machine
    sizes = {len(domain.machines) for domain in domains}
    names = [domain.name for domain in domains]
    if not wanted and most == 1:
        new = _unused(names)
        return (*domains, *(LinkDomain(next(new), (machine,)) for machine in made))
    if not wanted and len(domains) == 1 and len(domains[0].machines) + len(made) <= most:
        wanted = names[0]
    elif not wanted and sizes == {len(made)}:
        wanted = next(_unused(names))
    elif not wanted:
        raise InvalidRequest(
            f"it is not clear where {len(made)} machines belong: the link domains have "
            f"{' or '.join(map(str, sorted(sizes)))}",
            asked=action,
            would_work=f"--link-domain {names[-1]}, or a name of a new one",
        )
    grown = [d for d in domains if d.name == wanted] or [LinkDomain(wanted, ())]
    if len(grown[0].machines) + len(made) > most:
        raise InvalidRequest(
            f"link domain {wanted} would have {len(grown[0].machines) + len(made)} machines, "
            f"more than {most}",
            asked=action,
            would_work="another --link-domain",
        )
    last = replace(grown[0], machines=(*grown[0].machines, *made))
    if wanted in names:
        return tuple(last if domain.name == wanted else domain for domain in domains)
    return (*domains, last)


def _unused(names: Sequence[str]) -> Iterator[str]:
    return (f"ild{i}" for i in count(len(names)) if f"ild{i}" not in names)
