"""How many tasks and CPUs a node offers, and on which sockets: cores beside the wanted GPUs first.

On the first try only cores of sockets whose GPUs are wanted are offered; should that not do, all.
"""

from __future__ import annotations

from podwright.slurm.requests._counts import Wants
from podwright.slurm.requests._room import Near, Room


def _window(w: Wants, *, newer: bool) -> tuple[int, int | None]:
    """How many tasks one node must and may run."""
    tasks, low = w.tasks or 0, w.min_nodes or 1
    if w.tasks_per_node:
        return w.tasks_per_node, w.tasks_per_node
    if w.tasks_per_socket:
        return w.tasks_per_socket, None
    if w.tasks_per_gpu and newer and low != w.max_nodes:
        return w.tasks_per_gpu, tasks
    if w.tasks_per_gpu:
        return tasks // low, tasks // low
    if w.max_nodes == 1 and tasks:
        return tasks, tasks
    if w.max_nodes != 1 and (tasks == 1 or tasks == low == w.max_nodes):
        return 1, 1
    return 1, None


def offer(w: Wants, node: Room, totals: list[int], *, first: bool, nodes: int, newer: bool) -> int:
    """CPUs that the node offers, 0 where it cannot take part. Changes the node as Slurm does.

    totals: GPUs found so far for each ask; nodes: how many are still to be found.
    """
    low, most = _window(w, newer=newer)
    if w.tasks_per_socket and not w.tasks_per_node:
        most = w.tasks_per_socket * len(node.cores)
    fit = node.cpus // w.cpus
    most = 0 if fit < low else min(fit, fit if most is None else most)
    cpus = node.cpus
    step, needed_cores = low, 0
    if most:
        node.keep = list(node.cores) if newer else node.cores
    order = sorted(
        range(len(node.near)), key=lambda n: (0 if node.near[n].ask.per_socket else 1, n)
    )
    wanted: set[int] = set()
    for n in order if most else ():
        found = _one(
            w, node, node.near[n], totals[n], cpus, low, most, step, wanted,
            first=first, nodes=nodes, newer=newer,
        )  # fmt: skip
        if found is None:
            most = 0
            break
        cpus, most, cores = found
        if newer and node.near[n].ask.cpus_per_gpu:
            needed_cores = min(needed_cores, cores) if needed_cores else cores
    if not most:
        needed_cores = 0
    node.tasks, node.gpu_cpus = most, needed_cores
    if not w.cpus_per_gpu:
        cpus = min(cpus, max(most * w.cpus, needed_cores))
    return cpus if most else 0


