"""Nodes chosen by the switches at which they hang (topology/tree): few leaves, and near ones."""

from __future__ import annotations

from dataclasses import dataclass

from podwright.slurm.gpus.requests._search import Search
from podwright.slurm.gpus.requests._values import SlurmCluster

_U32 = (1 << 32) - 1


@dataclass
class _Switch:
    """One switch; `level` 0 is a leaf, `parent` -1 has none."""

    nodes: set[int]
    level: int
    parent: int
    count: int = 0
    cpus: int = 0
    required: bool = False


def switches_of(site: SlurmCluster) -> list[_Switch]:
    """All switches, in the order of topology.conf, with the nodes below each."""
    number = {name: n for n, (name, _) in enumerate(site.nodes)}
    rows = {name: set(nodes) for name, nodes in (*site.leaves, *site.above)}
    leaves = {name for name, _ in site.leaves}
    order = list(rows)

    def level(name: str) -> int:
        return 0 if name in leaves else 1 + max((level(n) for n in rows[name]), default=0)

    def below(name: str) -> set[int]:
        if name in leaves:
            return {number[n] for n in rows[name] if n in number}
        return set().union(*(below(n) for n in rows[name]))

    parent = {
        child: order.index(name) for name in order if name not in leaves for child in rows[name]
    }
    return [_Switch(below(name), level(name), parent.get(name, -1)) for name in order]


def _distance(table: list[_Switch], a: int, b: int) -> int | None:
    """Steps between two switches; None where nothing joins them."""

    def line(at: int) -> list[int]:
        found = [at]
        while table[found[-1]].parent >= 0:
            found.append(table[found[-1]].parent)
        return found

    one, other = line(a), line(b)
    for steps, at in enumerate(one):
        if at in other:
            return steps + other.index(at)
    return None


def by_switches(search: Search, site: SlurmCluster) -> list[int] | None:
    """The chosen nodes; None where they do not do. Raises nothing: see Search.again."""
    job = search.job
    table = switches_of(site)
    left = set(search.left)
    offers: dict[int, int] = {}
    required = {n for n in left if search.rooms[n].name in job.required}
    if len(required) > search.high or not left:
        search.again = "no"
        return None
    for n in sorted(required):
        cpus = search.look(n)
        if not search.use(n, cpus):
            search.again = "no"
            return None
        offers[n] = cpus
    weights = sorted({search.rooms[n].weight for n in left})
    top = _top(search, table, left, required, weights)
    if top is None:
        search.again = "no"
        return None
    chosen = set(required)
    if required:
        if search.enough:
            return _done(search, chosen)
        if search.high <= 0:
            search.again = "no"
            return None
    reach = table[top].nodes & left
    best: set[int] = set()
    lighter: set[int] = set()
    gpus = [0] * len(job.asks)
    cpus_found, enough = 0, False
    for weight in weights:
        lighter |= best
        for n in sorted(left):
            if search.rooms[n].weight != weight or n in required or n not in reach:
                continue
            offers[n] = search.look(n)
            if offers[n]:
                best.add(n)
                cpus_found += offers[n]
                gpus = [g + one.total for g, one in zip(gpus, search.rooms[n].near, strict=True)]
        have = all(a.per_job <= f + g for a, f, g in zip(job.asks, job.found, gpus, strict=True))
        enough = enough or (
            cpus_found >= search.cpus_left and search.enough_nodes(len(best)) and have
        )
        asked = cpus_found >= search.cpus_left and len(best) >= search.nodes_left and have
        if asked if job.release.switches_count_asked_nodes else enough:
            break
    if not enough:
        search.again, search.hint = "without", reach
        return None
    if lighter and not _take_lighter(search, lighter, offers, chosen):
        return None
    for s in table:
        s.required = bool(s.nodes & (required | lighter))
        s.nodes &= reach & (best | chosen)
        s.count = len(s.nodes)
    found = _leaves(search, table, offers, chosen)
    if found:
        return _done(search, chosen)
    if found is not None and search.low_left <= 0 and search.cpus_left <= 0 and job.satisfied():
        return _done(search, chosen)
    search.again, search.hint = "only", chosen
    return None


def _done(search: Search, chosen: set[int]) -> list[int] | None:
    found = sorted(chosen)
    search.settle(found)
    return found


def _top(
    search: Search,
    table: list[_Switch],
    left: set[int],
    required: set[int],
    weights: list[tuple[int, int]],
) -> int | None:
    """The switch above all nodes that count: the highest with the named, or the lightest, nodes."""
    top, lowest = None, weights[-1]
    for at, switch in enumerate(table):
        nodes = switch.nodes & left
        switch.cpus = sum(search.rooms[n].cpus for n in nodes)
        if required & nodes and (top is None or switch.level > table[top].level):
            top = at
        if required or not nodes or not search.enough_nodes(len(nodes)):
            continue
        if search.job.release.switches_count_cpus and search.cpus_left > switch.cpus:
            continue
        lightest = min(search.rooms[n].weight for n in nodes)
        if top is None or (switch.level >= table[top].level and lightest <= lowest):
            top, lowest = at, lightest
    if top is not None and not required <= table[top].nodes:
        return None
    return top


