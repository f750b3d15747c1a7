"""GPU nodes, with the product's own placement on machines: jobs exclusive or side by side."""

from __future__ import annotations

from podwright.fabric import Cluster
from podwright.placement import NodeIndex, Placement, Request
from podwright.replay.grounds._ground import DeviceSpan, MachinesGround, StartAnswer, UnfitJob


class GpuNodes(MachinesGround):
    """The nodes of a cluster. exclusive: whether each node runs one job at a time.

    extra_domains: link domains beyond the fewest that jobs of several nodes could occupy, with the
    number of such jobs in `wide_jobs`.
    """

    plans = True
    simpler = (
        "Slurm places GPU jobs on the fullest node that has room, and whole nodes in as few link "
        "domains as can be, as Podwright's own placement does; a site's weights, features and "
        "topology plugin are not known.",
    )

    def __init__(self, way_name: str, cluster: Cluster, *, exclusive: bool) -> None:
        super().__init__(way_name, cluster.size, per_machine=cluster.family.devices_per_machine)
        self._exclusive = exclusive
        self._index = NodeIndex(cluster)
        self._largest = cluster.size
        self._width = max(len(domain.machines) for domain in cluster.domains)
        domain_starts, domain_start = [], 0
        for domain in range(len(cluster.domains)):
            domain_starts.append(domain_start)
            domain_start += cluster.domain_size(domain)
        self._starts = domain_starts
        self._jobs: dict[int, list[Placement]] = {}
        self._names = [machine.name for domain in cluster.domains for machine in domain.machines]
        self.extra_domains = self.wide_jobs = 0

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Return the GPUs that the job holds."""
        held_gpus = (
            -(-devices // self.per_machine) * self.per_machine if self._exclusive else devices
        )
        if held_gpus > self._largest:
            raise UnfitJob(f"more than {self._largest} GPUs")
        return held_gpus

    def devices_for(self, demand: int) -> int:
        """Return the GPUs."""
        return demand

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Take whole nodes first, then the rest on one more node."""
        if demand > self.free_units():
            return StartAnswer.NODES
        full_nodes, rest_gpus = divmod(demand, self.per_machine)
        placements: list[Placement] = []
        for part in (
            *([full_nodes * self.per_machine] if full_nodes else []),
            *([rest_gpus] if rest_gpus else []),
        ):
            gcds = max(1, part // self.per_machine)
            placement = self._index.find(Request(part, gcds=gcds))
            if placement is None and part > 1:
                placement = (
                    self._index.find(Request(part, gcds=part)) if part < self.per_machine else None
                )
            if placement is None:
                for part_placement in placements:
                    self._index.release(part_placement)
                return StartAnswer.NODES
            self._index.take(placement)
            placements.append(placement)
        self._jobs[job] = placements
        self.occupied += demand
        if full_nodes > 1:
            domains = len({part.domain for part in placements[0].blocks})
            self.extra_domains += domains - -(-full_nodes // self._width)
            self.wide_jobs += 1
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """Free the job's GPUs."""
        for placement in self._jobs.pop(job):
            self._index.release(placement)
            self.occupied -= placement.size

    def spans(self, job: int) -> list[DeviceSpan]:
        """Return a span for each contiguous run of GPUs."""
        return [
            (self._starts[block.domain] + block.offset, block.size)
            for placement in self._jobs[job]
            for block in placement.blocks
        ]

    def fail(self, machine: int) -> list[int]:
        """Mark a node as away. Returns the jobs on it."""
        self._failed_machines.add(machine)
        self._index.drain(self._names[machine])
        first_gpu = machine * self.per_machine
        return [
            job
            for job in self._jobs
            if any(
                span_start < first_gpu + self.per_machine and span_start + span_size > first_gpu
                for span_start, span_size in self.spans(job)
            )
        ]

    def repair(self, machine: int) -> None:
        """Mark the node as present again."""
        super().repair(machine)
        self._index.resume(self._names[machine])
