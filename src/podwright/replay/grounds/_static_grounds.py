"""Static partitions and host mapping: grounds that are divided before any job arrives."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.fabric import IPU
from podwright.ground.plural import counted
from podwright.replay.grounds._ground import DeviceSpan, MachinesGround, StartAnswer, UnfitJob

_DEVICES_PER_MACHINE = IPU.devices_per_machine


class StaticPartitions(MachinesGround):
    """Partitions that were created beforehand. stock: (how many, devices of each).

    A job gets the smallest partition that holds it. Each size is a licence of its own, as `vipu_4`
    is.
    """

    simpler = ("A job gets one partition, the smallest that holds it, and never waits for a "
               "larger one while none of its size is free.",)  # fmt: skip

    def __init__(self, way_name: str, device_count: int, stock: Sequence[tuple[int, int]]) -> None:
        super().__init__(way_name, device_count, per_machine=_DEVICES_PER_MACHINE)
        self._free: dict[int, list[int]] = {}
        partition_start = 0
        for partition_count, partition_size in sorted(
            stock, key=lambda count_and_size: -count_and_size[1]
        ):
            free_starts = self._free.setdefault(partition_size, [])
            free_starts += range(
                partition_start, partition_start + partition_count * partition_size, partition_size
            )
            partition_start += partition_count * partition_size
        for free_starts in self._free.values():
            free_starts.sort(reverse=True)
        self._jobs: dict[int, DeviceSpan] = {}

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Return the size of the smallest partition that holds the job."""
        fitting_sizes = [size for size in self._free if size >= devices]
        if not fitting_sizes:
            raise UnfitJob(f"larger than any partition: more than {max(self._free)} devices")
        return min(fitting_sizes)

    def devices_for(self, demand: int) -> int:
        """Return the devices of the partition."""
        return demand

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Take the first free partition of that size that has all its machines."""
        free_starts = self._free[demand]
        index = len(free_starts) - 1
        while index >= 0 and self._has_failed_machine((free_starts[index], demand)):
            index -= 1
        if index < 0:
            return StartAnswer.LICENCES
        self._jobs[job] = free_starts.pop(index), demand
        self.occupied += demand
        return StartAnswer.TAKEN

    def give(self, job: int) -> None:
        """Free the job's partition."""
        partition_start, size = self._jobs.pop(job)
        free_starts = self._free[size]
        free_starts.append(partition_start)
        free_starts.sort(reverse=True)
        self.occupied -= size

    def spans(self, job: int) -> list[DeviceSpan]:
        """Return the job's partition."""
        return [self._jobs[job]]

    def _has_failed_machine(self, span: DeviceSpan) -> bool:
        return any(_span_meets_machine(span, machine) for machine in self._failed_machines)

    def fail(self, machine: int) -> list[int]:
        """Mark the machine as away. Returns the jobs whose partitions need it."""
        self._failed_machines.add(machine)
        return [job for job, span in self._jobs.items() if _span_meets_machine(span, machine)]


def _span_meets_machine(span: DeviceSpan, machine: int) -> bool:
    device = machine * _DEVICES_PER_MACHINE
    return span[0] < device + _DEVICES_PER_MACHINE and sum(span) > device


def legal(device_count: int) -> bool:
    """Return whether an allocation may have this many devices.

    Source: V-IPU guide, terminology; the family's data.
    """
    return (
        device_count in IPU.allocation_sizes_in_domain or device_count % IPU.max_domain_devices == 0
    )


class Mapping(MachinesGround):
    """Hosts that own whole machines. A job takes whole hosts, which Slurm sees as nodes."""

    plans = True

    def __init__(self, way_name: str, host_count: int, devices_each: int) -> None:
        super().__init__(way_name, host_count * devices_each, per_machine=_DEVICES_PER_MACHINE)
        self._hosts, self._each = host_count, devices_each
        self._free = list(range(host_count - 1, -1, -1))
        self._jobs: dict[int, list[int]] = {}

    @property
    def machines(self) -> int:
        """The number of machines that may fail."""
        return -(-self.size // _DEVICES_PER_MACHINE)

    @property
    def lost(self) -> int:
        """The number of devices of the hosts with a machine that is down."""
        return len(self._hosts_out_of_order()) * self._each

    def demand(self, devices: int, nodes: int, cpus: int, memory: int) -> int:
        """Return the job's number of hosts: the fewest that hold it and may be an allocation."""
        count = -(-devices // self._each)
        while count <= self._hosts and not legal(count * self._each):
            count += 1
        if count > self._hosts:
            raise UnfitJob(f"more than {counted(self._hosts, 'host')}")
        return count

    def devices_for(self, demand: int) -> int:
        """Return the devices of the hosts."""
        return demand * self._each

    def units(self, demand: int) -> int:
        """Return the number of hosts."""
        return demand

    def free_units(self) -> int:
        """Return the number of free hosts."""
        return len(self._usable_free_hosts())

    def take(self, job: int, demand: int, end: float) -> StartAnswer:
        """Take the first free hosts."""
        free_hosts = self._usable_free_hosts()
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

    def spans(self, job: int) -> list[DeviceSpan]:
        """Return a span for each contiguous run of hosts."""
        host_spans: list[DeviceSpan] = []
        for host in sorted(self._jobs[job]):
            device = host * self._each
            if host_spans and sum(host_spans[-1]) == device:
                host_spans[-1] = host_spans[-1][0], host_spans[-1][1] + self._each
            else:
                host_spans.append((device, self._each))
        return host_spans

    def _hosts_out_of_order(self) -> set[int]:
        return {
            host for machine in self._failed_machines for host in self._hosts_of_machine(machine)
        }

    def _usable_free_hosts(self) -> list[int]:
        if not self._failed_machines:
            return self._free
        broken_hosts = self._hosts_out_of_order()
        return [host for host in self._free if host not in broken_hosts]

    def _hosts_of_machine(self, machine: int) -> range:
        """Return the hosts that have devices of a machine."""
        device = machine * _DEVICES_PER_MACHINE
        return range(device // self._each, -(-(device + _DEVICES_PER_MACHINE) // self._each))

    def fail(self, machine: int) -> list[int]:
        """Mark the machine as away. Returns the jobs on the hosts that need it."""
        self._failed_machines.add(machine)
        hosts = set(self._hosts_of_machine(machine))
        return [job for job, hosts_of_job in self._jobs.items() if hosts.intersection(hosts_of_job)]
