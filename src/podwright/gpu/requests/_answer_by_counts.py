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
from podwright.gpu.requests._site_answer_types import (
    CountedJob,
    NodeHardware,
    SlurmCluster,
    SlurmPartition,
    SlurmRefusal,
)
from podwright.gpu.requests._slurm_options import known
from podwright.gpu.requests._units import is_number, plural
from podwright.slurm.site.releases import SlurmVersion, release_of

#: Options that decide whether and where a job starts, and that counts do not cover.
_UNCOUNTED_OPTIONS = (
    *("account", "qos", "reservation", "licenses", "dependency", "constraint", "exclude"),
    *("nodefile", "switches", "clusters", "begin", "array", "het-group", "deadline"),
)
_OPTION_MEANINGS = {
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


def count_request(
    request: SlurmRequest, site: SlurmCluster, version: SlurmVersion
) -> CountedAnswer:
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
    release_refusal = _refuse_missing_option(request, version)
    counts = release_refusal or job_counts(request)
    if isinstance(counts, SlurmRefusal):
        return CountedAnswer(counts, steps)
    partitions = _accepting_partitions(details, site)
    if isinstance(partitions, SlurmRefusal):
        return CountedAnswer(partitions, steps)
    counted_job = _count_job(request, counts, site, partitions)
    limit_refusal = (
        _beyond_limits(counted_job, counts, details, site, partitions)
        or _beyond_nodes(request, counted_job, details, counts, site, partitions)
        or _held_or_down(details, partitions)
    )
    return CountedAnswer(limit_refusal or counted_job, steps)


def option_steps(request: SlurmRequest) -> tuple[str, ...]:
    """Return the meaning of the options, as one sentence each."""
    return tuple(
        f"{_OPTION_MEANINGS[given_option.name].format(given_option.value)}."
        for given_option in request.given
        if given_option.name in _OPTION_MEANINGS
    )


def binding_of(request: SlurmRequest) -> tuple[str, str]:
    """Return (way, argument) of the binding of tasks to GPUs; the way is `all` without a binding.

    sbatch's manual: --gpus-per-task implies per_task, and --ntasks-per-gpu implies single.
    """
    bind_text = request.bind.removeprefix("verbose,")
    if bind_text:
        binding_way, _, binding_argument = bind_text.partition(":")
        return {"map": "map_gpu", "mask": "mask_gpu", "none": "all"}.get(
            binding_way, binding_way
        ), binding_argument
    if request.tasks_per_gpu:
        return "single", str(request.tasks_per_gpu)
    if request.per_task:
        return "per_task", str(request.per_task.count)
    return "all", ""


def _refuse_missing_option(request: SlurmRequest, version: SlurmVersion) -> SlurmRefusal | None:
    options_by_name = known(request.command)
    for given_option in request.given:
        option = options_by_name.get(given_option.name)
        if option and not option.since <= version < option.until:
            release = release_of(version)
            return SlurmRefusal(
                "submit", f"{request.command} of Slurm {release} has no --{given_option.name}"
            )
    memory_options = [
        option_name
        for option_name in ("mem", "mem-per-cpu", "mem-per-gpu")
        if request.option(option_name)
    ]
    if len(memory_options) > 1:
        return SlurmRefusal(
            "submit", f"--{memory_options[0]} and --{memory_options[1]} exclude each other"
        )
    return None


def _accepting_partitions(
    details: RequestDetails, site: SlurmCluster
) -> list[SlurmPartition] | SlurmRefusal:
    """Return the partitions of a job that accept jobs."""
    partitions_by_name = {partition.name: partition for partition in site.partitions}
    if set(partitions_by_name) == {""}:  # the site's files do not show which partitions there are
        return list(site.partitions)
    requested_names = details.partitions or ((site.default,) if site.default else ())
    if not requested_names:
        return SlurmRefusal("submit", "there is no default partition", "Name a --partition")
    unknown_names = [
        partition_name
        for partition_name in requested_names
        if partition_name not in partitions_by_name
    ]
    if unknown_names:
        return SlurmRefusal(
            "submit",
            f"there is no partition {unknown_names[0]}",
            "There are: " + ", ".join(partitions_by_name),
        )
    accepting_partitions = [
        partitions_by_name[partition_name]
        for partition_name in requested_names
        if partitions_by_name[partition_name].accepts
    ]
    if accepting_partitions:
        return accepting_partitions
    return SlurmRefusal(
        "submit", f"{', '.join(requested_names)} takes no jobs: it is drained or inactive"
    )


def _hardware_kinds(site: SlurmCluster, partitions: Sequence[SlurmPartition]) -> list[NodeHardware]:
    """Return the kinds of nodes in the partitions, with the number of nodes of each."""
    node_names = frozenset[str]().union(*(partition.nodes for partition in partitions))
    nodes_by_hardware = Counter(
        hardware_index for node_name, hardware_index in site.nodes if node_name in node_names
    )
    return [
        replace(site.shapes[hardware_index], nodes=node_count)
        for hardware_index, node_count in sorted(nodes_by_hardware.items())
    ]


def _count_job(
    request: SlurmRequest,
    counts: JobCounts,
    site: SlurmCluster,
    partitions: Sequence[SlurmPartition],
) -> CountedJob:
    hardware_kinds = _hardware_kinds(site, partitions) or list(site.shapes)
    gpu_type = _requested_gpu_type(counts)
    whole_gpu_counts = [gpu_counts for gpu_counts in counts.gpus if not gpu_counts.shared]
    largest_node_gpus = max(
        (node_hardware.gpus_of(gpu_type) for node_hardware in hardware_kinds), default=0
    )
    task_count = counts.tasks or 0
    node_count = counts.min_nodes or 1
    if counts.tasks_per_node and task_count:
        node_count = max(node_count, -(-task_count // counts.tasks_per_node))
    gpus_of_tasks = sum(gpu_counts.per_task for gpu_counts in whole_gpu_counts) * (
        task_count or node_count
    )
    total_gpus = max(sum(gpu_counts.total for gpu_counts in whole_gpu_counts), gpus_of_tasks)
    gpus_per_node = sum(
        gpu_counts.per_node or gpu_counts.per_socket * (counts.sockets_per_node or 0)
        for gpu_counts in whole_gpu_counts
    )
    if gpus_per_node:
        total_gpus = max(total_gpus, gpus_per_node * node_count)
    elif total_gpus and largest_node_gpus:
        node_count = max(node_count, -(-total_gpus // largest_node_gpus))
    nodes_fixed = counts.max_nodes == node_count or (request.min_nodes is None and task_count <= 1)
    if not gpus_per_node and node_count == 1 and nodes_fixed:
        gpus_per_node = total_gpus
    task_count = task_count or (counts.tasks_per_node or 1) * node_count
    tasks_per_node = counts.tasks_per_node or (
        task_count if node_count == 1 and nodes_fixed else None
    )
    if tasks_per_node is None and task_count == node_count and nodes_fixed:
        tasks_per_node = 1
    visible_gpus, binding_rule = _gpus_seen_by_task(request, gpus_per_node)
    return CountedJob(
        nodes=node_count,
        tasks=task_count,
        gpus=total_gpus,
        fixed=nodes_fixed,
        gpus_per_node=gpus_per_node or None,
        tasks_per_node=tasks_per_node,
        seen_by_task=visible_gpus,
        binding=binding_rule,
        shares=sum(gpu_counts.total for gpu_counts in counts.gpus if gpu_counts.shared),
        notes=_count_notes(request, site),
    )


def _requested_gpu_type(counts: JobCounts) -> str:
    """Return the requested type of GPU; empty for none, and for several."""
    gpu_types = {gpu_counts.kind for gpu_counts in counts.gpus if gpu_counts.name == "gpu"}
    return gpu_types.pop() if len(gpu_types) == 1 else ""


def _gpus_seen_by_task(request: SlurmRequest, gpus_per_node: int) -> tuple[int | None, str]:
    """Return how many GPUs a task sees, and the rule for that."""
    binding_way, binding_argument = binding_of(request)
    if binding_way == "all":
        return (
            gpus_per_node or None,
            "without a binding a task sees all GPUs of its job on its node",
        )
    if binding_way == "single":
        return 1, "single binds each task to one GPU"
    if binding_way == "per_task" and is_number(binding_argument):
        return int(binding_argument), "per_task binds each task to GPUs of its own"
    if binding_way == "map_gpu":
        return 1, "map_gpu binds each task to the GPU of its entry"
    return None, f"{binding_way} binds a task by where it is placed"


def _count_notes(request: SlurmRequest, site: SlurmCluster) -> tuple[str, ...]:
    uncounted_names = dict.fromkeys(
        given_option.name
        for given_option in request.given
        if given_option.name in _UNCOUNTED_OPTIONS
    )
    return (
        *(f"--{option_name} is not looked at" for option_name in uncounted_names),
        *site.cautions,
    )


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
        time_unlimited = details.time is not None and details.time == 0
        exceeds_time = partition.max_time is not None and (
            time_unlimited or (details.time or 0) > partition.max_time
        )
        if exceeds_time:
            requested_time = "no time limit" if time_unlimited else f"{details.time} minutes"
            reasons.append(
                f"it asks for {requested_time}, and partition {partition.name} allows "
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
    partition_names = ",".join(partition.name for partition in partitions if partition.name)
    scope_words = f"partition {partition_names}" if partition_names else "the site"
    hardware_kinds = _hardware_kinds(site, partitions)
    known_types = dict.fromkeys(
        gpu_type for node_hardware in site.shapes for gpu_type, _ in node_hardware.types
    )
    missing_types = [
        gpus.kind
        for gpus in counts.gpus
        if gpus.kind and known_types and gpus.kind not in known_types
    ]
    if missing_types:
        types_hint = "Types here: " + ", ".join(sorted(known_types))
        return SlurmRefusal("submit", f"no node has GPUs of type {missing_types[0]}", types_hint)
    gpu_type = _requested_gpu_type(counts)
    tasks_per_node = counts.tasks_per_node or (
        job.tasks if job.nodes == 1 == counts.max_nodes else 1
    )
    gpus = max(job.gpus_per_node or 0, *(0, *(gpu_counts.per_task for gpu_counts in counts.gpus)))
    cpus_per_node = max(details.mincpus, tasks_per_node * (counts.cpus_per_task or 1))
    cpus_per_node = max(cpus_per_node, gpus * (request.cpus_per_gpu or 0))
    memory_bytes = max(
        details.memory, details.memory_per_cpu * cpus_per_node, (request.memory_per_gpu or 0) * gpus
    )
    fitting_hardware = [
        node_hardware
        for node_hardware in hardware_kinds
        if node_hardware.gpus_of(gpu_type) >= gpus
        and node_hardware.cores * node_hardware.threads - node_hardware.reserved >= cpus_per_node
        and (not node_hardware.memory or node_hardware.memory >= memory_bytes)
    ]
    if not fitting_hardware:
        requested_words = _resources_text(gpus, gpu_type, cpus_per_node, memory_bytes)
        return SlurmRefusal(
            "submit",
            f"no node of {scope_words} has {requested_words}",
            _frequent_hardware_hint(hardware_kinds),
        )
    total_gpus = sum(
        node_hardware.nodes * node_hardware.gpus_of(gpu_type) for node_hardware in fitting_hardware
    )
    if job.gpus > total_gpus and job.gpus_per_node is None:
        return SlurmRefusal(
            "submit",
            f"the job needs {_gpus_text(job.gpus, gpu_type)}, and {scope_words} has {total_gpus}",
            _frequent_hardware_hint(hardware_kinds),
        )
    fitting_nodes = sum(node_hardware.nodes for node_hardware in fitting_hardware)
    if fitting_nodes < job.nodes:
        requested_words = _resources_text(gpus, gpu_type, cpus_per_node, memory_bytes)
        node_count = sum(node_hardware.nodes for node_hardware in hardware_kinds)
        stays_queued = (
            job.nodes > node_count and not site.enforces_limits and job.nodes <= len(site.nodes)
        )
        return SlurmRefusal(
            "waits" if stays_queued else "submit",
            f"the job needs {job.nodes} nodes with {requested_words} each, and {scope_words} has "
            f"{fitting_nodes}",
            "Ask for fewer GPUs, or fewer nodes" if job.gpus else "Ask for fewer nodes",
        )
    return None


def _held_or_down(
    details: RequestDetails, partitions: Sequence[SlurmPartition]
) -> SlurmRefusal | None:
    if details.is_held:
        return SlurmRefusal("waits", "it is held", until="until `scontrol release JOB`")
    if not any(partition.starts for partition in partitions):
        partition_names = ", ".join(partition.name for partition in partitions)
        return SlurmRefusal(
            "waits", f"{partition_names} is down", until=f"until partition {partition_names} is up"
        )
    return None


def _resources_text(gpu_count: int, gpu_type: str, cpu_count: int, memory_bytes: int) -> str:
    resource_texts = [_gpus_text(gpu_count, gpu_type)] if gpu_count else []
    resource_texts.append(plural(cpu_count, "CPU"))
    if memory_bytes:
        resource_texts.append(f"{_memory_size_text(memory_bytes)} of memory")
    return (
        resource_texts[0]
        if len(resource_texts) == 1
        else f"{', '.join(resource_texts[:-1])} and {resource_texts[-1]}"
    )


def _gpus_text(gpu_count: int, gpu_type: str) -> str:
    return plural(gpu_count, "GPU") + (f" of type {gpu_type}" if gpu_type else "")


def _frequent_hardware_hint(hardware_kinds: Sequence[NodeHardware]) -> str:
    """Describe the nodes: the three most frequent kinds."""
    frequent_hardware = sorted(hardware_kinds, key=lambda node_hardware: -node_hardware.nodes)[:3]
    return "Ask for what the nodes have: " + "; ".join(
        f"{plural(node_hardware.nodes, 'node')} with {plural(node_hardware.gpus, 'GPU')}, "
        f"{plural(node_hardware.cores * node_hardware.threads - node_hardware.reserved, 'CPU')}"
        + (f", {_memory_size_text(node_hardware.memory)}" if node_hardware.memory else "")
        for node_hardware in frequent_hardware
    )


def _memory_size_text(byte_count: int) -> str:
    mib = byte_count >> 20
    return f"{mib >> 10} GiB" if mib and not mib % 1024 else f"{mib} MiB"
