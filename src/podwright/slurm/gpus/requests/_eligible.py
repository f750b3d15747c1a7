"""Which nodes of a partition may hold a job at all: by name, feature, memory, sockets and cores."""

from __future__ import annotations

import re
from dataclasses import dataclass

from podwright.slurm.gpus.requests._slurmctld_job import JobCounts
from podwright.slurm.gpus.requests._values import NodeHardware, SlurmCluster, SlurmPartition


@dataclass(frozen=True)
class Wish:
    """Features, as an expression of Slurm's: what is read, and whether it is modelled."""

    text: str
    modelled: bool


def modelled(expression: str) -> bool:
    """Whether features are joined only by &, | and (): counts and sets ([a|b], a*2) are not."""
    return not re.search(r"[*\[\]]|\([^)]*\(", expression)


def matches(expression: str, features: frozenset[str]) -> bool:
    """Whether a node with these features does, read from left to right as Slurm does."""
    found, join = True, "&"
    for group, name, after in re.findall(r"(?:\(([^()]*)\)|([^&|,()]+))([&|,]?)", expression):
        has = matches(group, features) if group else name.strip() in features
        found = (found or has) if join == "|" else (found and has)
        join = after
    return found


def named_features(expression: str) -> set[str]:
    """The names in an expression, without counts."""
    return set(re.findall(r"[^&|,()\[\]\s]+", re.sub(r"\*\d+", "", expression)))


def exclusive_sets(expression: str) -> list[str] | None:
    """The choices of `[a|b|c]`, of which all nodes must have the same; None for anything else."""
    found = re.fullmatch(r"\[([^\[\]()*&]+)\]", expression)
    return found[1].split("|") if found else None


def counted(expression: str) -> tuple[str, int] | None:
    """(feature, nodes) of `a*2`; None for anything else."""
    found = re.fullmatch(r"\[?([^\[\]()*&|]+)\*(\d+)\]?", expression)
    return (found[1], int(found[2])) if found else None


def eligible(
    job: JobCounts,
    site: SlurmCluster,
    partition: SlurmPartition,
    excluded: frozenset[str],
    wish: str,
    disk: int,
) -> list[int]:
    """Numbers of the nodes whose configuration will do, down or not."""
    found = []
    for n, (name, kind) in enumerate(site.nodes):
        if name in excluded or (partition.nodes and name not in partition.nodes):
            continue
        shape = site.shapes[kind]
        if wish and not matches(wish, shape.features):
            continue
        if _configured(job, shape, disk):
            found.append(n)
    return found


def _configured(job: JobCounts, shape: NodeHardware, disk: int) -> bool:
    """Slurm's look at slurm.conf alone (_build_node_list): at all of RealMemory."""
    cpus = shape.all_cpus
    if job.tasks_per_core and shape.cores < cpus:
        cpus = min(cpus, shape.cores * min(shape.threads, job.tasks_per_core * job.cpus))
    return (
        job.least <= cpus
        and job.memory[0] <= shape.memory + shape.spec_memory
        and disk <= shape.disk
        and job.sockets <= shape.sockets
        and job.cores <= shape.cores_per_socket
        and job.threads <= shape.threads
    )


def backfill_tries(job: JobCounts, shape: NodeHardware) -> bool:
    """Whether backfill looks at this node: with the memory of all CPUs that the job must have
    there, also where memory is not allocated (job_req_node_filter)."""
    each, per_cpu = job.memory
    return not per_cpu or each * job.least <= shape.memory + shape.spec_memory
