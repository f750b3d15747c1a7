"""The CPUs of each task of a step where tasks are bound to cores (task/affinity).

slurmctld picks the cores of a step (_pick_step_cores of stepmgr.c), and each node then lays the
tasks over their threads (lllp_distribution of task/affinity's dist_tasks.c).
"""

from __future__ import annotations

from collections.abc import Iterable

from podwright.slurm.gpus.requests._counts import HeldNode, Placed
from podwright.slurm.gpus.requests._cpu_bind import CpuBinding
from podwright.slurm.gpus.requests._values import EVERY_SOCKET, NodeHardware

Cpus = frozenset[int]  # of a node: threads by number, core by core


def cores_of(node: HeldNode) -> list[int]:
    """The cores of a job on a node by number: the first free ones of each socket."""
    shape, found = node.shape, list[int]()
    for socket, count in enumerate(node.cores):
        first = socket * shape.cores_per_socket
        cores = [c for c in range(first, first + shape.cores_per_socket) if c not in shape.reserved]
        found += cores[:count]
    return found


def every_cpu(shape: NodeHardware) -> Cpus:
    """All threads of a node."""
    return frozenset(range(shape.cores * shape.threads))


def cpus_beside(shape: NodeHardware, gpu: int) -> Cpus | None:
    """The CPUs that gres.conf names for a GPU, None where it names none."""
    if not shape.has_cores(gpu):
        return None
    at, each = shape.socket_of(gpu), shape.cores_per_socket * shape.threads
    if at == EVERY_SOCKET:
        return every_cpu(shape)
    return frozenset(range(at * each, (at + 1) * each))


def task_cpus(node: HeldNode, place: Placed, b: CpuBinding, *, bind: bool) -> list[Cpus] | None:
    """The CPUs of each task of a node, none for one that is not bound; None where they can't be
    laid out, and the step fails.

    bind: --gres-flags=enforce-binding.
    """
    cores = _step_cores(node, place, b, bind=bind)
    return _laid(node.shape, cores, place, b)


