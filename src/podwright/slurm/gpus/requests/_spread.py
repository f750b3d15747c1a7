"""How many tasks and CPUs each chosen node gets, and on which sockets the cores are."""

from __future__ import annotations

from dataclasses import dataclass

from podwright.slurm.gpus.requests._node_capacity import NodeRoom, free_cores
from podwright.slurm.gpus.requests._slurmctld_job import JobCounts


@dataclass
class Laid:
    """One node of the job: tasks as the job is sized for, cores taken by socket, CPUs."""

    room: NodeRoom
    tasks: int
    cores: list[int]
    cpus: int

    @property
    def sum_cores(self) -> int:
        """All cores that the job has here."""
        return sum(self.cores)


def spread(job: JobCounts, rooms: list[NodeRoom], *, exclusive: bool) -> list[Laid] | None:
    """Tasks over the nodes; None where Slurm finds only now that they do not fit."""
    count = _count(job, rooms)
    if exclusive:
        return _whole_nodes(job, rooms, count)
    lone = job.one_task_per_node
    sized = _planes(job, rooms, count) if job.plane and not lone else _tasks(job, rooms, count)
    if sized is None:
        return None
    laid: list[Laid] = []
    cut = True
    for node, (tasks, cpus) in zip(rooms, sized, strict=True):
        least = min(node.gpu_cpus, node.cpus) if node.gpu_cpus else 0
        cpus = max(cpus, least)
        block = job.block or not job.by_core
        if block and cut:
            cut = _cores_for(job, node, cpus) <= sum(node.cores)
        if block and not cut:
            cores: list[int] | None = list(node.cores)
        else:
            cores = _block(job, node, cpus) if block else _in_turns(job, node, cpus)
        if cores is None:
            return None
        # else all its cores are held, and no CPU counts
        if job.by_core and (not block or (cut and cpus)):
            cpus = sum(cores) * node.threads
        laid.append(Laid(node, tasks, cores, cpus))
    return laid


def _count(job: JobCounts, rooms: list[NodeRoom]) -> int:
    """CPUs of the whole job, as many as any count asks for."""
    nodes = len(rooms)
    by_tasks = by_gpus = 0
    sockets = job.sockets or 1
    for a in job.asks:
        if job.tasks_per_gpu and a.name == "gpu":
            gpus = a.per_job or a.per_node * nodes or a.per_socket * nodes * sockets
            by_tasks = max(by_tasks, job.tasks_per_gpu * gpus)
    sums: dict[str, list[int]] = {}
    for a in job.asks:
        counts = sums.setdefault(a.name, [0] * 5)
        for at, n in enumerate((a.per_job, a.per_node, a.per_socket, a.per_task)):
            counts[at] += n
        counts[4] = counts[4] or a.counted_cpus
    for per_job, per_node, per_socket, per_task, cpus in sums.values():
        gpus = per_job or per_node * nodes or per_socket * nodes * sockets or per_task * job.tasks
        by_gpus = max(by_gpus, cpus * gpus)
    each = nodes * (job.tasks_per_node or 1)
    count = max(each, by_tasks, job.min_cpus, nodes * job.least, by_gpus)
    if job.overcommit and job.tasks:
        count = min(sum(room.cpus for room in rooms), job.tasks)
    return count


