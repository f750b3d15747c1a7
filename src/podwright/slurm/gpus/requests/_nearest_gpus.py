"""The GPUs beside a task's cores: closest, single and per_task where tasks are bound to cores.

With task/affinity Slurm looks at the cores of a task before it binds a GPU to it. Measured with
one core on each of two sockets; for more cores after Slurm's source (-m block:cyclic).
"""

from __future__ import annotations

from podwright.slurm.gpus.requests._values import EVERY_SOCKET, NodeHardware

Cores = tuple[int, ...]  # of a task, by socket


def bound_cores(job: Cores, shape: NodeHardware, cpus: int, tasks: int) -> list[Cores]:
    """The cores of every task of a node, where Slurm lays tasks over the sockets in turns.

    It binds each to cores of its own only where the tasks fill what the job has there.
    """
    wanted, whole = cpus * tasks, [n for n in job if n == shape.cores_per_socket]
    parts = [n for n in job if 0 < n < shape.cores_per_socket]
    if wanted == len(whole) and not parts:
        return _in_turns([1 if n else 0 for n in job], shape, cpus, tasks, shape.cores_per_socket)
    if wanted == sum(job):
        return _in_turns(list(job), shape, cpus, tasks, 1)
    return [job] * tasks


def _in_turns(
    left: list[int], shape: NodeHardware, cpus: int, tasks: int, size: int
) -> list[Cores]:
    found: list[Cores] = []
    socket = -1
    for _ in range(tasks):
        turn = [(socket + step) % shape.sockets for step in range(1, shape.sockets + 1)]
        fits = [at for at in turn if left[at] >= cpus]
        mine, need = [0] * shape.sockets, cpus
        for at in fits[:1] or turn:
            got = min(left[at], need)
            mine[at] += got * size
            left[at] -= got
            need -= got
            socket = at if got else socket
        found.append(tuple(mine))
    return found


def gpus_near(gpus: list[int], cores: Cores, shape: NodeHardware) -> list[int]:
    """Those beside a socket of these cores, or beside none."""
    sockets = [shape.socket_of(gpu) for gpu in gpus]
    return [
        gpu
        for gpu, at in zip(gpus, sockets, strict=True)
        if at == EVERY_SOCKET or (0 <= at < len(cores) and cores[at])
    ]


def single(
    gpus: list[int], tasks: list[Cores], each: int, shape: NodeHardware, local: int
) -> list[int]:
    """One GPU for a task: since 23.02 each GPU takes `each` tasks, those beside it first."""
    if len(gpus) == 1:
        return gpus
    slots = [gpu for gpu in gpus for _ in range(each)]
    taken = None
    for cores in tasks[: local + 1]:
        taken = _best(slots, cores, shape)
        if taken is None:
            return [gpus[(local // each) % len(gpus)]]
        slots.remove(taken)
    return [] if taken is None else [taken]


def unbound_single(gpus: list[int], each: int, shape: NodeHardware, local: int) -> list[int]:
    """One GPU for a task that has all cores: GPUs that name their cores come first."""
    first = sorted(gpus, key=lambda gpu: not shape.has_cores(gpu))
    free = local < each * len(gpus)
    return [first[local // each] if free else gpus[local % len(gpus)]]


def _best(slots: list[int], cores: Cores, shape: NodeHardware) -> int | None:
    """A GPU all of whose cores the task has, else one of which it has some, else the first."""
    named = [gpu for gpu in gpus_near(slots, cores, shape) if shape.has_cores(gpu)]
    for gpu in named:
        at = shape.socket_of(gpu)
        its = cores if at == EVERY_SOCKET else cores[at : at + 1]
        if all(count == shape.cores_per_socket for count in its):
            return gpu
    if named:
        return named[0]
    return slots[0] if slots else None


def per_task(
    gpus: list[int], tasks: list[Cores], count: int, shape: NodeHardware, local: int
) -> list[int]:
    """So many GPUs for a task, since 23.02: those left by the tasks before it, near ones first."""
    left, got = list(gpus), list[int]()
    for cores in tasks[: local + 1]:
        beside = gpus_near(left, cores, shape)
        got = [*beside, *(gpu for gpu in left if gpu not in beside)][:count]
        left = [gpu for gpu in left if gpu not in got]
    return sorted(got)