def _step_cores(node: HeldNode, place: Placed, b: CpuBinding, *, bind: bool) -> list[int]:
    mine, shape, left = cores_of(node), node.shape, place.cores
    if left is None or (left >= len(mine) and not place.recounts and not bind):
        return mine
    each = left // place.tasks if place.floors else -(-left // place.tasks)
    named = [cpus_beside(shape, gpu) for gpu in place.gpus]
    sets = [{cpu // shape.threads for cpu in cpus} for cpus in named if cpus is not None]
    near = set(mine)
    some = set(mine) if len(sets) < len(named) or not named else set[int]()
    for cpus in sets:
        near &= cpus
        some |= cpus
    got: list[int] = []
    some &= set(mine)
    pools = [near, some] if some != near else [near]
    pools += [set(mine)] if not bind and some != set(mine) else []
    for pool in pools:
        again = place.recounts  # what it has already is counted once more
        free = [core for core in mine if core in pool and (again or core not in got)]
        new = _in_order(free, shape, left, each, b)
        left -= len(new)
        got += new
    return sorted(set(got))


def _in_order(
    free: list[int], shape: NodeHardware, left: int, each: int, b: CpuBinding
) -> list[int]:
    size = shape.cores_per_socket
    if b.sockets == "block":
        return free[:left]
    if b.sockets == "fcyclic":
        return sorted(free, key=lambda core: (core % size, core // size))[:left]
    sockets = [[c for c in free if c // size == s] for s in range(shape.sockets)]
    got: list[int] = []
    taken = 0  # of the task in hand
    while any(sockets) and len(got) < left:
        for cores in sockets:
            while cores and len(got) < left:
                got.append(cores.pop(0))
                taken += 1
                if taken == each:
                    taken = 0
                    break
    return got


def _laid(shape: NodeHardware, cores: list[int], place: Placed, b: CpuBinding) -> list[Cpus] | None:
    threads, tasks, cpus = shape.threads, place.tasks, place.cpus
    free = [core * threads + thread for core in cores for thread in range(threads)]
    if b.unit == "none" and len(cores) == shape.cores:
        return [frozenset()] * tasks
    unit = b.unit or _unit(shape, cores, tasks * cpus) or b.auto
    if unit in ("", "none"):
        return [frozenset(free)] * tasks
    per_core = b.threads or (1 if shape.cpus_per_core == 1 else 0)
    short = per_core and len(free) < cpus * (threads // per_core)
    if short or len(free) < tasks:
        return [frozenset(free)] * tasks if b.overcommit else None
    cpus = min(cpus, len(free) // tasks)
    lay = _blocks if b.blocks else _turns
    found = lay(shape, free, tasks, cpus, unit, per_core, b)
    if found is None:
        return [frozenset(free)] * tasks if b.overcommit else None
    if unit == "threads":
        return [frozenset(one) for one in found]
    whole = threads if unit == "cores" else threads * shape.cores_per_socket
    return [_widened(one, free, whole) for one in found]


def _unit(shape: NodeHardware, cores: list[int], cpus: int) -> str:
    """To what tasks are bound where nobody says: what there is as many of as they need CPUs."""
    counts = [0] * shape.sockets
    for core in cores:
        counts[core // shape.cores_per_socket] += 1
    whole = [n for n in counts if n == shape.cores_per_socket]
    if cpus == len(whole) and all(n in (0, shape.cores_per_socket) for n in counts):
        return "sockets"
    if cpus == len(cores):
        return "cores"
    return "threads" if cpus == len(cores) * shape.threads else ""


def _widened(cpus: Iterable[int], free: list[int], size: int) -> Cpus:
    units = {cpu // size for cpu in cpus}
    return frozenset(cpu for cpu in free if cpu // size in units)


def _skipped(cpus: int, threads: int) -> int:
    return threads - cpus if cpus < threads else cpus % threads


def _blocks(
    shape: NodeHardware,
    free: list[int],
    tasks: int,
    cpus: int,
    unit: str,
    per_core: int,
    b: CpuBinding,
) -> list[list[int]] | None:
    """Task after task (_task_layout_lllp_block)."""
    threads, size = shape.threads, shape.cores * shape.threads
    usable = set(free)
    found: list[list[int]] = [[]]
    while True:
        began = len(found)
        of_core, of_socket, used = dict[int, int](), dict[int, int](), dict[int, int]()
        cpu = -1
        while cpu + 1 < size:
            cpu += 1
            core, socket = cpu // threads, cpu // (threads * shape.cores_per_socket)
            full = b.tasks_per_core and of_core.get(core, 0) >= b.tasks_per_core
            full = full or (b.tasks_per_socket and of_socket.get(socket, 0) >= b.tasks_per_socket)
            if cpu not in usable or full or (per_core and used.get(core, 0) >= per_core):
                continue
            found[-1].append(cpu)
            used[core] = used.get(core, 0) + 1
            if len(found[-1]) < cpus:
                continue
            of_core[core] = of_core.get(core, 0) + 1
            of_socket[socket] = of_socket.get(socket, 0) + 1
            if unit == "cores" or b.tasks_per_core == 1:
                cpu += _skipped(cpus, threads)
            if len(found) == tasks:
                return found
            found.append([])
        if len(found) == began:
            return None


def _turns(
    shape: NodeHardware,
    free: list[int],
    tasks: int,
    cpus: int,
    unit: str,
    per_core: int,
    b: CpuBinding,
) -> list[list[int]] | None:
    """A task of each socket in turn (_task_layout_lllp_cyclic); fcyclic: a CPU of each."""
    threads, offset = shape.threads, shape.cores_per_socket * shape.threads
    size, usable = shape.sockets * offset, set(free)
    last = [0] * shape.sockets
    of_core, used = dict[int, int](), dict[int, int]()
    found: list[list[int]] = [[]]
    s = 0
    while True:
        began = len(found)
        for _ in range(size):
            begun_at = s
            while last[s] >= offset:
                s = (s + 1) % shape.sockets
                if s == begun_at:
                    of_core, used, last = {}, {}, [0] * shape.sockets
            cpu = last[s] + s * offset
            last[s] += 1
            core = cpu // threads
            full = b.tasks_per_core and of_core.get(core, 0) >= b.tasks_per_core
            if cpu not in usable or full or (per_core and used.get(core, 0) >= per_core):
                continue
            found[-1].append(cpu)
            switched = b.sockets == "fcyclic"
            if switched:
                s = (s + 1) % shape.sockets
            used[core] = used.get(core, 0) + 1
            if len(found[-1]) < cpus:
                continue
            of_core[core] = of_core.get(core, 0) + 1
            if unit == "cores" or b.tasks_per_core == 1:
                last[s] += _skipped(cpus, threads)
            if not switched:
                s = (s + 1) % shape.sockets
            if len(found) == tasks:
                return found
            found.append([])
        if len(found) == began:
            return None
