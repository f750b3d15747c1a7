"""Answers a request from its counts alone, where no slurmctld can be asked. Only documented rules
are used.

The rules are those of sbatch's manual page. Each rule that applies is a step of the answer. The
answer does not name nodes, GPUs or CPUs, because Slurm documents no rule for their choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from podwright.gpu.requests._consistent_counts import job_counts
from podwright.gpu.requests._job_counts import JobCounts
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._request_details import RequestDetails, read_details
from podwright.gpu.requests._slurm_options import known
from podwright.gpu.requests._units import is_number, plural
from podwright.gpu.requests._values import (
    CountedJob,
    NodeHardware,
    SlurmCluster,
    SlurmPartition,
    SlurmRefusal,
)
from podwright.slurm.site.releases import Version, release_of

#: Options that decide whether and where a job starts, and that counts do not cover.
_NOT_COUNTED = (
    *("account", "qos", "reservation", "licenses", "dependency", "constraint", "exclude"),
    *("nodefile", "switches", "clusters", "begin", "array", "het-group", "deadline"),
)
_BY_MANUAL = {
    "nodes": "--nodes={} is the least and the most nodes, or a range of them",
    "ntasks": "--ntasks={} counts the tasks of the job",
    "ntasks-per-node": "--ntasks-per-node={} counts tasks on each node",
    "gpus": "--gpus={} counts the GPUs of the whole job",
    "gpus-per-node": "--gpus-per-node={} counts the GPUs of each node",
    "gres": "--gres={} counts GPUs of each node, as --gpus-per-node does",
    "gpus-per-socket": "--gpus-per-socket={} counts the GPUs of each socket of --sockets-per-node",
    "gpus-per-task": "--gpus-per-task={0} counts the GPUs of each task, and binds each to its own",
    "ntasks-per-gpu": "--ntasks-per-gpu={} counts the tasks that share a GPU, and binds each to it",
    "cpus-per-task": "--cpus-per-task={} counts the CPUs of each task",
    "cpus-per-gpu": "--cpus-per-gpu={} counts the CPUs of each GPU",
    "mem": "--mem={} is the memory of each node; 0 is all of it",
    "mem-per-cpu": "--mem-per-cpu={} is the memory of each CPU",
    "mem-per-gpu": "--mem-per-gpu={} is the memory of each GPU",
    "gpu-bind": "--gpu-bind={} says which GPUs each task sees",
    "time": "--time={} is the time limit; 0 asks for none",
    "exclusive": "--exclusive takes whole nodes",
}


class CountedAnswer(NamedTuple):
    """steps: the rules that were used, each as a sentence."""

    answer: CountedJob | SlurmRefusal
    steps: tuple[str, ...]


def count_request(request: SlurmRequest, site: SlurmCluster, version: Version) -> CountedAnswer:
    """Return the job's counts on the nodes of a site, or the documented reason why it does
    not run.
    """
    steps = option_steps(request)
    if site.not_known:
        return CountedAnswer(SlurmRefusal("unknown", ", ".join(site.not_known)), steps)
    if request.option("het-group"):
        reason = "the parts of a heterogeneous job are not counted"
        return CountedAnswer(SlurmRefusal("unknown", reason), steps)
    details = read_details(request.given)
    refused = _option_of_release(request, version)
    counts = refused or job_counts(request)
    if isinstance(counts, SlurmRefusal):
        return CountedAnswer(counts, steps)
    partitions = _partitions(details, site)
    if isinstance(partitions, SlurmRefusal):
        return CountedAnswer(partitions, steps)
    job = _count(request, counts, site, partitions)
    beyond = (
        _beyond_limits(job, counts, details, site, partitions)
        or _beyond_nodes(request, job, details, counts, site, partitions)
        or _kept_back(details, partitions)
    )
    return CountedAnswer(beyond or job, steps)


def option_steps(request: SlurmRequest) -> tuple[str, ...]:
    """Return the meaning of the options, as one sentence each."""
    return tuple(
        f"{_BY_MANUAL[given.name].format(given.value)}."
        for given in request.given
        if given.name in _BY_MANUAL
    )


def binding_of(request: SlurmRequest) -> tuple[str, str]:
    """Return (way, argument) of the binding of tasks to GPUs; the way is `all` without a binding.

    sbatch's manual: --gpus-per-task implies per_task, and --ntasks-per-gpu implies single.
    """
    bind = request.bind.removeprefix("verbose,")
    if bind:
        binding, _, argument = bind.partition(":")
        return {"map": "map_gpu", "mask": "mask_gpu", "none": "all"}.get(binding, binding), argument
    if request.tasks_per_gpu:
        return "single", str(request.tasks_per_gpu)
    if request.per_task:
        return "per_task", str(request.per_task.count)
    return "all", ""


def _option_of_release(request: SlurmRequest, version: Version) -> SlurmRefusal | None:
    table = known(request.command)
    for given in request.given:
        option = table.get(given.name)
        if option and not option.since <= version < option.until:
            release = release_of(version)
            return SlurmRefusal(
                "submit", f"{request.command} of Slurm {release} has no --{given.name}"
            )
    memory = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if request.option(name)]
    if len(memory) > 1:
        return SlurmRefusal("submit", f"--{memory[0]} and --{memory[1]} exclude each other")
    return None


def _partitions(details: RequestDetails, site: SlurmCluster) -> list[SlurmPartition] | SlurmRefusal:
    """Return the partitions of a job that accept jobs."""
    by_name = {partition.name: partition for partition in site.partitions}
    if set(by_name) == {""}:  # the site's files do not show which partitions there are
        return list(site.partitions)
    requested = details.partitions or ((site.default,) if site.default else ())
    if not requested:
        return SlurmRefusal("submit", "there is no default partition", "Name a --partition")
    unknown = [name for name in requested if name not in by_name]
    if unknown:
        return SlurmRefusal(
            "submit", f"there is no partition {unknown[0]}", "There are: " + ", ".join(by_name)
        )
    taking = [by_name[name] for name in requested if by_name[name].accepts]
    if taking:
        return taking
    return SlurmRefusal(
        "submit", f"{', '.join(requested)} takes no jobs: it is drained or inactive"
    )


def _hardware(site: SlurmCluster, partitions: Sequence[SlurmPartition]) -> list[NodeHardware]:
    """Return the kinds of nodes in the partitions, with the number of nodes of each."""
    names = frozenset[str]().union(*(partition.nodes for partition in partitions))
    counted = Counter(index for name, index in site.nodes if name in names)
    return [replace(site.shapes[index], nodes=count) for index, count in sorted(counted.items())]


def _count(
    request: SlurmRequest,
    counts: JobCounts,
    site: SlurmCluster,
    partitions: Sequence[SlurmPartition],
) -> CountedJob:
    hardware = _hardware(site, partitions) or list(site.shapes)
    kind = _kind(counts)
    whole_gpus = [gpus for gpus in counts.gpus if not gpus.shared]
    largest = max((shape.gpus_of(kind) for shape in hardware), default=0)
    tasks = counts.tasks or 0
    nodes = counts.min_nodes or 1
    if counts.tasks_per_node and tasks:
        nodes = max(nodes, -(-tasks // counts.tasks_per_node))
    by_task = sum(gpus.per_task for gpus in whole_gpus) * (tasks or nodes)
    total = max(sum(gpus.total for gpus in whole_gpus), by_task)
    each = sum(
        gpus.per_node or gpus.per_socket * (counts.sockets_per_node or 0) for gpus in whole_gpus
    )
    if each:
        total = max(total, each * nodes)
    elif total and largest:
        nodes = max(nodes, -(-total // largest))
    fixed = counts.max_nodes == nodes or (request.min_nodes is None and tasks <= 1)
    if not each and nodes == 1 and fixed:
        each = total
    tasks = tasks or (counts.tasks_per_node or 1) * nodes
    even = counts.tasks_per_node or (tasks if nodes == 1 and fixed else None)
    if even is None and tasks == nodes and fixed:
        even = 1
    visible_gpus, binding = _seen(request, each)
    return CountedJob(
        nodes=nodes,
        tasks=tasks,
        gpus=total,
        fixed=fixed,
        gpus_per_node=each or None,
        tasks_per_node=even,
        seen_by_task=visible_gpus,
        binding=binding,
        shares=sum(gpus.total for gpus in counts.gpus if gpus.shared),
        notes=_notes(request, site),
    )


def _kind(counts: JobCounts) -> str:
    """Return the requested type of GPU; empty for none, and for several."""
    kinds = {gpus.kind for gpus in counts.gpus if gpus.name == "gpu"}
    return kinds.pop() if len(kinds) == 1 else ""


def _seen(request: SlurmRequest, each: int) -> tuple[int | None, str]:
    """Return how many GPUs a task sees, and the rule for that."""
    binding, argument = binding_of(request)
    if binding == "all":
        return each or None, "without a binding a task sees all GPUs of its job on its node"
    if binding == "single":
        return 1, "single binds each task to one GPU"
    if binding == "per_task" and is_number(argument):
        return int(argument), "per_task binds each task to GPUs of its own"
    if binding == "map_gpu":
        return 1, "map_gpu binds each task to the GPU of its entry"
    return None, f"{binding} binds a task by where it is placed"


def _notes(request: SlurmRequest, site: SlurmCluster) -> tuple[str, ...]:
    given = dict.fromkeys(option.name for option in request.given if option.name in _NOT_COUNTED)
    return (*(f"--{name} is not looked at" for name in given), *site.cautions)


def _beyond_limits(
    job: CountedJob,
    counts: JobCounts,
    details: RequestDetails,
    site: SlurmCluster,
    partitions: Sequence[SlurmPartition],
) -> SlurmRefusal | None:
    """Check limits: a job that exceeds those of all its partitions waits, or is refused."""
    reasons = []
    for partition in partitions:
        # sbatch's manual: a time limit of zero asks for none.
        unlimited = details.time is not None and details.time == 0
        long = partition.max_time is not None and (
            unlimited or (details.time or 0) > partition.max_time
        )
        if long:
            requested = "no time limit" if unlimited else f"{details.time} minutes"
            reasons.append(
                f"it asks for {requested}, and partition {partition.name} allows "
                f"{partition.max_time} minutes (PartitionTimeLimit)"
            )
        elif partition.max_nodes is not None and job.nodes > partition.max_nodes:
            reasons.append(
                f"it needs {job.nodes} nodes, and partition {partition.name} gives a job at most "
                f"{partition.max_nodes} (PartitionNodeLimit)"
            )
    if len(reasons) < len(partitions):
        return None
    if site.enforces_limits:
        return SlurmRefusal("submit", reasons[0])
    return SlurmRefusal("waits", reasons[0], until="until the limit or the job is changed")


def _beyond_nodes(
    request: SlurmRequest,
    job: CountedJob,
    details: RequestDetails,
    counts: JobCounts,
    site: SlurmCluster,
    partitions: Sequence[SlurmPartition],
) -> SlurmRefusal | None:
    """Return why the nodes of the partitions cannot hold the job, even when they are idle."""
    names = ",".join(partition.name for partition in partitions if partition.name)
    where = f"partition {names}" if names else "the site"
    hardware = _hardware(site, partitions)
    kinds = dict.fromkeys(kind for shape in site.shapes for kind, _ in shape.types)
    missing = [gpus.kind for gpus in counts.gpus if gpus.kind and kinds and gpus.kind not in kinds]
    if missing:
        types = "Types here: " + ", ".join(sorted(kinds))
        return SlurmRefusal("submit", f"no node has GPUs of type {missing[0]}", types)
    kind = _kind(counts)
    tasks = counts.tasks_per_node or (job.tasks if job.nodes == 1 == counts.max_nodes else 1)
    gpus = max(job.gpus_per_node or 0, *(0, *(typed.per_task for typed in counts.gpus)))
    cpus = max(details.mincpus, tasks * (counts.cpus_per_task or 1))
    cpus = max(cpus, gpus * (request.cpus_per_gpu or 0))
    memory = max(
        details.memory, details.memory_per_cpu * cpus, (request.memory_per_gpu or 0) * gpus
    )
    fitting = [
        shape
        for shape in hardware
        if shape.gpus_of(kind) >= gpus
        and shape.cores * shape.threads - shape.reserved >= cpus
        and (not shape.memory or shape.memory >= memory)
    ]
    if not fitting:
        requested = _described(gpus, kind, cpus, memory)
        return SlurmRefusal(
            "submit", f"no node of {where} has {requested}", _frequent_kinds(hardware)
        )
    total = sum(shape.nodes * shape.gpus_of(kind) for shape in fitting)
    if job.gpus > total and job.gpus_per_node is None:
        return SlurmRefusal(
            "submit",
            f"the job needs {_asked_gpus(job.gpus, kind)}, and {where} has {total}",
            _frequent_kinds(hardware),
        )
    count = sum(shape.nodes for shape in fitting)
    if count < job.nodes:
        requested = _described(gpus, kind, cpus, memory)
        node_count = sum(shape.nodes for shape in hardware)
        queued = (
            job.nodes > node_count and not site.enforces_limits and job.nodes <= len(site.nodes)
        )
        return SlurmRefusal(
            "waits" if queued else "submit",
            f"the job needs {job.nodes} nodes with {requested} each, and {where} has {count}",
            "Ask for fewer GPUs, or fewer nodes" if job.gpus else "Ask for fewer nodes",
        )
    return None


def _kept_back(
    details: RequestDetails, partitions: Sequence[SlurmPartition]
) -> SlurmRefusal | None:
    if details.is_held:
        return SlurmRefusal("waits", "it is held", until="until `scontrol release JOB`")
    if not any(partition.starts for partition in partitions):
        names = ", ".join(partition.name for partition in partitions)
        return SlurmRefusal("waits", f"{names} is down", until=f"until partition {names} is up")
    return None


def _described(gpus: int, kind: str, cpus: int, memory: int) -> str:
    parts = [_asked_gpus(gpus, kind)] if gpus else []
    parts.append(plural(cpus, "CPU"))
    if memory:
        parts.append(f"{_mebibytes(memory)} of memory")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _asked_gpus(gpus: int, kind: str) -> str:
    return plural(gpus, "GPU") + (f" of type {kind}" if kind else "")


def _frequent_kinds(hardware: Sequence[NodeHardware]) -> str:
    """Describe the nodes: the three most frequent kinds."""
    kinds = sorted(hardware, key=lambda shape: -shape.nodes)[:3]
    return "Ask for what the nodes have: " + "; ".join(
        f"{plural(shape.nodes, 'node')} with {plural(shape.gpus, 'GPU')}, "
        f"{plural(shape.cores * shape.threads - shape.reserved, 'CPU')}"
        + (f", {_mebibytes(shape.memory)}" if shape.memory else "")
        for shape in kinds
    )


def _mebibytes(size: int) -> str:
    mib = size >> 20
    return f"{mib >> 10} GiB" if mib and not mib % 1024 else f"{mib} MiB"
