"""Which nodes a job gets: in order, each keeping a core for every node still to come."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from podwright.slurm.requests._counts import Ask, Wants
from podwright.slurm.requests._offer import offer
from podwright.slurm.requests._room import Room, room
from podwright.slurm.requests._values import Shape


@dataclass
class _Search:
    """One search over the nodes; `totals` are the GPUs found so far for each ask."""

    w: Wants
    nodes: list[Room]
    low: int
    high: int
    newer: bool
    totals: list[int] = field(default_factory=list)
    tasks: int = 0  # still to be laid (since 23.02)


def choose(w: Wants, shape: Shape, *, newer: bool) -> list[Room] | None:
    """The chosen nodes, in order; None where no idle cluster of this shape can hold the job."""
    one = room(w, shape, newer=newer)
    low = w.min_nodes or 1
    if one is None or low > shape.nodes:
        return None
    if w.tasks_per_node and w.tasks:
        low = max(low, -(-w.tasks // w.tasks_per_node))
    high = limit = w.max_nodes or shape.nodes
    if w.tasks and high > w.tasks and not (newer and w.tasks_per_node):
        high = max(w.tasks, low)
    # More nodes than all that is asked for change nothing.
    needed = max(low, high if w.max_nodes else 0, w.tasks or 0, w.min_cpus, *_gpus(w)) + 1
    nodes = [copy.deepcopy(one) for _ in range(min(shape.nodes, needed))]
    whole = [list(node.cores) for node in nodes]
    search = _Search(w, nodes, low, high, newer)
    chosen = _try(search, list(range(len(nodes))), first=True)
    left = list(range(len(nodes)))
    search.high = limit if newer else high
    most = max(node.worth for node in nodes)
    count = 0 if chosen is None else most
    while count < most - 1 and chosen is None:
        count += 1
        for node, cores in zip(nodes, whole, strict=True):
            node.cores = list(cores)
        poor = [n for n in left if nodes[n].worth <= count]
        if len(left) > low:
            poor = poor[: len(left) - low]
            left = [n for n in left if n not in poor]
            if newer and poor:
                count -= 1
            if not poor and count != 1:
                continue
        chosen = _try(search, list(left), first=False)
        if len(left) <= low:
            break
    if chosen is None:
        return None
    for n in chosen:
        nodes[n].cpus = min(nodes[n].cpus, nodes[n].used())
    return [nodes[n] for n in chosen]


def _gpus(w: Wants) -> list[int]:
    return [ask.per_job for ask in w.asks]


def _try(search: _Search, left: list[int], *, first: bool) -> list[int] | None:
    w, newer = search.w, search.newer
    asked = w.max_nodes or search.w.min_nodes or 1
    if len(left) < search.low:
        return None
    search.totals = [0] * len(w.asks)
    nodes_left = (min if w.gpus_per_job else max)(search.low, asked)
    cpus_left = w.min_cpus
    per_node, whole = _least_cpus(w)
    most_cpus = max(cpus_left, per_node * nodes_left, whole)
    search.tasks = _tasks(w, most_cpus, search.high)
    offers: dict[int, int] = {}
    for n in left:
        cpus = offer(
            w,
            search.nodes[n],
            search.totals,
            first=first,
            nodes=max(search.low, 1) if newer else 1,
            newer=newer,
        )
        if cpus:
            offers[n] = cpus
    chosen: list[int] = []
    for run in _runs(list(offers)):
        high = search.high - len(chosen)
        if nodes_left <= 1:
            run = _single(search, run, offers, cpus_left) or run
        for n in run:
            if high <= 0 or (nodes_left <= 0 and cpus_left <= 0 and _satisfied(search)):
                break
            if high == 1 and offers[n] < cpus_left:
                continue
            used = _use(search, n, offers[n], most_cpus, search.low - len(chosen))
            if used is None:
                continue
            chosen.append(n)
            cpus_left -= used
            most_cpus -= used
            nodes_left -= 1
            high -= 1
        if nodes_left <= 0 and cpus_left <= 0 and _satisfied(search):
            break
    enough = nodes_left <= max(asked - search.low, 0)
    if cpus_left > 0 or not enough or not _satisfied(search):
        return None
    if newer:
        for n in chosen:
            node = search.nodes[n]
            node.cores = [min(a, b) for a, b in zip(node.cores, node.keep, strict=True)]
    return sorted(chosen)


def _runs(nodes: list[int]) -> list[list[int]]:
    """Nodes that stand side by side."""
    runs: list[list[int]] = []
    for n in nodes:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return runs


def _least_cpus(w: Wants) -> tuple[int, int]:
    """What --cpus-per-gpu makes of the GPUs: CPUs of a node, and of the whole job."""
    each, whole = 0, 0
    tasks, sockets = w.tasks_per_node or 0, w.sockets_per_node or 1
    nodes = w.min_nodes or 1
    for a in w.asks:
        count = a.per_node or a.per_socket * sockets or a.per_task * tasks
        if not (a.per_node or a.per_socket or a.per_task):
            count = 1
        each = max(each, a.cpus_per_gpu * count)
        whole = max(whole, a.cpus_per_gpu * all_gpus(a, nodes, sockets, max(tasks, 1) * nodes))
    return each, whole


def all_gpus(a: Ask, nodes: int, sockets: int, tasks: int) -> int:
    """GPUs of a whole job, by the first count that says so."""
    return a.per_job or a.per_node * nodes or a.per_socket * nodes * sockets or a.per_task * tasks


def _tasks(w: Wants, cpus: int, nodes: int) -> int:
    if w.cpus > 1:
        return w.tasks_per_node * nodes if w.tasks_per_node else cpus // w.cpus
    return cpus


def _satisfied(search: _Search) -> bool:
    return all(a.per_job <= t for a, t in zip(search.w.asks, search.totals, strict=True))


def _single(search: _Search, run: list[int], offers: dict[int, int], cpus: int) -> list[int]:
    """The node that alone has enough, with the least to spare."""
    fitting = [
        n
        for n in run
        if offers[n] >= cpus
        and all(
            not one.ask.per_job or total + one.total >= one.ask.per_job
            for one, total in zip(search.nodes[n].near, search.totals, strict=True)
        )
    ]
    return [min(fitting, key=lambda n: offers[n])] if fitting else []


def _use(search: _Search, n: int, cpus: int, most: int, nodes: int) -> int | None:
    """CPUs to take of this node; None where its GPUs do not do after all."""
    w, node = search.w, search.nodes[n]
    per_node, _ = _least_cpus(w)
    room_left = most - max(nodes - 1, 0)
    if cpus > room_left:
        cpus = max(room_left, w.least_on_node, (search.newer and node.gpu_cpus) or per_node)
        node.cpus = cpus
    node.worth = node.cpus + node.gpus
    if not w.gpus_per_job or not cpus:
        return cpus
    return _take_newer(search, node, cpus, nodes) if search.newer else _take(search, node, cpus)


def _take(search: _Search, node: Room, cpus: int) -> int:
    by_gpus = 0
    for n, one in enumerate(node.near):
        if not one.ask.per_job:
            continue
        gpus, each = one.total, one.ask.cpus_per_gpu
        if each:
            gpus = min(gpus, cpus // each)
            by_gpus = max(by_gpus, gpus * each)
        search.totals[n] += gpus
    return by_gpus or cpus


def _take_newer(search: _Search, node: Room, cpus: int, nodes: int) -> int | None:
    w = search.w
    spare = max(nodes - 1, 0)
    tasks = search.tasks - spare
    used = min(tasks, cpus // w.cpus)
    if used < tasks:
        spare += tasks - used
        tasks = used
    tasks = max(tasks, 1)
    if tasks < node.tasks:
        node.tasks = _fewer_tasks(node, tasks)
    used = min(tasks, node.tasks)
    least = max(w.cpus * used, w.least_on_node)
    if not used or cpus < least:
        node.cpus = 0
        search.tasks = tasks + spare
        return None
    by_gpus = 0
    for n, one in enumerate(node.near):
        ask = one.ask
        if not ask.per_job:
            continue
        gpus = one.total
        if ask.cpus_per_gpu:
            gpus = min(gpus, cpus // ask.cpus_per_gpu)
            by_gpus = max(by_gpus, gpus * ask.cpus_per_gpu)
        floor = gpus if ask.per_task or ask.tasks_per_gpu else max(ask.per_node, 1)
        if ask.per_job > search.totals[n]:
            gpus = min(gpus, ask.per_job - search.totals[n])
        one.total = max(gpus, floor)
        search.totals[n] += one.total
    if by_gpus and least < by_gpus < cpus:
        cpus = by_gpus
    node.cpus = cpus
    search.tasks = tasks - used + spare
    return cpus


def _fewer_tasks(node: Room, tasks: int) -> int:
    """Fewer tasks than the GPUs would allow: those of a task go with it. The tasks that remain."""
    for one in node.near:
        ask = one.ask
        if ask.per_node:
            continue
        if ask.per_task:
            one.total = min(one.total, tasks * ask.per_task)
        elif ask.tasks_per_gpu:
            gpus = tasks // ask.tasks_per_gpu
            tasks = gpus * ask.tasks_per_gpu
            one.total = min(one.total, gpus)
    return tasks
