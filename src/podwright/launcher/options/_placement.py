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

STRATEGIES = ("spreadnuma", "scattersocket", "scatternuma", "close", "disabled")
#: In an instance's environment: the hardware threads to which it is bound.
CPUS_VARIABLE = "PODWRIGHT_CPUS"
#: In an instance's environment: the NUMA nodes whose memory it takes first.
NODES_VARIABLE = "PODWRIGHT_NUMA_NODES"
#: mpirun's own words that place processes.
FLAGS = ("map-by", "bind-to", "rank-by", "cpu-set", "cpu-list", "rankfile", "npernode", "N")


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
        bindings = ((CPUS_VARIABLE, self.cpus), (NODES_VARIABLE, self.memory))
        return tuple(
            (name, write_list(numbers)) for name, numbers in bindings if numbers and self.bound
        )

    def __str__(self) -> str:
        threads = write_list(self.cpus)
        word = "core" if self.cores == 1 else "cores"
        near = f", NUMA node {write_list(self.nodes)}" if self.nodes else ""
        first = ", its memory first" if self.memory else ""
        return f"{self.cores} {word} (CPU {threads}){near}{first}"


def places(strategy: str, host: Cores, instances: int) -> tuple[InstancePlace, ...]:
    """Return a place for each of the instances on one host."""
    if not host.cores:
        return ()
    if strategy == "spreadnuma":
        chosen = _numa_nodes_each(host, instances)
    else:
        chosen = list(islice(cycle([core] for core in _order(strategy, host)), instances))
    return tuple(_place(host, cores) for cores in chosen)


def _place(host: Cores, cores: Sequence[CpuCore]) -> InstancePlace:
    cpus = tuple(sorted(cpu for core in cores for cpu in core.cpus))
    numa_nodes = tuple(sorted({core.node for core in cores} & set(host.memory)))
    bound = cpus != host.cpus
    return InstancePlace(
        len(cores), cpus, numa_nodes, bound, near_memory(host, cpus) if bound else ()
    )


def near_memory(host: Cores, cpus: Collection[int]) -> tuple[int, ...]:
    """Return the NUMA nodes near these hardware threads; none if no other nodes have memory."""
    near = {core.node for core in host.cores if not set(core.cpus).isdisjoint(cpus)}
    numa_nodes = near & set(host.memory)
    return tuple(sorted(numa_nodes)) if numa_nodes != set(host.memory) else ()


def _numa_nodes_each(host: Cores, instances: int) -> list[list[CpuCore]]:
    numa_nodes = host.nodes
    shares = []
    for index in range(instances):
        first, last = (len(numa_nodes) * i // instances for i in (index, index + 1))
        own_numa_nodes = numa_nodes[first : max(last, first + 1)]
        shares.append([core for core in host.cores if core.node in own_numa_nodes])
    return shares


def _order(strategy: str, host: Cores) -> Iterator[CpuCore]:
    """Return the cores in the order in which instances take them."""
    if strategy == "close":
        cores = sorted(host.cores, key=lambda core: (core.socket, core.node, core.cpus))
        yield from cores
        return
    groups: dict[tuple[int, ...], list[CpuCore]] = {}
    for core in host.cores:
        key = (core.socket,) if strategy == "scattersocket" else (core.socket, core.node)
        groups.setdefault(key, []).append(core)
    lines = [iter(groups[key]) for key in sorted(groups)]
    while lines:
        for line in list(lines):
            try:
                yield next(line)
            except StopIteration:
                lines.remove(line)
