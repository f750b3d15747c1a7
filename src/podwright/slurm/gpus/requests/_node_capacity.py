"""What one idle node can give to a job: its cores by socket, and GPUs beside them.

A model of Slurm's select/cons_tres. Cores of one socket are alike, so that their number on each
socket is all that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.slurm.gpus.requests._core_limits import allocate
from podwright.slurm.gpus.requests._counts import Ask
from podwright.slurm.gpus.requests._slurmctld_job import JobCounts
from podwright.slurm.gpus.requests._values import EVERY_SOCKET, NodeHardware

_NO_MEMORY = -1


@dataclass
class GpuCandidates:
    """The GPUs of one ask on one node. Slurm's cuts of `total` and `beside` outlive a first try.

    `each` is how many units a GPU holds, by number: 1, or its shards.
    """

    ask: Ask
    gpus: list[list[int]]  # by socket
    anywhere: list[int]  # beside every socket
    beside: list[int]  # how many units count, by socket
    any_units: int
    total: int
    each: dict[int, int]
    most: int = 0  # 0: no bound
    uncut: int = 0

    def has_bits(self, socket: int) -> bool:
        """Whether any GPU is known to sit there."""
        return bool(self.gpus[socket])

    def cpus_per_gpu(self, cpus: int) -> int:
        """CPUs that a GPU brings, 0 where none are said; cpus: of a task."""
        return self.ask.cpus_per_gpu or self.ask.tasks_per_gpu * cpus or self.ask.default_cpus


@dataclass
class NodeRoom:
    """One node while nodes are being chosen."""

    number: int
    name: str
    shape: NodeHardware
    cores: list[int]
    cpus: int
    most_cpus: int
    near: list[GpuCandidates]
    gpus: int
    worth: int  # by which poor nodes are left out
    weight: tuple[int, int]
    keep: list[int] = field(default_factory=list)  # cores that may be used in the end (23.02)
    tasks: int = 0  # at most, by the GPUs
    gpu_cpus: int = 0  # CPUs that must be given at least, by the GPUs

    @property
    def threads(self) -> int:
        """CPUs of a core."""
        return self.shape.cpus_per_core


def free_cores(shape: NodeHardware) -> list[int]:
    """Cores of each socket that jobs may have."""
    each = shape.cores_per_socket
    found = [each] * shape.sockets
    for core in shape.reserved:
        found[core // each] -= 1
    return found


def has_gpus(job: JobCounts, shape: NodeHardware) -> bool:
    """Slurm's first look at a node: whether the counts of one node can be met at all."""
    for ask in job.asks:
        units = shape.units_of(ask.name, ask.kind)
        if not units:
            return False
        have = max(units.values()) if ask.shared else sum(units.values())
        if have < max(int(bool(ask.per_job)), ask.per_node, ask.per_socket, ask.per_task):
            return False
    return True


def room(
    job: JobCounts, number: int, name: str, shape: NodeHardware, *, trial: bool
) -> NodeRoom | None:
    """A node, or None where it can never take part. trial: only whether the job could ever run."""
    cores = free_cores(shape)
    near: list[GpuCandidates] = []
    needed: set[int] = set()
    for ask in job.asks:
        one = _gpu_candidates(job, ask, shape, cores, needed, trial=trial)
        if one is None:
            return None
        near.append(one)
    found = allocate(job, shape, cores, needed)
    if found is None or not found.cpus:
        return None
    tasks = job.tasks_per_node or (
        1 if job.overcommit else job.tasks if job.most_said == 1 and job.tasks else 1
    )
    if found.cpus < tasks * job.cpus:
        return None
    memory = shape.memory if job.counts_memory else _NO_MEMORY
    beside = _usable(job, shape, near, cores, found.cpus, memory)
    if beside is None:
        return None
    cpus = found.cpus
    if job.counts_memory:
        cpus = _by_memory(job, shape, cpus, found.unit, memory)
    if not cpus:
        return None
    gpus = sum(one.total for one in near if one.ask.name == "gpu")
    wants = any(one.ask.name == "gpu" for one in near)
    by_product = job.release.ranks_nodes_by_product
    worth = (cpus * gpus if wants else cpus) if by_product else cpus + gpus
    weight = (shape.weight, 0xFF - beside if near else 0xFF)
    return NodeRoom(
        number, name, shape, cores, cpus, found.most, near, gpus, worth, weight, list(cores)
    )