def _estimate(w: Wants, one: Near) -> int:
    """Since 23.02: CPUs per GPU where tasks and GPUs divide evenly."""
    tasks, gpus = w.tasks or 0, one.ask.per_job
    if not tasks or not gpus:
        return 0
    if tasks >= gpus and tasks % gpus == 0:
        return tasks // gpus * w.cpus
    if gpus % tasks == 0 and w.cpus % (gpus // tasks) == 0:
        return w.cpus // (gpus // tasks)
    return 0


def _bound(one: Near, total: int, nodes: int, sockets: int, *, newer: bool) -> int:
    """GPUs that this node may give at most, 0 for no bound."""
    ask = one.ask
    left = max(ask.per_job - total, 0)
    if newer and ask.per_job:
        if left:
            left -= nodes - 1
        else:
            left = ask.per_node or max(ask.per_task, ask.per_socket * sockets, 1)
    if left < 0:  # unsigned in Slurm: no bound
        left = 0
    return min(left, one.most) if one.most and left else one.most


def _one(
    w: Wants,
    node: Room,
    one: Near,
    total: int,
    cpus: int,
    low: int,
    most: int,
    step: int,
    wanted: set[int],
    *,
    first: bool,
    nodes: int,
    newer: bool,
) -> tuple[int, int, int] | None:
    """(CPUs, tasks, cores needed) for one ask; None where the node lacks it."""
    ask, cores = one.ask, node.keep
    if newer and first and not one.uncut:
        one.uncut = one.total
    elif newer and one.uncut:
        one.total = one.uncut
    sockets = max(1, w.sockets_per_node or 0)
    bound = _bound(one, total, nodes, sockets, newer=newer)
    if bound and max(ask.per_node, ask.per_socket * sockets) > bound:
        return None
    if ask.per_node and ask.per_task:
        tasks = ask.per_node // ask.per_task
        if tasks > most or tasks < low:
            return None
        if most > tasks:
            most = bound
    per_gpu = one.cpus_per_gpu(w) or (_estimate(w, one) if newer and first else 0)
    seen, here, enough = len(one.anywhere), sum(cores), False
    least, offered, chosen = max(low, 1) * w.cpus, 0, 0
    for s in sorted(range(len(cores)), key=lambda s: (-cores[s], s)):
        beside = one.beside[s]
        if first and per_gpu:
            beside = min(beside, cores[s] // per_gpu)
        around = len(one.anywhere) + beside
        if ask.per_socket > around or not around:
            if ask.per_socket > around:
                one.total -= one.beside[s]
                one.beside[s] = 0
            if first and here > least:
                gone = min(here - least, cores[s])
                _drop(node, s, gone)
                here -= gone
                cpus = min(cpus, here)
        offered += cores[s]
        if first and not cores[s]:
            continue
        seen += beside
        if (newer and one.anywhere) or (not enough and (beside or not newer)):
            wanted.add(s)
            chosen += 1
        if (newer or not one.anywhere) and (
            (bound and seen >= bound) or (ask.per_node and seen >= ask.per_node)
        ):
            enough = True
    if per_gpu:
        bound = min(cpus // per_gpu, bound) if bound else cpus // per_gpu
        seen = min(seen, bound)
    if newer:
        seen = min(seen, bound or seen, ask.per_node or seen)
    if not seen or max(ask.per_node, ask.per_task) > seen:
        return None
    if newer and per_gpu:
        by_gpus = per_gpu * seen
        if by_gpus < low * w.cpus or by_gpus < w.least_on_node:
            most = low
        else:
            most = min(most, by_gpus // w.cpus)
    if ask.per_task:
        most = min(most, seen // ask.per_task)
        if newer and not ask.per_node:
            seen = min(most * ask.per_task, seen)
    if newer and ask.tasks_per_gpu:
        fit = seen * ask.tasks_per_gpu
        while fit > most:
            fit -= ask.tasks_per_gpu
            seen -= 0 if ask.per_node else 1
        most = min(most, fit)
    most = most // step * step
    if not most:
        return None
    if first:
        for s in set(range(len(cores))) - wanted:
            offered -= cores[s]
            _drop(node, s, cores[s])
        cpus = min(cpus, offered)
    needed = most * w.cpus
    while needed > offered and most >= low:
        most -= 1
        needed = most * w.cpus
        if newer and not ask.per_node and (ask.per_task or ask.tasks_per_gpu):
            seen = min(seen, most * ask.per_task if ask.per_task else most // ask.tasks_per_gpu)
    if per_gpu:
        gpus = ask.per_node or ask.per_socket * chosen or ask.per_task * most or seen or 1
        if newer:
            most = min(most, gpus * per_gpu)
        needed = max(needed, gpus * per_gpu)
    if needed > offered:
        return None
    cpus = _trim(node, needed, wanted, cpus, first=first)
    if per_gpu:
        one.total = min(cpus // per_gpu, one.total)
        if max(ask.per_node, ask.per_task) > one.total:
            return None
    if newer:
        one.total = min(seen, one.total)
    return cpus, most, needed


def _drop(node: Room, socket: int, count: int) -> None:
    node.keep[socket] -= count
    if node.cores is not node.keep:
        node.cores[socket] = max(node.cores[socket] - count, 0)


def _trim(node: Room, needed: int, wanted: set[int], cpus: int, *, first: bool) -> int:
    """Give back cores beyond those needed: unwanted sockets first, then the fullest in turn.

    Since 23.02 this bounds how many cores of a socket may be used, and not yet which.
    """
    cores = node.keep
    for s in range(len(cores)) if not first else ():
        if s not in wanted:
            gone = min(max(sum(cores) - needed, 0), cores[s])
            cores[s] -= gone
            cpus = min(cpus, sum(cores)) if gone else cpus
    while wanted and sum(cores) > needed:
        fullest = max(wanted, key=lambda s: (cores[s], -s))
        if not cores[fullest]:
            break
        cores[fullest] -= 1
        cpus = min(cpus, sum(cores))
    if node.cores is not cores:
        node.cores = [n if kept else 0 for n, kept in zip(node.cores, cores, strict=True)]
    return cpus
