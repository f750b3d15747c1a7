"""A job as slurmctld has it: what was asked, beside the defaults of the site and a partition."""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.slurm.gpus.requests._counts import Ask, Wants
from podwright.slurm.gpus.requests._values import SlurmCluster, SlurmPartition
from podwright.slurm.site.releases import Release

Memory = tuple[int, bool]  # bytes, and whether each CPU


@dataclass
class JobCounts:
    """Counts that the choice of nodes works with; None and 0 are "not said"."""

    asks: list[Ask]
    tasks: int
    cpus: int  # of a task
    cpus_said: bool
    min_nodes: int
    max_nodes: int  # 0: no bound
    want_nodes: int
    min_cpus: int
    least: int  # CPUs of a node at least
    own_least: int
    tasks_per_node: int
    tasks_per_socket: int
    tasks_per_core: int
    tasks_per_gpu: int
    sockets: int  # of a node
    cores: int  # of a socket
    threads: int  # of a core
    partition: SlurmPartition
    select: frozenset[str]
    release: Release
    memory: Memory
    memory_said: bool
    cpus_told: bool = False  # MaxMemPerCPU raised the CPUs of a task, and steps are told
    overcommit: bool = False
    whole: bool = False
    whole_user: bool = False
    may_share: bool = True
    contiguous: bool = False
    spread: bool = False
    enforce: bool = False
    one_sharing: bool = False
    block: bool = False  # cores socket by socket
    plane: int = 0
    required: frozenset[str] = frozenset()
    tasks_said: bool = False
    low_said: int = 1  # of the job alone, without the partition
    most_said: int = 0
    least_gpu_cpus: int = 0  # of a node, by --cpus-per-gpu
    job_gpu_cpus: int = 0
    switches: int = 0
    arbitrary: bool = False
    found: list[int] = field(default_factory=list)  # GPUs so far, of each ask
    looked: dict[int, tuple[int, int]] = field(default_factory=dict)  # weights by an earlier look

    @property
    def gpus_per_job(self) -> bool:
        """Whether GPUs are counted over all nodes."""
        return any(ask.per_job for ask in self.asks)

    @property
    def one_task_per_core(self) -> bool:
        """CR_ONE_TASK_PER_CORE."""
        return "CR_ONE_TASK_PER_CORE" in self.select

    @property
    def one_task_per_node(self) -> bool:
        """Whether --overcommit sizes the job for a task of each node: not beside counts of a task
        (tres_per_task), of which --cpus-per-task is one in newer releases."""
        by_task = any(ask.per_task for ask in self.asks)
        by_task |= self.cpus_said and self.release.cpus_per_task_is_tres
        return self.overcommit and not by_task

    @property
    def counts_memory(self) -> bool:
        """Whether memory is allocated (CR_…_Memory)."""
        return any(word.endswith("MEMORY") for word in self.select)

    @property
    def by_core(self) -> bool:
        """CR_Core, and not CR_CPU."""
        return any(word.startswith("CR_CORE") and "DIST" not in word for word in self.select)

    def mc_tasks_per_core(self) -> int:
        """--ntasks-per-core where GPUs bound tasks: 1 where the site says one task a core, also
        with --hint=multithread (_build_gres_mc_data)."""
        return self.tasks_per_core or (1 if self.one_task_per_core else 0)

    def cpus_per_core(self, threads: int) -> int:
        """CPUs of a core that this job uses; threads: those that Slurm counts there."""
        if self.one_task_per_core and self.least_gpu_cpus > 0:
            return threads
        few = threads
        if self.tasks_per_core:
            few = min(few, self.tasks_per_core * self.cpus)
        if self.threads:
            few = min(few, self.threads)
        return few

    def satisfied(self) -> bool:
        """Whether the GPUs counted over all nodes are found."""
        return all(a.per_job <= n for a, n in zip(self.asks, self.found, strict=True))


def job_of(
    w: Wants,
    site: SlurmCluster,
    partition: SlurmPartition,
    release: Release,
    *,
    spread: bool = False,
) -> JobCounts:
    """The job in one partition. Defaults for GPUs come from the partition before the site."""
    asks = [ask.copy() for ask in w.asks]
    cpus = w.cpus
    for ask in asks:
        if ask.name == "gpu":
            ask.default_cpus = 0 if w.cpus_said else site.cpus_of_gpu(partition)
            ask.default_memory = site.memory_of_gpu(partition)
            if ask.default_cpus and ask.per_task:
                cpus = max(cpus, ask.per_task * ask.default_cpus)
    low = max(w.min_nodes or 1, partition.min_nodes)
    limit, most, implied = partition.max_nodes, w.max_nodes or 0, False
    if not most and spread and w.tasks:
        most = min(len(site.nodes), w.tasks)
    elif not most and w.tasks and release.tasks_bound_nodes:
        most, implied = max(low, -(-w.tasks // (w.tasks_per_node or 1))), True
    high = min(most, limit) if most else limit
    return JobCounts(
        asks=asks,
        tasks=w.tasks or 0,
        cpus=cpus,
        cpus_said=w.cpus_said,
        min_nodes=low,
        max_nodes=high,
        want_nodes=high if most and not implied and not w.use_min_nodes else low,
        min_cpus=w.min_cpus,
        least=w.least_on_node,
        own_least=w.least_on_node,
        tasks_per_node=w.tasks_per_node or 0,
        tasks_per_socket=w.tasks_per_socket or 0,
        tasks_per_core=int("CR_ONE_TASK_PER_CORE" in site.select)
        if w.tasks_per_core is None
        else w.tasks_per_core,
        tasks_per_gpu=w.tasks_per_gpu or 0,
        sockets=w.sockets_per_node or 0,
        cores=w.cores_per_socket or 0,
        threads=w.threads_per_core or 0,
        partition=partition,
        select=site.select,
        memory=w.memory
        if w.memory is not None
        else (partition.memory if partition.memory[0] else site.memory),
        memory_said=w.memory is not None,
        overcommit=w.overcommit,
        tasks_said=bool(w.sent_tasks),
        release=release,
        low_said=w.min_nodes or 1,
        most_said=most,
    )
