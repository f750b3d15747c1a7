"""Where an idle Slurm 22.05 puts a request: nodes, cores, GPUs.

Rules of select/cons_tres with CR_Core, as confirmed on real Slurm: cores are first offered only
on the sockets whose GPUs are wanted (and, should that not do, everywhere); nodes fill in order,
each keeping one core for every node still to come; cores are taken socket by socket in turn;
GPUs then follow the cores.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.slurm.requests._values import NodeGrant, Shape
from podwright.slurm.requests._wants import Wants


@dataclass
class _Offer:
    """What one node offers: usable cores per socket, and CPUs at most."""

    cores: list[int]
    cpus: int


def _window(w: Wants, nodes_low: int) -> tuple[int, int | None]:
    """How many tasks one node must and may run."""
    if w.tasks_per_node:
        return w.tasks_per_node, w.tasks_per_node
    if w.tasks_per_gpu:
        share = (w.tasks or 0) // nodes_low
        return share, share
    if w.max_nodes == 1:
        return (1, None) if w.tasks is None else (w.tasks, w.tasks)
    if w.tasks == 1 or (w.tasks is not None and w.tasks == w.min_nodes == w.max_nodes):
        return 1, 1
    return 1, None


def offer(w: Wants, shape: Shape, nodes_low: int, near_only: bool) -> _Offer | None:
    """What a node offers; None where it cannot take part. `near_only`: cores beside GPUs."""
    low, most = _window(w, nodes_low)
    cpus = shape.cores
    fit = cpus // w.cpus_per_task
    if fit < low:
        return None
    high = fit if most is None else min(fit, most)
    cap = w.per_node or w.per_job
    if w.per_node and w.per_job:
        cap = min(w.per_node, w.per_job)
    per_gpu = w.cpus_per_gpu or w.tasks_per_gpu * w.cpus_per_task
    if per_gpu:
        possible = cpus // per_gpu
        if possible == 0 or max(w.per_node, w.per_task, w.per_socket) > possible:
            return None
        cap = min(cap, possible) if cap else possible
    if cap and max(w.per_node, w.per_socket * max(1, w.sockets_per_node)) > cap:
        return None
    if w.per_node and w.per_task:
        tasks = w.per_node // w.per_task
        if tasks == 0 or tasks > high or tasks < low:
            return None
        if high > tasks:
            high = cap
    need = max(low, 1) * w.cpus_per_task
    cores = [shape.cores_per_socket] * shape.sockets
    wanted: set[int] = set()
    total, used, enough = 0, 0, False
    for socket in range(shape.sockets):
        here = len(shape.gpus_on(socket))
        if near_only and per_gpu:
            here = min(here, cores[socket] // per_gpu)
        if (w.per_socket > here or here == 0) and near_only:
            spare = max(0, sum(cores) - need)
            gone = min(spare, cores[socket])
            cores[socket] -= gone
            cpus = min(cpus, sum(cores))
        if w.per_socket:
            here = w.per_socket if here >= w.per_socket else 0
        used += cores[socket]
        if near_only and cores[socket] == 0:
            continue
        total += here
        if not enough:
            wanted.add(socket)
        enough = enough or bool((cap and total >= cap) or (w.per_node and total >= w.per_node))
    if per_gpu:
        limit = cpus // per_gpu
        cap = min(cap, limit) if cap else limit
        total = min(total, cap)
    if total == 0 or w.per_node > total or w.per_task > total:
        return None
    if w.per_task:
        high = min(high, total // w.per_task)
    high = high // low * low if low else high
    if high == 0:
        return None
    if near_only:
        for socket in set(range(shape.sockets)) - wanted:
            used -= cores[socket]
            cores[socket] = 0
        cpus = min(cpus, sum(cores))
    required = high * w.cpus_per_task
    while required > used and high >= low:
        high -= 1
        required = high * w.cpus_per_task
    if per_gpu:
        counted = w.per_node or w.per_socket * len(wanted) or w.per_task * high or total
        required = max(required, counted * per_gpu)
    if required > used:
        return None
    _trim(cores, required, wanted, far_first=not near_only)
    return _Offer(cores, min(min(cpus, sum(cores)), high * w.cpus_per_task))


def _trim(cores: list[int], required: int, wanted: set[int], *, far_first: bool) -> None:
    """Give back cores beyond those required: far sockets first, then the fullest in turn."""
    if far_first:
        for socket, here in enumerate(cores):
            if socket not in wanted:
                cores[socket] = here - min(here, max(0, sum(cores) - required))
    while sum(cores) > required:
        fullest = max(wanted, key=lambda s: (cores[s], -s))
        if cores[fullest] == 0:
            break
        cores[fullest] -= 1


def place(w: Wants, shape: Shape) -> list[NodeGrant] | None:
    """Nodes with their tasks, cores and GPUs; None where no idle cluster of this shape can."""
    low = w.min_nodes or 1
    cpus = max(w.cpus, (w.tasks or 0) * w.cpus_per_task, low)
    for near_only in (True, False):
        one = offer(w, shape, low, near_only)
        if one is None:
            continue
        chosen = _choose(w, shape, one, low, cpus)
        if chosen is None:
            continue
        tasks = _spread(w, shape, chosen, cpus)
        return _with_gpus(w, shape, one, tasks)
    return None


def _choose(w: Wants, shape: Shape, one: _Offer, low: int, cpus: int) -> list[int] | None:
    """CPUs at most on each chosen node, in order."""
    most = min(w.max_nodes or w.tasks or shape.nodes, shape.nodes)
    left, nodes_left, gpus = cpus, low, 0
    floor = w.cpus_per_task if w.cpus_said else 1
    chosen: list[int] = []
    per_gpu = w.cpus_per_gpu or w.tasks_per_gpu * w.cpus_per_task
    on_node = min(shape.gpus, one.cpus // per_gpu) if per_gpu else shape.gpus
    if w.per_socket:
        on_node = min(on_node, w.per_socket * shape.sockets)
    while not (nodes_left <= 0 and left <= 0 and gpus >= w.per_job):
        if len(chosen) >= most:
            return None
        take = one.cpus
        room = left - max(nodes_left - 1, 0)
        if take > room:
            take = max(room, floor)
        chosen.append(take)
        left -= take
        nodes_left -= 1
        gpus += on_node
    return chosen


def _spread(w: Wants, shape: Shape, room: list[int], cpus: int) -> list[int]:
    """Tasks of each node: one each, then in turn while there is room."""
    if w.tasks_per_node:
        return [w.tasks_per_node] * len(room)
    total = min(sum(room), max(cpus, len(room) * w.cpus_per_task))
    count = total // w.cpus_per_task if w.cpus_per_task > 1 else total
    count = max(count, 1)
    tasks = [0] * len(room)
    for n in range(len(room)):
        if sum(tasks) < count:
            tasks[n] = 1
    moved = True
    while sum(tasks) < count and moved:
        moved = False
        for n, cap in enumerate(room):
            if sum(tasks) >= count:
                break
            if cap - tasks[n] * w.cpus_per_task < w.cpus_per_task:
                continue
            if w.per_task and (tasks[n] + 1) * w.per_task > shape.gpus:
                continue
            tasks[n] += 1
            moved = True
    return tasks


def _cores(w: Wants, offered: list[int], cpus: int) -> list[int]:
    """Cores taken on each socket: whole tasks packed first (--cpus-per-task), else in turn."""
    taken = [0] * len(offered)
    if w.cpus_per_task > 1:
        for socket, here in enumerate(offered):
            pack = min(here - here % w.cpus_per_task, cpus)
            taken[socket] += pack
            cpus -= pack
    while cpus > 0:
        before = cpus
        for socket, here in enumerate(offered):
            if cpus > 0 and taken[socket] < here:
                taken[socket] += 1
                cpus -= 1
        if before == cpus:
            break
    return taken


def _with_gpus(w: Wants, shape: Shape, one: _Offer, tasks: list[int]) -> list[NodeGrant]:
    cores = [_cores(w, one.cores, t * w.cpus_per_task) for t in tasks]
    gpus: list[list[int]] = [[] for _ in tasks]
    if w.per_node:
        gpus = [_per_node(w.per_node, shape, c) for c in cores]
    elif w.per_socket:
        gpus = [_per_socket(w, shape, c) for c in cores]
    elif w.per_task:
        gpus = [_by_task(w, shape, c, t) for c, t in zip(cores, tasks, strict=True)]
    else:
        gpus = _per_job(w, shape, cores)
    return [
        NodeGrant(tuple(sorted(g)), t, tuple(c)) for g, t, c in zip(gpus, tasks, cores, strict=True)
    ]


def _per_node(count: int, shape: Shape, cores: list[int]) -> list[int]:
    """One beside each socket in use, then more beside those, then any."""
    used = [s for s, n in enumerate(cores) if n]
    order = [shape.gpus_on(s)[0] for s in used if shape.gpus_on(s)]
    order += [g for s in used for g in shape.gpus_on(s)[1:]]
    order += [g for s in range(shape.sockets) if s not in used for g in shape.gpus_on(s)]
    return order[:count]


def _per_socket(w: Wants, shape: Shape, cores: list[int]) -> list[int]:
    used = [s for s, n in enumerate(cores) if n]
    more = [s for s in range(shape.sockets) if s not in used]
    used += more[: max(0, w.sockets_per_node - len(used))]
    return [g for s in used for g in shape.gpus_on(s)[: w.per_socket]]


def _by_task(w: Wants, shape: Shape, cores: list[int], tasks: int) -> list[int]:
    """As many as the tasks that Slurm counts on each socket, then any."""
    chosen: list[int] = []
    counted = 0
    for socket, here in enumerate(cores):
        on_socket = min(here, tasks - counted)  # 22.05 counts a core as a task here
        counted += on_socket
        for gpu in shape.gpus_on(socket):
            if (on_socket or socket == 0) and len(chosen) < counted * w.per_task:
                chosen.append(gpu)
    rest = [g for s in range(shape.sockets) for g in shape.gpus_on(s) if g not in chosen]
    return chosen + rest[: max(0, tasks * w.per_task - len(chosen))]


def _per_job(w: Wants, shape: Shape, cores: list[list[int]]) -> list[list[int]]:
    """Node by node beside the cores in use, leaving one for each node to come; then fill up."""
    per_gpu = w.cpus_per_gpu or w.tasks_per_gpu * w.cpus_per_task
    granted: list[list[int]] = []
    left = w.per_job
    for n, here in enumerate(cores):
        most = left - (len(cores) - n - 1)
        if per_gpu:
            most = min(most, sum(here) // per_gpu)
        near = [g for s, used in enumerate(here) if used for g in shape.gpus_on(s)]
        far = [g for s, used in enumerate(here) if not used for g in shape.gpus_on(s)]
        take = near[: max(most, 0)] or far[:1]
        granted.append(take)
        left -= len(take)
    for take in granted:
        for gpu in range(shape.gpus):
            if left > 0 and gpu not in take:
                take.append(gpu)
                left -= 1
    return granted
