"""Hosts beside a pod, for jobs that are also limited by nodes, cores and memory."""

from __future__ import annotations

from podwright.replay.grounds._ground import Ground, Span, StartAnswer, Unfit


class Hosts(Ground):
    """Another ground, and the hosts on which its jobs run.

    memory: bytes of each host; 0: not counted.
    """

    plans = True

    def __init__(self, inner: Ground, count: int, cpus: int, memory: int) -> None:
        self.inner, self.name, self.size = inner, inner.name, inner.size
        self._cpus, self._memory = [cpus] * count, [memory] * count
        self._each, self._all_memory = cpus, memory
        self._kinds: dict[tuple[int, int, int, int], int] = {}
        self._demands: list[tuple[int, int, int, int]] = []
        self._jobs: dict[int, tuple[list[int], int, int]] = {}
        self.simpler = (
            *inner.simpler,
            "A job's cores and memory are shared out evenly over its hosts, and the first hosts "
            "that have room are taken.",
        )

    @property
    def occupied(self) -> int:  # type: ignore[override]
        """The devices that jobs hold."""
        return self.inner.occupied

    @property
    def machines(self) -> int:
        """The number of machines that may fail."""
        return self.inner.machines

    @property
    def lost(self) -> int:
        """The number of devices of the machines that are down."""
        return self.inner.lost

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Return a number for the inner ground's demand together with the job's hosts."""
        inner = self.inner.demand(devices, nodes, cpus, memory)
        hosts = max(1, nodes)
        wanted = (inner, hosts, max(1, -(-cpus // hosts)), -(-memory // hosts))
        if not self._all_memory:
            wanted = (*wanted[:3], 0)
        if hosts > len(self._cpus) or wanted[2] > self._each or wanted[3] > self._all_memory:
            raise Unfit("more hosts, cores or memory than there are")
        if wanted not in self._kinds:
            self._kinds[wanted] = len(self._demands)
            self._demands.append(wanted)
        return self._kinds[wanted]

    def devices_for(self, demand: int) -> int:
        """Return the devices."""
        return self.inner.devices_for(self._demands[demand][0])

    def units(self, demand: int) -> int:
        """Return the number of cores."""
        _, hosts, cpus, _ = self._demands[demand]
        return hosts * cpus

    def free_units(self) -> int:
        """Return the number of free cores."""
        return sum(self._cpus)

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Take licences first, in the order of Slurm's main scheduler, then hosts."""
        inner, hosts, cpus, memory = self._demands[demand]
        answer = self.inner.take(job, inner, end)
        if answer is not StartAnswer.TAKEN:
            return answer
        chosen: list[int] = []
        for host, free in enumerate(self._cpus):
            if free >= cpus and self._memory[host] >= memory:
                chosen.append(host)
                if len(chosen) == hosts:
                    break
        if len(chosen) < hosts:
            self.inner.give(job)
            return StartAnswer.NODES
        for host in chosen:
            self._cpus[host] -= cpus
            self._memory[host] -= memory
        self._jobs[job] = chosen, cpus, memory
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """Free the job's devices and hosts."""
        self.inner.give(job)
        hosts, cpus, memory = self._jobs.pop(job)
        for host in hosts:
            self._cpus[host] += cpus
            self._memory[host] += memory

    def spans(self, job: int) -> list[Span]:
        """Return the job's devices."""
        return self.inner.spans(job)

    def fail(self, machine: int) -> list[int]:
        """Mark a machine of devices as away."""
        return self.inner.fail(machine)

    def repair(self, machine: int) -> None:
        """Mark the machine as present again."""
        self.inner.repair(machine)
