"""Hosts beside a pod: the nodes, cores and memory that jobs asked for bind as well."""

from __future__ import annotations

from podwright.replay._ground import Ground, Span, StartAnswer, Unfit


class Hosts(Ground):
    """Another ground, and hosts on which its jobs run. memory: bytes of each; 0: not counted."""

    plans = True

    def __init__(self, inner: Ground, count: int, cpus: int, memory: int) -> None:
        self.inner, self.name, self.size = inner, inner.name, inner.size
        self._cpus, self._memory = [cpus] * count, [memory] * count
        self._each, self._all_memory = cpus, memory
        self._kinds: dict[tuple[int, int, int, int], int] = {}
        self._wants: list[tuple[int, int, int, int]] = []
        self._jobs: dict[int, tuple[list[int], int, int]] = {}
        self.simpler = (
            *inner.simpler,
            "A job's cores and memory are shared out evenly over its hosts, and the first hosts "
            "that have room are taken.",
        )

    @property
    def taken(self) -> int:  # type: ignore[override]
        """Devices that jobs hold."""
        return self.inner.taken

    @property
    def machines(self) -> int:
        """How many may fail."""
        return self.inner.machines

    @property
    def lost(self) -> int:
        """Devices of those that are away."""
        return self.inner.lost

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """A number for what the inner ground has it be, and its hosts."""
        inner = self.inner.demand(devices, nodes, cpus, memory)
        hosts = max(1, nodes)
        want = (inner, hosts, max(1, -(-cpus // hosts)), -(-memory // hosts))
        if not self._all_memory:
            want = (*want[:3], 0)
        if hosts > len(self._cpus) or want[2] > self._each or want[3] > self._all_memory:
            raise Unfit("more hosts, cores or memory than there are")
        if want not in self._kinds:
            self._kinds[want] = len(self._wants)
            self._wants.append(want)
        return self._kinds[want]

    def held(self, demand: int) -> int:
        """Devices."""
        return self.inner.held(self._wants[demand][0])

    def units(self, demand: int) -> int:
        """Cores."""
        _, hosts, cpus, _ = self._wants[demand]
        return hosts * cpus

    def free_units(self) -> int:
        """Cores."""
        return sum(self._cpus)

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Licences first, as the main scheduler asks for them, then hosts."""
        inner, hosts, cpus, memory = self._wants[demand]
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
        """All of it is free."""
        self.inner.give(job)
        hosts, cpus, memory = self._jobs.pop(job)
        for host in hosts:
            self._cpus[host] += cpus
            self._memory[host] += memory

    def spans(self, job: int) -> list[Span]:
        """Where its devices are."""
        return self.inner.spans(job)

    def fail(self, machine: int) -> list[int]:
        """A machine of devices is away."""
        return self.inner.fail(machine)

    def repair(self, machine: int) -> None:
        """It is there again."""
        self.inner.repair(machine)
