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
#: Two looks at all nodes are at least MIN_LOOK_INTERVAL_S seconds apart, and at least
#: LOOK_DURATION_FACTOR times the duration of a look.
MIN_LOOK_INTERVAL_S: Final = 2.0
LOOK_DURATION_FACTOR: Final = 10.0


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


def part_need(
    part_job: JobRecord, partition_records: Mapping[str, SlurmPartitionRecord]
) -> PartNeed | None:
    """Return what a waiting part needs, or None if it may share busy CPUs. Raises FieldNotKnown."""
    partition_names = tuple(part_job.partition.split(","))
    if any(
        name not in partition_records or partition_records[name].share > 1
        for name in partition_names
    ):
        return None
    nodes = part_job.whole_nodes or all(
        partition_records[name].whole_nodes for name in partition_names
    )
    return PartNeed(partition_names, part_job.min_nodes or 1, part_job.min_cpus or 1, nodes)


def unmet_need(available_nodes: Sequence[FreeNode], part_needs: Sequence[PartNeed]) -> str:
    """Return why the free nodes cannot be enough for all these parts together, or "" if they may
    be.
    """
    for partition_names in dict.fromkeys(
        frozenset(need_of_part.partitions) for need_of_part in part_needs
    ):
        reachable_nodes = [
            node
            for node in available_nodes
            if node.cpus > 0 and partition_names.intersection(node.partitions)
        ]
        competing_needs = [
            need_of_part
            for need_of_part in part_needs
            if partition_names.issuperset(need_of_part.partitions)
        ]
        partitions_text = ",".join(sorted(partition_names))
        free_cpus, idle_nodes = (
            sum(node.cpus for node in reachable_nodes),
            sum(node.idle for node in reachable_nodes),
        )
        if (needed := sum(need_of_part.cpus for need_of_part in competing_needs)) > free_cpus:
            return f"free CPUs in {partitions_text}: {free_cpus}, needed: {needed}"
        if (
            needed := sum(
                need_of_part.nodes for need_of_part in competing_needs if need_of_part.whole_nodes
            )
        ) > idle_nodes:
            return f"idle nodes in {partitions_text}: {idle_nodes}, needed: {needed}"
        if (needed := max(need_of_part.nodes for need_of_part in competing_needs)) > len(
            reachable_nodes
        ):
            return (
                f"nodes with free CPUs in {partitions_text}: {len(reachable_nodes)}, needed: "
                f"{needed}"
            )
    return ""


class NodeAvailability:
    """Asks Slurm for its nodes, though not often. clock: returns seconds and never goes
    backwards.
    """

    def __init__(self, slurm: Slurm, clock: Callable[[], float]) -> None:
        self._slurm, self._clock = slurm, clock
        self._next_look_at = float("-inf")
        self._free: list[FreeNode] | None = None  # None: busy nodes prove nothing
        self._partitions: dict[str, SlurmPartitionRecord] = {}
        self._parts: dict[int, list[JobRecord]] = {}
        self._last_problem = ""

    async def unmet_need(self, leader_numbers: Sequence[int]) -> str:
        """Return why nodes are missing for these jobs together, or "" if all of them may start or
        nobody knows.
        """
        try:
            await self._refresh()
            if self._free is None:
                return ""
            part_needs = [
                part_need(part_job, self._partitions)
                for number in leader_numbers
                for part_job in await self._job_parts(number)
                if part_job.state == "PENDING"
            ]
            return unmet_need(self._free, [one_need for one_need in part_needs if one_need])
        except (FieldNotKnown, Unavailable) as error:
            if str(error) != self._last_problem:
                _log.warning("whether nodes are free for heterogeneous jobs: %s", error)
                self._last_problem = str(error)
            return ""

    async def _refresh(self) -> None:
        began_at = self._clock()
        if began_at < self._next_look_at:
            return
        self._parts, self._free = {}, None
        try:
            if not _may_preempt(SlurmConfig(await self._command_output(*SHOW_CONFIG))):
                partition_records = read_partitions(await self._command_output(*SHOW_PARTITIONS))
                self._partitions = {record.name: record for record in partition_records}
                self._free = free_nodes(read_nodes(await self._command_output(*SHOW_NODES)))
        finally:
            finished_at = self._clock()
            self._next_look_at = finished_at + max(
                MIN_LOOK_INTERVAL_S, LOOK_DURATION_FACTOR * (finished_at - began_at)
            )

    async def _job_parts(self, leader_number: int) -> list[JobRecord]:
        if leader_number not in self._parts:
            output = await self._command_output(
                "scontrol", "--oneliner", "show", "job", str(leader_number)
            )
            self._parts[leader_number] = read_jobs(output)
        return self._parts[leader_number]

    async def _command_output(self, *slurm_command: str) -> str:
        """Return what a command prints. Raises Unavailable."""
        reply = await self._slurm.run(*slurm_command)
        if reply.code:
            raise Unavailable(f"{' '.join(slurm_command)} failed: {reply.text[:200]}")
        return reply.out


def _may_preempt(slurm_config: SlurmConfig) -> bool:
    """Return whether Slurm may end or suspend a running job for another one. Raises
    FieldNotKnown.
    """
    return slurm_config.value("PreemptType") not in ("", "preempt/none") or (
        slurm_config.text("PreemptMode").upper() != "OFF"
    )