def _take_lighter(
    search: Search, lighter: set[int], offers: dict[int, int], chosen: set[int]
) -> bool:
    """All nodes that are lighter than the last needed; False where no more may follow."""
    again = search.job.release.rechecks_lighter_nodes
    for n in sorted(lighter):
        if search.high > 0 and search.use(n, offers[n]):
            chosen.add(n)
        elif again:
            lighter.discard(n)
    if not again:
        chosen |= lighter
    if search.high <= 0 and not search.enough:
        search.again, search.hint = "only", set(chosen)
        return False
    return True


def _leaves(
    search: Search, table: list[_Switch], offers: dict[int, int], chosen: set[int]
) -> bool | None:
    """More nodes: of leaves in use, then leaf by leaf, the nearest that fits.

    True when enough, None where all that the job may have are not (ESLURM_TOPO_MAX_NODE_LIMIT)."""
    if search.enough and chosen:
        return True
    leaves = [at for at, s in enumerate(table) if s.level == 0]
    bounded = search.job.release.bounds_leaves_in_use
    for at in leaves:
        used = table[at].required
        if used and _of_leaf(search, table[at], offers, chosen, in_use=True):
            return True
        if used and bounded and search.high <= 0:
            return None
    near: list[int | None] = [0] * len(table)

    def add(at: int) -> None:
        for other in range(len(table)):
            far, now = _distance(table, at, other), near[other]
            near[other] = None if far is None or now is None else now + far

    for at, switch in enumerate(table):
        if switch.required:
            add(at)
    before = search.nodes_left + 1
    while before != search.nodes_left and search.high > 0:
        before = search.nodes_left
        best = _nearest(search, table, [at for at in leaves if not table[at].required], near)
        if best is None:
            return False
        add(best)
        if _of_leaf(search, table[best], offers, chosen):
            return True
        if bounded and search.high <= 0:
            return None
        table[best].count = 0
    return False


def _of_leaf(
    search: Search,
    leaf: _Switch,
    offers: dict[int, int],
    chosen: set[int],
    *,
    in_use: bool = False,
) -> bool:
    """Nodes of one leaf. in_use: it has nodes of the job, so that in some releases the most nodes
    do not bound it, and what is left of them wraps around below zero (_eval_nodes_topo)."""
    bound = not in_use or search.job.release.bounds_leaves_in_use
    for n in sorted(leaf.nodes):
        if n in chosen or not offers.get(n) or (bound and search.high <= 0):
            continue
        if search.use(n, offers[n]):
            search.high = search.high if bound else search.high & _U32
            chosen.add(n)
            if search.enough:
                return True
        else:
            offers[n] = 0
    return False


def _nearest(
    search: Search, table: list[_Switch], leaves: list[int], near: list[int | None]
) -> int | None:
    best: int | None = None
    by_cpus = search.job.release.switches_count_cpus
    for at in leaves:
        here = near[at]
        if best is None or here is None or not table[at].count:
            if table[at].count and here is not None:
                best = at
            continue
        better, fits = _compare(search, table, at, best)
        other = near[best]
        assert other is not None
        closer = here < other and (fits if by_cpus else better >= 0)
        if closer or (here == other and better > 0):
            best = at
    return best


def _compare(search: Search, table: list[_Switch], i: int, j: int) -> tuple[int, bool]:
    """(1 where the first is better, -1 where the second, and whether the first fits)."""

    def fits(at: int) -> bool:
        enough = table[at].count >= search.nodes_left
        return enough and (
            not search.job.release.switches_count_cpus or table[at].cpus >= search.cpus_left
        )

    while True:
        one, other = fits(i), fits(j)
        if one and other:
            if table[i].count != table[j].count:
                return (1 if table[i].count < table[j].count else -1), True
            break
        if one or other:
            return (1 if one else -1), one
        up, down = table[i].parent, table[j].parent
        if up == down or up < 0 or down < 0:
            break
        i, j = up, down
    if table[i].count != table[j].count:
        return (1 if table[i].count > table[j].count else -1), one
    if table[i].level != table[j].level:
        return (1 if table[i].level < table[j].level else -1), one
    return 0, one


def leaves_of(site: SlurmCluster, nodes: set[int]) -> int:
    """How many leaves these nodes hang at."""
    return sum(s.level == 0 and bool(s.nodes & nodes) for s in switches_of(site))
