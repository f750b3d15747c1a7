"""Static partitions and host mapping: what is handed out was cut before."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.fabric import IPU
from podwright.replay._ground import Ground, Span, StartAnswer, Unfit


class StaticPartitions(Ground):
    """Partitions that were made beforehand. stock: (how many, devices of each).

    A job gets the smallest that holds it; each size is a licence of its own, as `vipu_4` is.
    """

    simpler = ("A job gets one partition, the smallest that holds it, and never waits for a "
               "larger one while none of its size is free.",)  # fmt: skip

    def __init__(self, name: str, size: int, stock: Sequence[tuple[int, int]]) -> None:
        self.name, self.size = name, size
        self._free: dict[int, list[int]] = {}
        at = 0
        for count, devices in sorted(stock, key=lambda one: -one[1]):
            places = self._free.setdefault(devices, [])
            places += range(at, at + count * devices, devices)
            at += count * devices
        for places in self._free.values():
            places.sort(reverse=True)
        self._jobs: dict[int, Span] = {}

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """The size of its partition."""
        fit = [size for size in self._free if size >= devices]
        if not fit:
            raise Unfit(f"larger than any partition: more than {max(self._free)} devices")
        return min(fit)

    def held(self, demand: int) -> int:
        """Devices of the partition."""
        return demand

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """A free partition of that size, the first."""
        places = self._free[demand]
        if not places:
            return StartAnswer.LICENCES
        self._jobs[job] = places.pop(), demand
        self.taken += demand
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """It is on the shelf again."""
        first, size = self._jobs.pop(job)
        places = self._free[size]
        places.append(first)
        places.sort(reverse=True)
        self.taken -= size

    def spans(self, job: int) -> list[Span]:
        """One partition."""
        return [self._jobs[job]]


def legal(devices: int) -> bool:
    """May an allocation have so many? (V-IPU guide, terminology: the family's data.)"""
    return devices in IPU.allocation_sizes_in_domain or devices % IPU.max_domain_devices == 0


class Mapping(Ground):
    """Hosts that have their machines for themselves: a job takes whole hosts. Slurm sees nodes."""

    plans = True

    def __init__(self, name: str, hosts: int, devices: int) -> None:
        self.name, self.size = name, hosts * devices
        self._hosts, self._each = hosts, devices
        self._free = list(range(hosts - 1, -1, -1))
        self._jobs: dict[int, list[int]] = {}

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Its hosts: as many as hold it, and so many that their machines may be an allocation."""
        hosts = -(-devices // self._each)
        while hosts <= self._hosts and not legal(hosts * self._each):
            hosts += 1
        if hosts > self._hosts:
            raise Unfit(f"more than {self._hosts} hosts")
        return hosts

    def held(self, demand: int) -> int:
        """Devices of its hosts."""
        return demand * self._each

    def units(self, demand: int) -> int:
        """Hosts."""
        return demand

    def free_units(self) -> int:
        """Hosts."""
        return len(self._free)

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """The first free hosts."""
        if len(self._free) < demand:
            return StartAnswer.NODES
        self._jobs[job] = [self._free.pop() for _ in range(demand)]
        self.taken += demand * self._each
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """They are free."""
        hosts = self._jobs.pop(job)
        self.taken -= len(hosts) * self._each
        self._free = sorted([*self._free, *hosts], reverse=True)

    def spans(self, job: int) -> list[Span]:
        """A span for each run of hosts."""
        out: list[Span] = []
        for host in sorted(self._jobs[job]):
            first = host * self._each
            if out and sum(out[-1]) == first:
                out[-1] = out[-1][0], out[-1][1] + self._each
            else:
                out.append((first, self._each))
        return out