def _gpu_candidates(
    job: JobCounts,
    ask: Ask,
    shape: NodeHardware,
    cores: list[int],
    needed: set[int],
    *,
    trial: bool,
) -> GpuCandidates | None:
    units = shape.units_of(ask.name, ask.kind)
    gpus: list[list[int]] = [[] for _ in range(shape.sockets)]
    anywhere: list[int] = []
    most, packs = 0, job.release.packs_shards
    for gpu, count in units.items():
        if ask.shared and not trial:
            if packs and ask.per_task > count:
                continue
            if not (packs and "MULTIPLE_SHARING_GRES_PJ" in job.select):
                most = max(most, count)
        socket = shape.socket_of(gpu)
        if socket == EVERY_SOCKET:
            anywhere.append(gpu)
        elif not (job.enforce and not cores[socket]):
            gpus[socket].append(gpu)
    beside = [sum(units[gpu] for gpu in some) for some in gpus]
    if not anywhere and not any(gpus):
        return None
    any_units = sum(units[gpu] for gpu in anywhere)
    if ask.per_socket:
        for socket, count in enumerate(beside):
            beside[socket] = ask.per_socket if count >= ask.per_socket else 0
            if count < ask.per_socket and job.enforce:
                cores[socket] = 0
    one = GpuCandidates(
        ask, gpus, anywhere, beside, any_units, any_units + sum(beside), units, most
    )
    loose = job.enforce and ask.per_job and not ask.per_socket
    if loose and not job.release.keeps_all_sockets:
        _fewest_sockets(job, one, cores)
    least = max(ask.per_node, ask.per_task)
    if one.total < least:
        return None
    _needed_sockets(least - any_units, beside, cores, needed)
    return one


def _fewest_sockets(job: JobCounts, one: GpuCandidates, cores: list[int]) -> None:
    """Binding leaves out the sockets with the fewest GPUs, where one will do."""
    few = sockets_per_node(job)
    some = [s for s, n in enumerate(one.beside) if n and cores[s]]
    while few is not None and few < len(cores) and len(some) > few:
        low = min(some, key=lambda s: (one.beside[s], s))
        some.remove(low)
        cores[low] = 0
        one.total -= one.beside[low]
        one.beside[low] = 0


def _needed_sockets(missing: int, beside: list[int], cores: list[int], needed: set[int]) -> None:
    """The sockets whose GPUs must come in so that a node or a task has enough."""
    left = [s for s, n in enumerate(beside) if n and cores[s]]
    while missing > 0 and left:
        best = max(left, key=lambda s: (beside[s], -s))
        needed.add(best)
        missing -= beside[best]
        left.remove(best)


def sockets_per_node(job: JobCounts) -> int | None:
    """How many sockets of a node the job shall have, None where it does not matter."""
    nodes = max(job.min_nodes, 1)
    cpus = max(job.min_cpus, job.tasks * job.cpus)
    if cpus // nodes <= 1 and _gpu_cpus(job, nodes) <= 1:
        return 1
    if job.tasks_per_socket:
        return -(-(job.tasks // nodes) // job.tasks_per_socket)
    return None


def _gpu_cpus(job: JobCounts, nodes: int) -> int:
    """CPUs that the GPUs of a node bring: some releases count them here."""
    if not job.release.counts_cpus_of_gpus:
        return 0
    count = 0
    for ask in job.asks:
        each = ask.per_node or ask.per_task * job.tasks or ask.per_socket
        count += (ask.cpus_per_gpu or ask.default_cpus) * (each or ask.per_job // nodes)
    return count


def _usable(
    job: JobCounts,
    shape: NodeHardware,
    near: list[GpuCandidates],
    cores: list[int],
    cpus: int,
    memory: int,
) -> int | None:
    """GPUs beside usable cores, None where a count of GPUs leaves the node out."""
    sockets = sockets_per_node(job)
    found = 0
    for one in near:
        ask = one.ask
        least = one.total if job.whole else ask.per_node or 1
        least = max(
            least,
            ask.per_socket * (1 if sockets is None else sockets),
            ask.per_task * job.tasks_per_node,
        )
        per_gpu = one.cpus_per_gpu(job.cpus)
        if per_gpu:
            possible = cpus // per_gpu
            if not possible or max(ask.per_node, ask.per_task, ask.per_socket) > possible:
                return None
        each = ask.memory_per_gpu or ask.default_memory
        if each and memory >= 0:
            if each > memory:
                return None
            one.most = memory // each
        if job.enforce:
            for socket, here in enumerate(cores):
                if not here:
                    one.total -= one.beside[socket]
                    one.beside[socket] = 0
        close = one.total - sum(n for n, here in zip(one.beside, cores, strict=True) if not here)
        if not job.whole:
            for count in (ask.per_node, ask.per_job):
                if count and (not one.most or one.most > count):
                    one.most = count
                    break
        if per_gpu and not (ask.tasks_per_gpu and job.whole):
            possible = sum(cores) * shape.cpus_per_core // per_gpu
            if not possible:
                return None
            one.most = min(one.most, possible) if one.most else possible
        if each and memory >= 0:
            one.total = min(one.total, memory // each)
        if one.total < least or (one.most and one.most < least):
            return None
        if ask.name == "gpu":
            found += min(close, one.most) if one.most else close
    return min(found, 0xFF)


def _by_memory(job: JobCounts, shape: NodeHardware, cpus: int, unit: int, memory: int) -> int:
    """CPUs for which there is memory."""
    each, per_cpu = job.memory
    if not per_cpu:
        return cpus if each <= memory else 0
    if job.whole and each * cpus > memory:
        return 0
    if job.by_core and job.tasks_per_core == 1 and job.cpus == 1:
        while cpus > 0 and each * cpus * shape.cpus_per_core > memory:
            cpus -= 1
    else:
        while each * cpus > memory:
            if cpus < unit:
                return 0
            cpus -= unit
    if job.cpus > 1:
        cpus -= cpus % job.cpus
    return 0 if cpus < job.tasks_per_node else cpus
