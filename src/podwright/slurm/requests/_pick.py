"""Which GPUs of its nodes a job gets, once its cores are known: those beside the cores first.

Releases before 23.02 take one beside each socket in use and then fill up socket by socket; later
ones share the GPUs over the sockets as the cores are shared.
"""

from __future__ import annotations

from podwright.slurm.requests._counts import Wants
from podwright.slurm.requests._room import Near
from podwright.slurm.requests._spread import Laid

Picked = list[list[set[int]]]  # by node, by ask


def pick(w: Wants, laid: list[Laid], *, newer: bool) -> Picked | None:
    """GPUs of each ask on each node; None where Slurm fails to find them."""
    picked: Picked = [[set() for _ in w.asks] for _ in laid]
    totals = [0] * len(w.asks)
    if newer and any(not node.cpus for node in laid):
        return None
    if newer and any(ask.per_task for ask in w.asks):
        room = sum(sum(_tasks_by_socket(w, node, newer=True)) for node in laid)
        if room < (w.tasks or 0):
            return None
    more: list[bool] = [False] * len(w.asks)
    for n, node in enumerate(laid):
        for a, one in enumerate(node.room.near):
            taken = picked[n][a]
            left = len(laid) - n - 1
            if one.ask.per_node:
                (_by_node_newer if newer else _by_node)(one, node, taken)
            elif one.ask.per_socket:
                (_by_socket_newer if newer else _by_socket)(w, one, node, taken)
            elif one.ask.per_task:
                tasks = _tasks_by_socket(w, node, newer=newer)
                (_by_task_newer if newer else _by_task)(one, tasks, taken)
            else:
                _by_job(w, one, node, taken, totals[a], left, newer=newer)
                more[a] = totals[a] + len(taken) < one.ask.per_job
            totals[a] += len(taken)
    for n, node in enumerate(laid):
        for a, one in enumerate(node.room.near):
            if more[a] and totals[a] < one.ask.per_job:
                before = len(picked[n][a])
                _fill(one, picked[n][a], one.ask.per_job - totals[a], newer=newer)
                totals[a] += len(picked[n][a]) - before
    short = any(more[a] and totals[a] < ask.per_job for a, ask in enumerate(w.asks))
    return None if short else picked


def _take(some: list[int], taken: set[int], count: int) -> int:
    """Take up to `count` more of some GPUs, in the order of their numbers; how many were."""
    free = [gpu for gpu in some if gpu not in taken][: max(count, 0)]
    taken.update(free)
    return len(free)


def _used(node: Laid) -> list[int]:
    return [s for s, n in enumerate(node.cores) if n]


def _unused(node: Laid) -> list[int]:
    return [s for s, n in enumerate(node.cores) if not n]


def _by_node(one: Near, node: Laid, taken: set[int]) -> None:
    need = one.ask.per_node
    places = [one.anywhere, *(one.gpus[s] for s in _used(node))]
    for place in places:
        need -= _take(place, taken, min(need, 1))
    for place in (*places, *(one.gpus[s] for s in _unused(node))):
        need -= _take(place, taken, need)


def _by_node_newer(one: Near, node: Laid, taken: set[int]) -> None:
    need = one.ask.per_node
    for s in _used(node):
        need -= _take(one.gpus[s], taken, min(need, node.cores[s] * one.ask.per_node // node.cpus))
    for place in (
        one.anywhere,
        *(one.gpus[s] for s in _used(node)),
        *(one.gpus[s] for s in _unused(node)),
    ):
        need -= _take(place, taken, need)


def _sockets(w: Wants, one: Near, node: Laid, *, newer: bool) -> list[int]:
    """The sockets that count, where --sockets-per-node says how many."""
    used, asked = _used(node), w.sockets_per_node
    if not asked or asked <= len(used):
        return used
    for s in _unused(node):
        if len(used) < asked and len(one.gpus[s]) >= max(one.ask.per_socket, 1):
            used.append(s)
    return sorted(used)


def _by_socket(w: Wants, one: Near, node: Laid, taken: set[int]) -> None:
    for s in _sockets(w, one, node, newer=False):
        need = one.ask.per_socket - _take(one.gpus[s], taken, one.ask.per_socket)
        _take(one.anywhere, taken, need)


def _by_socket_newer(w: Wants, one: Near, node: Laid, taken: set[int]) -> None:
    sockets = _sockets(w, one, node, newer=True)
    need = len(_used(node)) * one.ask.per_socket
    need = max(need, len(sockets) * one.ask.per_socket)
    for s in sockets:
        need -= _take(one.gpus[s], taken, one.ask.per_socket)
    rest = [s for s in range(len(one.gpus)) if s not in sockets]
    for place in (one.anywhere, *(one.gpus[s] for s in sockets), *(one.gpus[s] for s in rest)):
        need -= _take(place, taken, need)


def _tasks_by_socket(w: Wants, node: Laid, *, newer: bool) -> list[int]:
    """Tasks of each socket, a core counting as a task; since 23.02 a task has its cores."""
    limit = w.tasks_per_node or node.tasks
    each = max(1, node.cpus // node.tasks) if newer else 1
    found = [0] * len(node.cores)
    for s, cores in enumerate(node.cores):
        tasks = -(-cores // each)
        if w.tasks_per_socket:
            tasks = min(tasks, w.tasks_per_socket)
        found[s] = min(tasks, limit - sum(found))
    return found


def _by_task(one: Near, tasks: list[int], taken: set[int]) -> None:
    each = one.ask.per_task
    for s, some in enumerate(one.gpus):
        if s == 0 or tasks[s]:
            _take(some, taken, sum(tasks[: s + 1]) * each - len(taken))
    for place in (one.anywhere, *one.gpus):
        _take(place, taken, sum(tasks) * each - len(taken))


def _by_task_newer(one: Near, tasks: list[int], taken: set[int]) -> None:
    need = sum(tasks) * one.ask.per_task
    for s, some in enumerate(one.gpus):
        need -= _take(some, taken, min(need, tasks[s] * one.ask.per_task))
    for place in (one.anywhere, *one.gpus):
        need -= _take(place, taken, need)


def _by_job(
    w: Wants, one: Near, node: Laid, taken: set[int], total: int, left: int, *, newer: bool
) -> None:
    """As many as there are beside the cores, one left for each node still to come."""
    most = one.ask.per_job - total - left
    per_gpu = one.cpus_per_gpu(w)
    if newer:
        most = min(most, one.total)
    if per_gpu:
        most = min(most, node.cpus // per_gpu)
    used = _used(node)
    if newer:
        most = max(most, 1)
        for s in used:
            share = node.cores[s] * most // node.cpus
            _take(one.gpus[s], taken, min(most - len(taken), share))
    for place in (one.anywhere, *(one.gpus[s] for s in used)):
        _take(place, taken, most - len(taken))
    for s in _unused(node):
        if not taken:
            _take(one.gpus[s], taken, 1)


def _fill(one: Near, taken: set[int], need: int, *, newer: bool) -> None:
    places = [*one.gpus, one.anywhere] if newer else [one.anywhere, *one.gpus]
    for place in places:
        need -= _take(place, taken, need)
