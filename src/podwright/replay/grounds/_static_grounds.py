"""Static partitions and host mapping: grounds that are divided before any job arrives."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.fabric import IPU
from podwright.replay.grounds._ground import MachinesGround, Span, StartAnswer, Unfit

_MACHINE = IPU.devices_per_machine


class StaticPartitions(MachinesGround):
    """Partitions that were created beforehand. stock: (how many, devices of each).

    A job gets the smallest partition that holds it. Each size is a licence of its own, as `vipu_4`
    is.
    """

    simpler = ("A job gets one partition, the smallest that holds it, and never waits for a "
               "larger one while none of its size is free.",)  # fmt: skip

    def __init__(self, name: str, size: int, stock: Sequence[tuple[int, int]]) -> None:
        super().__init__(name, size, per_machine=_MACHINE)
        self._free: dict[int, list[int]] = {}
        start = 0
        for count, devices in sorted(stock, key=lambda one: -one[1]):
            places = self._free.setdefault(devices, [])
            places += range(start, start + count * devices, devices)
            start += count * devices
        for places in self._free.values():
            places.sort(reverse=True)
        self._jobs: dict[int, Span] = {}

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Return the size of the smallest partition that holds the job."""
        fit = [size for size in self._free if size >= devices]
        if not fit:
            raise Unfit(f"larger than any partition: more than {max(self._free)} devices")
        return min(fit)

    def devices_for(self, demand: int) -> int:
        """Return the devices of the partition."""
        return demand

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Take the first free partition of that size that has all its machines."""
        places = self._free[demand]
        index = len(places) - 1
        while index >= 0 and self._is_broken((places[index], demand)):
            index -= 1
        if index < 0:
            return StartAnswer.LICENCES
        self._jobs[job] = places.pop(index), demand
        self.occupied += demand
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """Free the job's partition."""
        first, size = self._jobs.pop(job)
        places = self._free[size]
        places.append(first)
        places.sort(reverse=True)
        self.occupied -= size

    def spans(self, job: int) -> list[Span]:
        """Return the job's partition."""
        return [self._jobs[job]]

    def _is_broken(self, span: Span) -> bool:
        return any(_is_on(span, machine) for machine in self._failed_machines)

    def fail(self, machine: int) -> list[int]:
        """Mark the machine as away. Returns the jobs whose partitions need it."""
        self._failed_machines.add(machine)
        return [job for job, span in self._jobs.items() if _is_on(span, machine)]


def _is_on(span: Span, machine: int) -> bool:
    first = machine * _MACHINE
    return span[0] < first + _MACHINE and sum(span) > first


def legal(devices: int) -> bool:
    """Return whether an allocation may have this many devices.

    Source: V-IPU guide, terminology; the family's data.
    """
    return devices in IPU.allocation_sizes_in_domain or devices % IPU.max_domain_devices == 0


class Mapping(MachinesGround):
    """Hosts that own whole machines. A job takes whole hosts, which Slurm sees as nodes."""

    plans = True

    def __init__(self, name: str, hosts: int, devices: int) -> None:
        super().__init__(name, hosts * devices, per_machine=_MACHINE)
        self._hosts, self._each = hosts, devices
        self._free = list(range(hosts - 1, -1, -1))
        self._jobs: dict[int, list[int]] = {}

    @property
    def machines(self) -> int:
        """The number of machines that may fail."""
        return -(-self.size // _MACHINE)

    @property
    def lost(self) -> int:
        """The number of devices of the hosts with a machine that is down."""
        return len(self._broken()) * self._each

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Return the job's number of hosts: the fewest that hold it and may be an allocation."""
        hosts = -(-devices // self._each)
        while hosts <= self._hosts and not legal(hosts * self._each):
            hosts += 1
        if hosts > self._hosts:
            raise Unfit(f"more than {self._hosts} hosts")
        return hosts

    def devices_for(self, demand: int) -> int:
        """Return the devices of the hosts."""
        return demand * self._each

    def units(self, demand: int) -> int:
        """Return the number of hosts."""
        return demand

    def free_units(self) -> int:
        """Return the number of free hosts."""
        return len(self._free_host_count())

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Take the first free hosts."""
        free_hosts = self._free_host_count()
        if len(free_hosts) < demand:
            return StartAnswer.NODES
        self._jobs[job] = free_hosts[-demand:]
        self._free = [host for host in self._free if host not in self._jobs[job]]
        self.occupied += demand * self._each
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """Free the job's hosts."""
        hosts = self._jobs.pop(job)
        self.occupied -= len(hosts) * self._each
        self._free = sorted([*self._free, *hosts], reverse=True)

    def spans(self, job: int) -> list[Span]:
        """Return a span for each contiguous run of hosts."""
        out: list[Span] = []
        for host in sorted(self._jobs[job]):
            first = host * self._each
            if out and sum(out[-1]) == first:
                out[-1] = out[-1][0], out[-1][1] + self._each
            else:
                out.append((first, self._each))
        return out

    def _broken(self) -> set[int]:
        return {host for machine in self._failed_machines for host in self._of(machine)}

    def _free_host_count(self) -> list[int]:
        if not self._failed_machines:
            return self._free
        broken = self._broken()
        return [host for host in self._free if host not in broken]

    def _of(self, machine: int) -> range:
        """Return the hosts that have devices of a machine."""
        first = machine * _MACHINE
        return range(first // self._each, -(-(first + _MACHINE) // self._each))

    def fail(self, machine: int) -> list[int]:
        """Mark the machine as away. Returns the jobs on the hosts that need it."""
        self._failed_machines.add(machine)
        hosts = set(self._of(machine))
        return [job for job, hosts_of_job in self._jobs.items() if hosts.intersection(hosts_of_job)]
