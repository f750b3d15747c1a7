"""The nodes, their GPUs and the jobs that hold them, as the page shows them. Pure.

The topics of the page are `nodes`, `jobs` (running) and `queue` (waiting). Times are as Slurm
writes them. A field of a node or a job that Slurm does not show becomes `not known: FIELD`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podwright.errors import FieldNotKnown
from podwright.slurm.reader import JobRecord, SlurmNode


def readable(read_field: Callable[[], Any]) -> Any:
    """The result of `read_field`, or words that say which field Slurm does not show."""
    try:
        return read_field()
    except FieldNotKnown as error:
        return f"not known: {error.field}"


def nodes(node_records: Sequence[SlurmNode]) -> dict[str, dict[str, Any]]:
    """The nodes with GPUs, by name. Raises FieldNotKnown where it is not known which nodes have
    GPUs."""
    return {node.name: _node_row(node) for node in node_records if node.gpus}


def _node_row(node: SlurmNode) -> dict[str, Any]:
    state = readable(lambda: node.state)
    return {
        "state": state if isinstance(state, str) else state.text,
        "ill": state if isinstance(state, str) else state.ill,
        "reason": readable(lambda: node.reason),
        "partitions": readable(lambda: ",".join(node.partitions)),
        "gpus": [[gpus.type or "gpu", ""] for gpus in node.gpus for _ in range(gpus.amount)],
        "cpus": [readable(lambda: node.allocated_cpus), readable(lambda: node.cpus)],
        "memory": [readable(lambda: node.allocated_memory_mib), readable(lambda: node.memory_mib)],
    }


def running_jobs(job_records: Sequence[JobRecord]) -> dict[str, dict[str, Any]]:
    """The running jobs with GPUs, by number. `on` maps each node to its GPU indices.

    A job whose state or GPUs are not known is listed with that in their place and without GPUs. A
    user whose job is called `JobState=RUNNING` therefore hides nobody else's job.
    """
    jobs = {str(job.number): _running_job_row(job) for job in job_records}
    return {job_number: job for job_number, job in jobs.items() if job}


def _running_job_row(job: JobRecord) -> dict[str, Any]:
    """Return a job that runs on GPUs; empty for any other."""
    gpus_by_node: dict[str, list[int]] = {}
    unknown_text = ""
    try:
        gpus_by_node = job.gpus if job.placed else {}
    except FieldNotKnown as error:
        unknown_text = f"not known: {error.field}"
    if not gpus_by_node and not unknown_text:
        return {}
    return {
        "user": readable(lambda: job.user.name),
        "name": unknown_text or readable(lambda: job.name[:80]),
        "partition": readable(lambda: job.partition),
        "gpus": unknown_text or sum(len(gpu_indices) for gpu_indices in gpus_by_node.values()),
        "nodes": unknown_text or len(gpus_by_node),
        "since": readable(lambda: job.start),
        "until": readable(lambda: job.end),
        "on": gpus_by_node,
    }


def waiting_jobs(job_records: Sequence[JobRecord]) -> list[JobRecord]:
    """The jobs that wait for GPUs, in the order of Slurm's queue.

    A job whose request is not known is included. A job whose priority is not known comes last.
    """
    jobs = [job for job in job_records if _waits_for_gpus(job)]
    return sorted(jobs, key=lambda job: (-_job_priority(job), job.number))


def _waits_for_gpus(job: JobRecord) -> bool:
    try:
        return job.state == "PENDING" and bool(job.gpu_requests)
    except FieldNotKnown as error:
        return error.field != "JobState"  # it is listed among the running ones


def _job_priority(job: JobRecord) -> int:
    try:
        return job.priority
    except FieldNotKnown:
        return 0


def place_jobs(
    nodes: Mapping[str, dict[str, Any]], jobs_by_number: Mapping[str, dict[str, Any]]
) -> None:
    """Write the job of each GPU into its node."""
    for job_number, job in jobs_by_number.items():
        for node_name, gpu_indices in job["on"].items():
            node_gpus = nodes[node_name]["gpus"] if node_name in nodes else []
            for gpu_index in gpu_indices:
                if gpu_index < len(node_gpus):
                    node_gpus[gpu_index][1] = job_number


def options_of(job: JobRecord) -> list[str]:
    """Return the options of a request like that of a waiting job. Raises FieldNotKnown."""
    option_arguments = [
        f"{option_name}={','.join(gpu_counts)}"
        for option_name, gpu_counts in job.gpu_requests.items()
    ]
    for option_name, option_value in (
        ("--ntasks", job.tasks),
        ("--cpus-per-task", job.cpus_per_task),
        ("--partition", job.partition.partition(",")[0]),
        ("--nodes", job.min_nodes),
    ):
        if option_value:
            option_arguments.append(f"{option_name}={option_value}")
    return option_arguments
