"""What is still to be found while nodes are chosen, and what one node takes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.slurm.gpus.requests._node_capacity import NodeRoom
from podwright.slurm.gpus.requests._node_tasks import offered_cpus
from podwright.slurm.gpus.requests._slurmctld_job import JobCounts

_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1


def least_cpus(job: JobCounts, nodes: int) -> tuple[int, int]:
    """What --cpus-per-gpu makes of the GPUs: CPUs of a node, and of the whole job."""
    each, whole = 0, 0
    tasks, sockets = job.tasks_per_node, job.sockets or 1
    sums: dict[str, list[int]] = {}
    for a in job.asks:
        counts = sums.setdefault(a.name, [0] * 5)
        for at, n in enumerate((a.per_job, a.per_node, a.per_socket, a.per_task)):
            counts[at] += n
        counts[4] = counts[4] or a.counted_cpus
    for per_job, per_node, per_socket, per_task, cpus in sums.values():
        if not cpus:
            continue
        count = per_node or per_socket * sockets or per_task * tasks
        if not (per_node or per_socket or per_task):
            count = 1
        each = max(each, cpus * count)
        whole = max(
            whole,
            cpus
            * (
                per_job
                or per_node * nodes
                or per_socket * nodes * sockets
                or per_task * max(tasks, 1) * nodes
            ),
        )
    return each, whole


@dataclass
class Search:
    """One search. `low`, `high` and `want` count nodes: at least, at most, and as asked."""

    job: JobCounts
    rooms: dict[int, NodeRoom]
    low: int
    high: int
    want: int
    first: bool
    left: list[int]
    nodes_left: int = 0
    low_left: int = 0
    cpus_left: int = 0
    most_cpus: int = 0
    tasks: int = 0  # still to be laid, where a cap on GPUs bounds tasks
    again: str = "less"  # what to try next: no (nothing), less, only, without
    hint: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        job = self.job
        job.found = [0] * len(job.asks)
        self.low_left = self.low
        self.nodes_left = (min if job.gpus_per_job else max)(self.low, self.want)
        self.cpus_left = job.min_cpus
        self.most_cpus = max(self.cpus_left, job.least_gpu_cpus * self.nodes_left, job.job_gpu_cpus)
        self.tasks = self.most_cpus
        if job.cpus > 1 and not job.overcommit:
            per_node = job.tasks_per_node
            self.tasks = per_node * self.high if per_node else self.most_cpus // job.cpus

    @property
    def enough(self) -> bool:
        """Whether nodes, CPUs and GPUs are all there."""
        return self.nodes_left <= 0 and self.cpus_left <= 0 and self.job.satisfied()

    def enough_nodes(self, found: int) -> bool:
        """Whether so many more nodes would do."""
        return found >= self.nodes_left - max(self.want - self.low, 0)

    def look(self, n: int) -> int:
        """CPUs that this node offers."""
        return offered_cpus(
            self.job,
            self.rooms[n],
            first=self.first,
            nodes=self.low_left if self.job.release.reserves_gpus_for_nodes else 1,
        )

    def use(self, n: int, cpus: int) -> bool:
        """Take this node, which offered so many CPUs; False where its GPUs do not do after all.

        One that offered none is tried, too, where enough CPUs are taken: eval_nodes_cpus_to_use
        then raises its CPUs to the least of a node.
        """
        used = self.cut(n, cpus)
        if not used:
            return False
        self.nodes_left -= 1
        self.low_left -= 1
        self.high -= 1
        self.cpus_left -= used
        self.most_cpus -= used
        return True

    def cut(self, n: int, cpus: int) -> int | None:
        """CPUs to take of this node; None where its GPUs do not do after all."""
        job, node, release = self.job, self.rooms[n], self.job.release
        if not job.whole:
            kept = max(self.low_left - 1, 0) * job.cpus_per_core(node.threads)
            room = self.most_cpus - kept
            if cpus > room:
                by_gpus = (
                    node.gpu_cpus if release.keeps_cores_of_gpus else 0
                ) or job.least_gpu_cpus
                cpus = max(room, job.least, by_gpus)
                node.cpus = cpus
            if not release.ranks_nodes_by_product:
                node.worth = node.cpus + node.gpus
        if not job.gpus_per_job or not cpus:
            return cpus
        return (self._capped if release.caps_gpus_of_node else self._gpus)(node, cpus)

    def _gpus(self, node: NodeRoom, cpus: int) -> int:
        by_gpus = 0
        for n, one in enumerate(node.near):
            if not one.ask.per_job:
                continue
            gpus, each = one.total, one.ask.cpus_per_gpu
            if each:
                gpus = min(gpus, cpus // each)
                by_gpus = max(by_gpus, gpus * each)
            self.job.found[n] += gpus
        return by_gpus or cpus

    def _capped(self, node: NodeRoom, cpus: int) -> int | None:
        job = self.job
        spare = max(self.low_left - 1, 0)
        tasks = self.tasks - spare & _U64  # below zero it is very many, in Slurm too
        if not job.overcommit:
            used = min(tasks, cpus // job.cpus)
            if used < tasks:
                spare = spare + tasks - used & _U32
                tasks = used
        tasks = max(tasks, 1)
        fit = tasks
        if job.plane and not job.overcommit:
            fit = min(fit, job.plane)
        if fit < node.tasks:
            node.tasks = _fewer_tasks(node, fit)
        used = min(fit, node.tasks)
        least = max(job.cpus * (1 if job.overcommit else used), job.least)
        if not used or cpus < least:
            node.cpus = 0
            self.tasks = tasks + spare & _U64
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
            if ask.per_job > job.found[n]:
                gpus = min(gpus, ask.per_job - job.found[n])
            one.total = max(gpus, floor)
            job.found[n] += one.total
        if by_gpus and least < by_gpus < cpus:
            cpus = by_gpus
        node.cpus = cpus
        self.tasks = tasks - used + spare & _U64
        return cpus

    def settle(self, chosen: list[int]) -> None:
        """Where cores are trimmed last: only now those that were given up are gone."""
        if self.job.release.trims_cores_last and self.job.asks:
            for n in chosen:
                node = self.rooms[n]
                node.cores = [min(a, b) for a, b in zip(node.cores, node.keep, strict=True)]


def _fewer_tasks(node: NodeRoom, tasks: int) -> int:
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
