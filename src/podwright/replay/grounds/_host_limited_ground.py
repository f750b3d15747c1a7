"""Hosts beside a pod, for jobs that are also limited by nodes, cores and memory."""

from __future__ import annotations

from podwright.replay.grounds._ground import DeviceSpan, Ground, StartAnswer, UnfitJob


class Hosts(Ground):
    """Another ground, and the hosts on which its jobs run.

    memory_each: bytes of each host; 0: not counted.
    """

    plans = True

    def __init__(
        self, inner_ground: Ground, host_count: int, cpus_each: int, memory_each: int
    ) -> None:
        self.inner, self.name, self.size = inner_ground, inner_ground.name, inner_ground.size
        self._cpus, self._memory = [cpus_each] * host_count, [memory_each] * host_count
        self._each, self._memory_each = cpus_each, memory_each
        self._kinds: dict[tuple[int, int, int, int], int] = {}
        self._inner_demands: list[tuple[int, int, int, int]] = []
        self._jobs: dict[int, tuple[list[int], int, int]] = {}
        self.simpler = (
            *inner_ground.simpler,
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
        inner_demand = self.inner.demand(devices, nodes, cpus, memory)
        host_count = max(1, nodes)
        full_demand = (
            inner_demand,
            host_count,
            max(1, -(-cpus // host_count)),
            -(-memory // host_count),
        )
        if not self._memory_each:
            full_demand = (*full_demand[:3], 0)
        if (
            host_count > len(self._cpus)
            or full_demand[2] > self._each
            or full_demand[3] > self._memory_each
        ):
            raise UnfitJob("more hosts, cores or memory than there are")
        if full_demand not in self._kinds:
            self._kinds[full_demand] = len(self._inner_demands)
            self._inner_demands.append(full_demand)
        return self._kinds[full_demand]

    def devices_for(self, demand: int) -> int:
        """Return the devices."""
        return self.inner.devices_for(self._inner_demands[demand][0])

    def units(self, demand: int) -> int:
        """Return the number of cores."""
        _, count, each, _ = self._inner_demands[demand]
        return count * each

    def free_units(self) -> int:
        """Return the number of free cores."""
        return sum(self._cpus)

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Take licences first, in the order of Slurm's main scheduler, then hosts."""
        inner_demand, host_count, cpus_each, memory_each = self._inner_demands[demand]
        start_answer = self.inner.take(job, inner_demand, end)
        if start_answer is not StartAnswer.TAKEN:
            return start_answer
        chosen_hosts: list[int] = []
        for host, cpus in enumerate(self._cpus):
            if cpus >= cpus_each and self._memory[host] >= memory_each:
                chosen_hosts.append(host)
                if len(chosen_hosts) == host_count:
                    break
        if len(chosen_hosts) < host_count:
            self.inner.give(job)
            return StartAnswer.NODES
        for host in chosen_hosts:
            self._cpus[host] -= cpus_each
            self._memory[host] -= memory_each
        self._jobs[job] = chosen_hosts, cpus_each, memory_each
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """Free the job's devices and hosts."""
        self.inner.give(job)
        hosts, cpus_each, memory_each = self._jobs.pop(job)
        for host in hosts:
            self._cpus[host] += cpus_each
            self._memory[host] += memory_each

    def spans(self, job: int) -> list[DeviceSpan]:
        """Return the job's devices."""
        return self.inner.spans(job)

    def fail(self, machine: int) -> list[int]:
        """Mark a machine of devices as away."""
        return self.inner.fail(machine)

    def repair(self, machine: int) -> None:
        """Mark the machine as present again."""
        self.inner.repair(machine)