def _limits(job: JobCounts, rooms: list[NodeRoom]) -> list[int] | None:
    """Tasks of each node at most, as its GPUs allow."""
    if any(a.per_task for a in job.asks):
        return [
            min(one.total // one.ask.per_task for one in node.near if one.ask.per_task)
            for node in rooms
        ]
    return [node.tasks for node in rooms] if job.release.gpus_bound_tasks and job.asks else None


def _most(job: JobCounts, nodes: int, count: int) -> int:
    """Tasks in all."""
    if job.release.lays_tasks_per_node and job.tasks_per_node:
        return job.tasks_per_node * nodes
    if job.release.lays_tasks_as_said and job.tasks_said:
        return max(job.tasks or count, 1)
    if job.release.lays_tasks_as_said and job.tasks_per_node:
        return job.tasks_per_node * nodes
    # Before 23.02 --overcommit has made CPUs tasks already.
    if job.cpus > 1 and (job.release.lays_tasks_as_said or not job.overcommit):
        count = job.tasks_per_node * nodes if job.tasks_per_node else count // job.cpus
    return max(count, 1)


def _tasks(job: JobCounts, rooms: list[NodeRoom], count: int) -> list[tuple[int, int]] | None:
    """(tasks, CPUs) of each node: one each, then a core at a time in turn while there is room."""
    most = _most(job, len(rooms), count)
    limits = _limits(job, rooms)
    tasks, cpus = [0] * len(rooms), [0] * len(rooms)

    def add(n: int) -> None:
        tasks[n] += 1
        cpus[n] = min(cpus[n] + job.cpus, rooms[n].cpus)

    def full(n: int) -> bool:
        return (
            rooms[n].cpus - cpus[n] < job.cpus
            or (limits is not None and limits[n] <= tasks[n])
            or bool(job.tasks_per_node and tasks[n] >= job.tasks_per_node)
        )

    for n in range(len(rooms)):
        if sum(tasks) < most and rooms[n].cpus:
            add(n)
    space = any(cpus[n] < node.cpus for n, node in enumerate(rooms) if tasks[n])
    crowded = not space and not job.release.refuses_overfull_nodes
    for n, node in enumerate(rooms):
        for _ in range(cpus[n] % node.threads // job.cpus):
            if sum(tasks) < most and not full(n):
                add(n)
    if job.one_task_per_node:
        most = 0
    while sum(tasks) < most:
        space = False
        for n, node in enumerate(rooms):
            for _ in range(max(node.threads // job.cpus, 1)):
                if sum(tasks) >= most or (not crowded and full(n)):
                    break
                add(n)
                space = space or node.cpus - cpus[n] >= job.cpus
        if space or sum(tasks) >= most:
            continue
        if not job.release.refuses_overfull_nodes:
            crowded = True
        elif limits is not None and not any(a.per_task for a in job.asks):
            limits = None
        else:
            return None
    return list(zip(tasks, cpus, strict=True))


def _planes(job: JobCounts, rooms: list[NodeRoom], count: int) -> list[tuple[int, int]] | None:
    """The same with --distribution=plane: so many tasks at a time."""
    most = _most(job, len(rooms), count)
    limits = _limits(job, rooms)
    tasks, cpus = [0] * len(rooms), [0] * len(rooms)
    crowded = False
    while sum(tasks) < most:
        space = False
        for n, node in enumerate(rooms):
            if sum(tasks) >= most:
                break
            more = False
            for _ in range(job.plane):
                if sum(tasks) >= most:
                    break
                if limits is not None and limits[n] <= tasks[n]:
                    continue
                more = True
                if cpus[n] < node.cpus or crowded:
                    tasks[n] += 1
                    cpus[n] = min(cpus[n] + job.cpus, node.cpus)
            if not more:
                limits = None
            space = space or cpus[n] < node.cpus
        if space or sum(tasks) >= most:
            continue
        if not job.release.refuses_overfull_nodes:
            crowded = True
        elif limits is not None and not any(a.per_task for a in job.asks):
            limits = None
        else:
            return None
    return list(zip(tasks, cpus, strict=True))


def _whole_nodes(job: JobCounts, rooms: list[NodeRoom], count: int) -> list[Laid]:
    """Whole nodes: all their cores; tasks are laid only where GPUs are counted by task."""
    laid = []
    for node in rooms:
        cores = free_cores(node.shape)
        threads = min(node.threads, job.threads) if job.threads else node.threads
        laid.append(Laid(node, 0, cores, sum(cores) * threads))
    if not any(a.per_task for a in job.asks):
        return laid
    most, rest = _most(job, len(rooms), count), [one.cpus for one in laid]
    for n, one in enumerate(laid):
        one.tasks = 1
        rest[n] = max(rest[n] - job.cpus, 0) if rest[n] >= job.cpus else 0
    while sum(one.tasks for one in laid) < most:
        moved = False
        for n, one in enumerate(laid):
            if rest[n] >= job.cpus and sum(o.tasks for o in laid) < most:
                one.tasks += 1
                rest[n] -= job.cpus
                moved = True
        if not moved:
            for one in laid:
                if sum(o.tasks for o in laid) < most:
                    one.tasks += 1
    return laid


def _in_turns(job: JobCounts, node: NodeRoom, cpus: int) -> list[int] | None:
    """Cores taken on each socket: whole tasks packed first (--cpus-per-task), else in turn."""
    offered, used = node.cores, job.cpus_per_core(node.threads)
    taken = [0] * len(offered)
    avoided: set[int] = set()
    if job.tasks_per_socket:
        avoided = _avoided([n * used for n in offered], cpus, job.tasks_per_socket * job.cpus)
    elif job.cpus > 1:
        cpus = _packed(job, offered, taken, cpus, used)
    while cpus > 0:
        before = cpus
        for socket, here in enumerate(offered):
            if cpus > 0 and taken[socket] < here and socket not in avoided:
                taken[socket] += 1
                cpus -= min(used, cpus)
        if before == cpus:
            return taken if job.overcommit else None
    return taken


def _packed(job: JobCounts, offered: list[int], taken: list[int], cpus: int, used: int) -> int:
    """Whole tasks on each socket; the CPUs that are left."""
    rest = job.cpus
    for socket, here in enumerate(offered):
        pack = here * used - here * used % job.cpus
        while taken[socket] < here and pack > 0 and cpus > 0:
            taken[socket] += 1
            part = used
            if job.tasks_per_core == 1 and job.cpus > used:
                part = min(rest, used)
                rest = job.cpus if rest <= part else rest - part
            pack = 0 if pack < used else pack - part
            cpus = 0 if cpus < used else cpus - part
    return cpus


def _avoided(counts: list[int], cpus: int, most: int) -> set[int]:
    """Sockets that are not needed where each may run only so many tasks."""
    avoided: set[int] = set()
    total = sum(counts)
    for socket, here in enumerate(counts):
        if total > cpus and here > most:
            total -= here - most
            counts[socket] = most
    for socket, here in enumerate(counts):
        if total > cpus and here <= most and total - here >= cpus:
            avoided.add(socket)
            total -= here
    return avoided


def _cores_for(job: JobCounts, node: NodeRoom, cpus: int) -> int:
    """The cores that these CPUs need. _block_sync_core_bitmap ends at a node with fewer, as of
    one thread of a core with CR_CPU: that node and all after it keep the cores they offered."""
    used = job.cpus_per_core(node.threads)
    if job.tasks_per_core == 1 and job.cpus > used:
        return cpus // job.cpus * -(-job.cpus // used)
    return -(-cpus // used)


def _block(job: JobCounts, node: NodeRoom, cpus: int) -> list[int] | None:
    """Cores socket by socket: the smallest that is large enough, else the largest first."""
    left, used = list(node.cores), job.cpus_per_core(node.threads)
    if not cpus:
        return left  # a node without a task keeps what it offered, and has no CPUs all the same
    taken = [0] * len(left)
    needed = _cores_for(job, node, cpus)
    rest = job.cpus
    while cpus > 0:
        some = [s for s, n in enumerate(left) if n]
        if not some:
            return taken
        fitting = [s for s in some if left[s] >= needed]
        best = (
            min(fitting, key=lambda s: (left[s], s))
            if fitting
            else max(some, key=lambda s: (left[s], -s))
        )
        while left[best] and cpus > 0:
            left[best] -= 1
            taken[best] += 1
            part = used
            if cpus < used:
                cpus = 0
                continue
            if job.tasks_per_core == 1 and job.cpus > used:
                part = min(rest, used)
                rest = job.cpus if rest <= part else rest - part
            cpus -= part
    return taken
