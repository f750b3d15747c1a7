"""The placement of instances: the cores of a host that each uses, and the memory near them.

The strategies are those of the PopRun guide, section 2.5, which names no flags. How a strategy
counts is our choice. spreadnuma gives each instance whole NUMA nodes, and shares a node among
several instances if there are fewer nodes than instances. The others give one core: scattersocket
in turns over the sockets, scatternuma in turns over the NUMA nodes, close one after another.

Memory is taken from the NUMA nodes of those cores first, and from others once these are full: the
guide calls it preferred. The kernel is told so for each instance that is bound to some of the
nodes, so it also holds for threads that a program moves. No placement leaves the cpuset, Slurm step
or affinity in which poprun itself runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import cycle, islice
from typing import NamedTuple

from podwright.hosts import Cores, CpuCore, write_list

PLACEMENT_STRATEGIES = ("spreadnuma", "scattersocket", "scatternuma", "close", "disabled")
#: In an instance's environment: the hardware threads to which it is bound.
CPUS_VARIABLE = "PODWRIGHT_CPUS"
#: In an instance's environment: the NUMA nodes whose memory it takes first.
NUMA_NODES_VARIABLE = "PODWRIGHT_NUMA_NODES"
#: mpirun's own words that place processes.
MPIRUN_PLACEMENT_FLAGS = (
    "map-by",
    "bind-to",
    "rank-by",
    "cpu-set",
    "cpu-list",
    "rankfile",
    "npernode",
    "N",
)


class InstancePlace(NamedTuple):
    """The place of one instance. bound: whether it must be bound; otherwise the place is the whole
    host.

    memory: the NUMA nodes whose memory it takes first; none if there is no choice.
    """

    cores: int
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]
    bound: bool
    memory: tuple[int, ...] = ()

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """Return the variables that describe the place to the instance."""
        variables_and_numbers = ((CPUS_VARIABLE, self.cpus), (NUMA_NODES_VARIABLE, self.memory))
        return tuple(
            (name, write_list(cpu_or_node_numbers))
            for name, cpu_or_node_numbers in variables_and_numbers
            if cpu_or_node_numbers and self.bound
        )

    def __str__(self) -> str:
        thread_list = write_list(self.cpus)
        noun = "core" if self.cores == 1 else "cores"
        numa_text = f", NUMA node {write_list(self.nodes)}" if self.nodes else ""
        memory_text = ", its memory first" if self.memory else ""
        return f"{self.cores} {noun} (CPU {thread_list}){numa_text}{memory_text}"


def places(strategy: str, host_cores: Cores, instance_count: int) -> tuple[InstancePlace, ...]:
    """Return a place for each of the instances on one host."""
    if not host_cores.cores:
        return ()
    if strategy == "spreadnuma":
        cores_by_instance = _cores_by_numa_share(host_cores, instance_count)
    else:
        cores_by_instance = list(
            islice(
                cycle([core] for core in _cores_in_order(strategy, host_cores)),
                instance_count,
            )
        )
    return tuple(
        _instance_place(host_cores, instance_cores) for instance_cores in cores_by_instance
    )


def _instance_place(host_cores: Cores, instance_cores: Sequence[CpuCore]) -> InstancePlace:
    cpu_numbers = tuple(sorted(number for core in instance_cores for number in core.cpus))
    numa_nodes = tuple(sorted({core.node for core in instance_cores} & set(host_cores.memory)))
    must_bind = cpu_numbers != host_cores.cpus
    return InstancePlace(
        len(instance_cores),
        cpu_numbers,
        numa_nodes,
        must_bind,
        near_memory_nodes(host_cores, cpu_numbers) if must_bind else (),
    )


def near_memory_nodes(host_cores: Cores, cpu_numbers: Collection[int]) -> tuple[int, ...]:
    """Return the NUMA nodes near these hardware threads; none if no other nodes have memory."""
    near_nodes = {
        core.node for core in host_cores.cores if not set(core.cpus).isdisjoint(cpu_numbers)
    }
    nodes_with_memory = near_nodes & set(host_cores.memory)
    return tuple(sorted(nodes_with_memory)) if nodes_with_memory != set(host_cores.memory) else ()


def _cores_by_numa_share(host_cores: Cores, instance_count: int) -> list[list[CpuCore]]:
    numa_nodes = host_cores.nodes
    cores_by_instance = []
    for instance_index in range(instance_count):
        first_node, end_node = (
            len(numa_nodes) * share_index // instance_count
            for share_index in (instance_index, instance_index + 1)
        )
        own_numa_nodes = numa_nodes[first_node : max(end_node, first_node + 1)]
        cores_by_instance.append([core for core in host_cores.cores if core.node in own_numa_nodes])
    return cores_by_instance


def _cores_in_order(strategy: str, host_cores: Cores) -> Iterator[CpuCore]:
    """Return the cores in the order in which instances take them."""
    if strategy == "close":
        sorted_cores = sorted(
            host_cores.cores, key=lambda cpu_core: (cpu_core.socket, cpu_core.node, cpu_core.cpus)
        )
        yield from sorted_cores
        return
    cores_by_group: dict[tuple[int, ...], list[CpuCore]] = {}
    for cpu_core in host_cores.cores:
        group_key = (
            (cpu_core.socket,) if strategy == "scattersocket" else (cpu_core.socket, cpu_core.node)
        )
        cores_by_group.setdefault(group_key, []).append(cpu_core)
    core_iterators = [iter(cores_by_group[key]) for key in sorted(cores_by_group)]
    while core_iterators:
        for iterator in list(core_iterators):
            try:
                yield next(iterator)
            except StopIteration:
                core_iterators.remove(iterator)
