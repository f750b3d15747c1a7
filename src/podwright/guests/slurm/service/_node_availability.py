"""Whether a heterogeneous job could get its nodes now.

Its devices are set aside before Slurm starts it, so devices that are set aside for a job without
nodes are idle for the window. Slurm alone decides which nodes a job gets. This module counts only
what every choice of nodes needs: free CPUs, and free whole nodes of the partitions. So a job that
could start is never kept waiting. A job that waits for something else (memory, features, a job of
higher priority) is offered its devices, does not take them, and waits again. Busy nodes prove
nothing where Slurm may end or share what runs on them (preemption, OverSubscribe), nor where this
Slurm does not show a field.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from podwright.errors import FieldNotKnown, Unavailable
from podwright.slurm.reader import (
    SHOW_CONFIG,
    SHOW_NODES,
    SHOW_PARTITIONS,
    JobRecord,
    SlurmConfig,
    SlurmNode,
    SlurmPartitionRecord,
    read_jobs,
    read_nodes,
    read_partitions,
)
from podwright.slurm.site.commands import Slurm

_log = logging.getLogger("podwright.slurm")
#: Two looks at all nodes are at least LOOK_S seconds apart, and at least LOOK_SHARE times the
#: duration of a look.
LOOK_S: Final = 2.0
LOOK_SHARE: Final = 10.0


class FreeNode(NamedTuple):
    """A node that takes jobs. cpus: the CPUs that no job has. idle: no job has any CPU of it."""

    name: str
    partitions: tuple[str, ...]
    cpus: int
    idle: bool


class PartNeed(NamedTuple):
    """What a part needs at least.

    partitions: where it may run. nodes, cpus: totals. whole_nodes: it shares its nodes with nobody.
    """

    partitions: tuple[str, ...]
    nodes: int
    cpus: int
    whole_nodes: bool


def free_nodes(nodes: Iterable[SlurmNode]) -> list[FreeNode]:
    """Return what the nodes have free. Raises FieldNotKnown."""
    return [
        FreeNode(
            node.name, node.partitions, node.cpus - node.allocated_cpus, not node.allocated_cpus
        )
        for node in nodes
        if node.state.takes_jobs
    ]


def part_need(job: JobRecord, partitions: Mapping[str, SlurmPartitionRecord]) -> PartNeed | None:
    """Return what a waiting part needs, or None if it may share busy CPUs. Raises FieldNotKnown."""
    names = tuple(job.partition.split(","))
    if any(name not in partitions or partitions[name].share > 1 for name in names):
        return None
    whole_nodes = job.whole_nodes or all(partitions[name].whole_nodes for name in names)
    return PartNeed(names, job.min_nodes or 1, job.min_cpus or 1, whole_nodes)


def unmet_need(free: Sequence[FreeNode], needs: Sequence[PartNeed]) -> str:
    """Return why the free nodes cannot be enough for all these parts together, or "" if they may
    be.
    """
    for partition_names in dict.fromkeys(frozenset(need.partitions) for need in needs):
        reachable = [
            node for node in free if node.cpus > 0 and partition_names.intersection(node.partitions)
        ]
        competing_needs = [need for need in needs if partition_names.issuperset(need.partitions)]
        name = ",".join(sorted(partition_names))
        cpus, idle = sum(node.cpus for node in reachable), sum(node.idle for node in reachable)
        if (needed := sum(need.cpus for need in competing_needs)) > cpus:
            return f"free CPUs in {name}: {cpus}, needed: {needed}"
        if (needed := sum(need.nodes for need in competing_needs if need.whole_nodes)) > idle:
            return f"idle nodes in {name}: {idle}, needed: {needed}"
        if (needed := max(need.nodes for need in competing_needs)) > len(reachable):
            return f"nodes with free CPUs in {name}: {len(reachable)}, needed: {needed}"
    return ""


class NodeAvailability:
    """Asks Slurm for its nodes, though not often. clock: returns seconds and never goes
    backwards.
    """

    def __init__(self, slurm: Slurm, clock: Callable[[], float]) -> None:
        self._slurm, self._clock = slurm, clock
        self._next_look = float("-inf")
        self._free: list[FreeNode] | None = None  # None: busy nodes prove nothing
        self._partitions: dict[str, SlurmPartitionRecord] = {}
        self._parts: dict[int, list[JobRecord]] = {}
        self._last_problem = ""

    async def unmet_need(self, leaders: Sequence[int]) -> str:
        """Return why nodes are missing for these jobs together, or "" if all of them may start or
        nobody knows.
        """
        try:
            await self._refresh()
            if self._free is None:
                return ""
            needs = [
                part_need(part, self._partitions)
                for leader in leaders
                for part in await self._parts_of(leader)
                if part.state == "PENDING"
            ]
            return unmet_need(self._free, [need for need in needs if need])
        except (FieldNotKnown, Unavailable) as error:
            if str(error) != self._last_problem:
                _log.warning("whether nodes are free for heterogeneous jobs: %s", error)
                self._last_problem = str(error)
            return ""

    async def _refresh(self) -> None:
        began = self._clock()
        if began < self._next_look:
            return
        self._parts, self._free = {}, None
        try:
            if not _preempts(SlurmConfig(await self._output(*SHOW_CONFIG))):
                records = read_partitions(await self._output(*SHOW_PARTITIONS))
                self._partitions = {partition.name: partition for partition in records}
                self._free = free_nodes(read_nodes(await self._output(*SHOW_NODES)))
        finally:
            now = self._clock()
            self._next_look = now + max(LOOK_S, LOOK_SHARE * (now - began))

    async def _parts_of(self, leader: int) -> list[JobRecord]:
        if leader not in self._parts:
            text = await self._output("scontrol", "--oneliner", "show", "job", str(leader))
            self._parts[leader] = read_jobs(text)
        return self._parts[leader]

    async def _output(self, *command: str) -> str:
        """Return what a command prints. Raises Unavailable."""
        reply = await self._slurm.run(*command)
        if reply.code:
            raise Unavailable(f"{' '.join(command)} failed: {reply.text[:200]}")
        return reply.out


def _preempts(config: SlurmConfig) -> bool:
    """Return whether Slurm may end or suspend a running job for another one. Raises
    FieldNotKnown.
    """
    return config.value("PreemptType") not in ("", "preempt/none") or (
        config.text("PreemptMode").upper() != "OFF"
    )
