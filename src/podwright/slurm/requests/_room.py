"""What one idle node can give to a job: its cores by socket, and GPUs beside them.

A model of Slurm's select/cons_tres with CR_Core, one thread per core. Cores of one socket are
alike, so that their number on each socket is all that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.slurm.requests._counts import Ask, Wants
from podwright.slurm.requests._values import EVERY_SOCKET, Shape


@dataclass
class Near:
    """The GPUs of one ask on one node. Slurm's cuts of `total` and `beside` outlive a first try."""

    ask: Ask
    gpus: list[list[int]]  # by socket
    anywhere: list[int]  # beside every socket
    beside: list[int]  # how many count, by socket
    total: int
    most: int = 0  # 0: no bound
    uncut: int = 0

    def cpus_per_gpu(self, w: Wants) -> int:
        """CPUs that a GPU brings, 0 where none are said."""
        return self.ask.cpus_per_gpu or self.ask.tasks_per_gpu * w.cpus


@dataclass
class Room:
    """One node while nodes are being chosen."""

    cores: list[int]
    cpus: int
    near: list[Near]
    gpus: int
    worth: int  # CPUs and GPUs together, by which poor nodes are left out
    keep: list[int]  # cores by socket that may be used in the end (since 23.02)
    tasks: int = 0  # at most, by the GPUs
    gpu_cpus: int = 0  # CPUs that --cpus-per-gpu asks for at least

    def used(self) -> int:
        """All cores that are still offered."""
        return sum(self.cores)


def room(w: Wants, shape: Shape, *, newer: bool) -> Room | None:
    """A node, or None where it can never take part."""
    near: list[Near] = []
    for ask in w.asks:
        one = _near(ask, shape)
        if one is None:
            return None
        near.append(one)
    cores = _cores(w, shape)
    if cores is None:
        return None
    cpus = sum(cores)
    least = w.tasks_per_node or (w.max_nodes == 1 and w.tasks) or 1
    if cpus < least * w.cpus or not _fits(w, near, cpus, newer=newer):
        return None
    gpus = sum(one.total for one in near)
    return Room(cores, cpus, near, gpus, cpus + gpus, list(cores))


def _near(ask: Ask, shape: Shape) -> Near | None:
    gpus: list[list[int]] = [[] for _ in range(shape.sockets)]
    anywhere: list[int] = []
    for gpu in shape.gpus_of(ask.kind):
        socket = shape.socket_of(gpu)
        (anywhere if socket == EVERY_SOCKET else gpus[socket]).append(gpu)
    beside = [len(some) for some in gpus]
    if ask.per_socket:
        beside = [ask.per_socket if n >= ask.per_socket else 0 for n in beside]
    total = len(anywhere) + sum(beside)
    if not anywhere and not any(gpus):
        return None
    if total < max(ask.per_node, ask.per_task):
        return None
    return Near(ask, gpus, anywhere, beside, total)


def _cores(w: Wants, shape: Shape) -> list[int] | None:
    most = shape.cores_per_socket
    if w.tasks_per_socket:
        if w.tasks_per_socket > most:
            return None
        most = min(most, w.tasks_per_socket * w.cpus)
    if shape.sockets < (w.sockets_per_node or 1) or shape.cores < w.least_on_node:
        return None
    tasks = shape.sockets * min(shape.cores_per_socket, w.tasks_per_socket or shape.cores)
    if tasks < (w.tasks_per_node or 0):
        return None
    return [most] * shape.sockets


def sockets_per_node(w: Wants, *, newer: bool) -> int | None:
    """How many sockets of a node the job shall have, None where it does not matter."""
    nodes = max(w.min_nodes or 1, 1)
    cpus = max(w.min_cpus, (w.tasks or 0) * w.cpus)
    by_gpus = 0
    for ask in w.asks if newer else ():
        each = ask.per_node or ask.per_task * (w.tasks or 0) or ask.per_socket
        by_gpus += ask.cpus_per_gpu * (each or ask.per_job // nodes)
    if cpus // nodes <= 1 and by_gpus <= 1:
        return 1
    if w.tasks_per_socket:
        return -(-((w.tasks or 0) // nodes) // w.tasks_per_socket)
    return None


def _fits(w: Wants, near: list[Near], cpus: int, *, newer: bool) -> bool:
    """Whether the GPUs are enough for one node; bounds how many it may give."""
    sockets = sockets_per_node(w, newer=newer)
    for one in near:
        ask = one.ask
        least = max(
            ask.per_node or 1,
            ask.per_socket * (1 if sockets is None else sockets),
            ask.per_task * (w.tasks_per_node or 0),
        )
        per_gpu = one.cpus_per_gpu(w)
        one.most = ask.per_node or ask.per_job
        if per_gpu:
            possible = cpus // per_gpu
            if not possible or max(ask.per_node, ask.per_task, ask.per_socket) > possible:
                return False
            one.most = min(one.most, possible) if one.most else possible
        if one.total < least or (one.most and one.most < least):
            return False
    return True
