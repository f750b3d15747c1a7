"""How many tasks and cores each chosen node gets, and on which sockets the cores are."""

from __future__ import annotations

from dataclasses import dataclass

from podwright.slurm.requests._choose import all_gpus
from podwright.slurm.requests._counts import Wants
from podwright.slurm.requests._room import Room


@dataclass
class Laid:
    """One node of the job: tasks as the job is sized for, cores taken by socket."""

    room: Room
    tasks: int
    cores: list[int]

    @property
    def cpus(self) -> int:
        """Cores of the job on this node."""
        return sum(self.cores)


def spread(w: Wants, rooms: list[Room], *, newer: bool) -> list[Laid] | None:
    """Tasks over the nodes; None where Slurm finds only now that they do not fit."""
    sized = _tasks(w, rooms, newer=newer)
    if sized is None:
        return None
    laid: list[Laid] = []
    for node, (tasks, cpus) in zip(rooms, sized, strict=True):
        cores = _cores(w, node.cores, max(cpus, min(node.gpu_cpus, node.cpus) if newer else 0))
        if cores is None:
            return None
        laid.append(Laid(node, tasks, cores))
    return laid


def _cpus(w: Wants, nodes: int) -> int:
    """CPUs of the whole job, as many as any count asks for."""
    by_tasks = 0
    sockets = w.sockets_per_node or 1
    for a in w.asks:
        if a.tasks_per_gpu:
            gpus = a.per_job or a.per_node * nodes or a.per_socket * nodes * sockets
            by_tasks = max(by_tasks, a.tasks_per_gpu * gpus)
    by_gpus = max(a.cpus_per_gpu * all_gpus(a, nodes, sockets, w.tasks or 0) for a in w.asks)
    each = nodes * (w.tasks_per_node or 1)
    return max(each, by_tasks, w.min_cpus, nodes * w.least_on_node, by_gpus)


def _limits(w: Wants, rooms: list[Room], *, newer: bool) -> list[int] | None:
    """Tasks of each node at most, as its GPUs allow."""
    if any(a.per_task for a in w.asks):
        return [
            min(one.total // one.ask.per_task for one in node.near if one.ask.per_task)
            for node in rooms
        ]
    return [node.tasks for node in rooms] if newer else None


def _tasks(w: Wants, rooms: list[Room], *, newer: bool) -> list[tuple[int, int]] | None:
    """(tasks, CPUs) of each node: one each, then in turn while there is room."""
    count = _cpus(w, len(rooms))
    if newer and w.sent_tasks:
        count = w.tasks or count
    elif w.tasks_per_node and (newer or w.cpus > 1):
        count = w.tasks_per_node * len(rooms)
    elif w.cpus > 1:
        count //= w.cpus
    count = max(count, 1)
    limits = _limits(w, rooms, newer=newer)
    tasks, cpus = [0] * len(rooms), [0] * len(rooms)

    def add(n: int) -> None:
        tasks[n] += 1
        cpus[n] = min(cpus[n] + w.cpus, rooms[n].cpus)

    for n in range(len(rooms)):
        if sum(tasks) < count:
            add(n)
    space = any(cpus[n] < node.cpus for n, node in enumerate(rooms) if tasks[n])
    crowded = not space and not newer
    while sum(tasks) < count:
        space = False
        for n, node in enumerate(rooms):
            if sum(tasks) >= count:
                break
            if not crowded and (
                node.cpus - cpus[n] < w.cpus
                or (limits is not None and limits[n] <= tasks[n])
                or (w.tasks_per_node and tasks[n] >= w.tasks_per_node)
            ):
                continue
            add(n)
            space = space or node.cpus - cpus[n] >= w.cpus
        if space or sum(tasks) >= count:
            continue
        if not newer:
            crowded = True
        elif limits is not None and not any(a.per_task for a in w.asks):
            limits = None
        else:
            return None
    return list(zip(tasks, cpus, strict=True))


def _cores(w: Wants, offered: list[int], cpus: int) -> list[int] | None:
    """Cores taken on each socket: whole tasks packed first (--cpus-per-task), else in turn."""
    taken = [0] * len(offered)
    avoided: set[int] = set()
    if w.tasks_per_socket:
        avoided = _avoided(offered, cpus, w.tasks_per_socket * w.cpus)
    elif w.cpus > 1:
        for socket, here in enumerate(offered):
            pack = min(here - here % w.cpus, cpus)
            taken[socket] += pack
            cpus -= pack
    while cpus > 0:
        before = cpus
        for socket, here in enumerate(offered):
            if cpus > 0 and taken[socket] < here and socket not in avoided:
                taken[socket] += 1
                cpus -= 1
        if before == cpus:
            return None
    return taken


def _avoided(offered: list[int], cpus: int, most: int) -> set[int]:
    """Sockets that are not needed where each may run only so many tasks."""
    counts, avoided = list(offered), set()
    for socket, here in enumerate(counts):
        if sum(counts) > cpus:
            counts[socket] = min(here, most)
    total = sum(counts)
    for socket, here in enumerate(counts):
        if total > cpus and here <= most and total - here >= cpus:
            avoided.add(socket)
            total -= here
    return avoided
