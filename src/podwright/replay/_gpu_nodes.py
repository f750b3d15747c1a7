"""GPU nodes: the product's own placement for machines, jobs exclusive or side by side."""

from __future__ import annotations

from podwright.fabric import Cluster
from podwright.placement import NodeIndex, Placement, Request
from podwright.replay._ground import MachinesGround, Span, StartAnswer, Unfit


class GpuNodes(MachinesGround):
    """The nodes of a cluster. exclusive: a job has its nodes for itself.

    extra_domains: link domains beyond the fewest that jobs of several nodes could lie in, and
    over how many jobs that was counted.
    """

    plans = True
    simpler = (
        "Slurm places GPU jobs on the fullest node that has room, and whole nodes in as few link "
        "domains as can be, as Podwright's own placement does; a site's weights, features and "
        "topology plugin are not known.",
    )

    def __init__(self, name: str, cluster: Cluster, *, exclusive: bool) -> None:
        super().__init__(name, cluster.size, per_machine=cluster.family.devices_per_machine)
        self._exclusive = exclusive
        self._index = NodeIndex(cluster)
        self._largest = cluster.size
        self._width = max(len(domain.machines) for domain in cluster.domains)
        starts, at = [], 0
        for domain in range(len(cluster.domains)):
            starts.append(at)
            at += cluster.domain_size(domain)
        self._starts = starts
        self._jobs: dict[int, list[Placement]] = {}
        self._names = [one.name for domain in cluster.domains for one in domain.machines]
        self.extra_domains = self.wide_jobs = 0

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """GPUs that it holds."""
        held = -(-devices // self.per_machine) * self.per_machine if self._exclusive else devices
        if held > self._largest:
            raise Unfit(f"more than {self._largest} GPUs")
        return held

    def held(self, demand: int) -> int:
        """GPUs."""
        return demand

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Whole nodes first, then what is left of it on one more."""
        if demand > self.free_units():
            return StartAnswer.NODES
        whole, rest = divmod(demand, self.per_machine)
        parts: list[Placement] = []
        for part in (*([whole * self.per_machine] if whole else []), *([rest] if rest else [])):
            gcds = max(1, part // self.per_machine)
            found = self._index.find(Request(part, gcds=gcds))
            if found is None and part > 1:
                found = (
                    self._index.find(Request(part, gcds=part)) if part < self.per_machine else None
                )
            if found is None:
                for one in parts:
                    self._index.release(one)
                return StartAnswer.NODES
            self._index.take(found)
            parts.append(found)
        self._jobs[job] = parts
        self.taken += demand
        if whole > 1:
            domains = len({one.domain for one in parts[0].blocks})
            self.extra_domains += domains - -(-whole // self._width)
            self.wide_jobs += 1
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """They are free."""
        for one in self._jobs.pop(job):
            self._index.release(one)
            self.taken -= one.size

    def spans(self, job: int) -> list[Span]:
        """A span for each run of GPUs."""
        return [
            (self._starts[one.domain] + one.offset, one.size)
            for part in self._jobs[job]
            for one in part.blocks
        ]

    def fail(self, machine: int) -> list[int]:
        """A node is away."""
        self._away.add(machine)
        self._index.drain(self._names[machine])
        first = machine * self.per_machine
        return [
            job
            for job in self._jobs
            if any(at < first + self.per_machine and at + n > first for at, n in self.spans(job))
        ]

    def repair(self, machine: int) -> None:
        """It is there again."""
        super().repair(machine)
        self._index.resume(self._names[machine])
