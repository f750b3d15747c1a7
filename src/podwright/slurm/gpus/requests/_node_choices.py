"""Other ways to choose nodes than side by side: the least loaded, spread out, or a single one."""

from __future__ import annotations

from podwright.slurm.gpus.requests._search import Search


def _by_weight(search: Search) -> list[list[int]]:
    weights = sorted({search.rooms[n].weight for n in search.left})
    return [[n for n in search.left if search.rooms[n].weight == w] for w in weights]


def _start(search: Search) -> list[int] | None:
    """The nodes that are named, taken; None where they do not do."""
    job = search.job
    if job.tasks:
        search.high = min(search.high, job.tasks)
    chosen: list[int] = []
    for n in search.left:
        if search.rooms[n].name not in job.required:
            continue
        if search.high <= 0 or not search.use(n, search.look(n)):
            search.again = "no"
            return None
        chosen.append(n)
    if chosen and not search.enough and search.high <= 0:
        search.again = "no"
        return None
    return chosen


def _end(search: Search, chosen: list[int]) -> list[int] | None:
    done = search.enough or (
        search.cpus_left <= 0 and search.low_left <= 0 and search.job.satisfied()
    )
    if not done:
        return None
    search.settle(chosen)
    return sorted(chosen)


def least_loaded(search: Search, count: int) -> list[int] | None:
    """Nodes of the lightest weight first, of those the one with the largest free share."""
    chosen = _start(search)
    if chosen is None:
        return None
    for some in _by_weight(search):
        left = [n for n in some if n not in chosen]
        last = -1
        while left and search.high > 0 and not (chosen and search.enough):
            best, offered = -1, 0
            for n in left:
                cpus = search.look(n)
                if not search.job.release.compares_uncut_nodes:
                    cpus = _clipped(search, n, cpus)
                if search.job.release.offers_last_node:
                    offered = cpus
                if cpus and (best < 0 or _freer(search, n, best)):
                    best, offered = n, cpus
                    if search.rooms[n].most_cpus == last:
                        break
            if best < 0:
                break
            left.remove(best)
            if search.use(best, offered):
                last = search.rooms[best].most_cpus
                chosen.append(best)
    return _end(search, chosen)


def _clipped(search: Search, n: int, cpus: int) -> int:
    """What a node would give, cut down already while nodes are compared (_cpus_to_use).

    Once more CPUs are taken than were wanted, a node that offered none gives the least of a node.
    """
    job, node = search.job, search.rooms[n]
    if job.whole:
        return cpus
    room = search.most_cpus - max(search.low_left - 1, 0) * job.cpus_per_core(node.threads)
    if cpus > room:
        cpus = max(room, job.least, job.least_gpu_cpus)
        node.cpus = cpus
    node.worth = node.cpus + node.gpus
    return cpus


def _freer(search: Search, one: int, other: int) -> bool:
    a, b = search.rooms[one], search.rooms[other]
    return b.most_cpus * a.shape.all_cpus < a.most_cpus * b.shape.all_cpus


def spread_in_order(search: Search, count: int) -> list[int] | None:
    """Nodes of the lightest weight first, in their order."""
    chosen = _start(search)
    if chosen is None:
        return None
    for some in _by_weight(search):
        for n in some:
            if n in chosen or search.high <= 0 or (chosen and search.enough):
                continue
            cpus = search.look(n)
            if cpus and search.use(n, cpus):
                chosen.append(n)
    return _end(search, chosen)


def spread_out(search: Search, count: int) -> list[int] | None:
    """A task on every node in turn, and more nodes where those do not do."""
    job = search.job
    if job.tasks:
        search.high = min(search.high, job.tasks)
    offers = {n: search.look(n) for n in search.left}
    used: dict[int, int] = {}
    nodes, high, cpus = search.nodes_left, search.high, search.cpus_left
    with_cpus = [n for n in search.left if offers[n]]
    for n in sorted(search.left):
        between = with_cpus and with_cpus[0] <= n <= with_cpus[-1]
        if not between or search.rooms[n].name not in job.required:
            continue
        if high <= 0:
            search.again = "no"
            return None
        nodes, high, cpus = nodes - 1, high - 1, cpus - job.cpus
        if offers[n]:
            used[n] = job.cpus  # a named one that offers nothing is counted, and left out
    groups = [[n for n in some if offers[n] and n not in used] for some in _by_weight(search)]
    if not job.release.spreads_over_weights:
        groups = [[n for some in groups for n in some]]
    before = search.high
    while True:
        for some in groups if high > 0 else []:
            for n in some:
                if n in used:
                    continue
                used[n] = job.cpus
                nodes, high, cpus = nodes - 1, high - 1, cpus - job.cpus
                if high < 0:
                    high = 1 << 30  # an unsigned count that goes below zero
                if high <= 0 or nodes <= 0:
                    break
        moved = True
        while cpus > 0 and moved:
            moved = False
            for n in sorted(used):
                if used[n] < offers[n]:
                    used[n] += job.cpus
                    cpus -= job.cpus
                    moved = cpus > 0
                    if cpus <= 0:
                        break
        if (cpus <= 0 and job.satisfied()) or high <= 0 or before == high:
            break
        nodes, before = nodes or 1, high
    chosen = []
    for n in sorted(used):
        if search.use(n, max(used[n], job.least)):
            chosen.append(n)
    done = search.cpus_left <= 0 and search.low_left <= 0 and job.satisfied()
    if not done:
        return None
    search.settle(chosen)
    return chosen
