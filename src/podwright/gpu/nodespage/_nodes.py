"""The nodes, their GPUs and the jobs that hold them, as the page shows them. Pure.

The topics of the page are `nodes`, `jobs` (running) and `queue` (waiting). Times are as Slurm
writes them. A field of a node or a job that Slurm does not show becomes `not known: FIELD`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podwright.errors import FieldNotKnown
from podwright.slurm.reader import JobRecord, SlurmNode


def readable(read: Callable[[], Any]) -> Any:
    """The result of `read`, or words that say which field Slurm does not show."""
    try:
        return read()
    except FieldNotKnown as error:
        return f"not known: {error.field}"


def nodes(records: Sequence[SlurmNode]) -> dict[str, dict[str, Any]]:
    """The nodes with GPUs, by name. Raises FieldNotKnown where it is not known which nodes have
    GPUs."""
    return {node.name: _node(node) for node in records if node.gpus}


def _node(node: SlurmNode) -> dict[str, Any]:
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


def running_jobs(records: Sequence[JobRecord]) -> dict[str, dict[str, Any]]:
    """The running jobs with GPUs, by number. `on` maps each node to its GPU indices.

    A job whose state or GPUs are not known is listed with that in their place and without GPUs. A
    user whose job is called `JobState=RUNNING` therefore hides nobody else's job.
    """
    jobs = {str(job.number): _running(job) for job in records}
    return {number: job for number, job in jobs.items() if job}


def _running(job: JobRecord) -> dict[str, Any]:
    """Return a job that runs on GPUs; empty for any other."""
    gpus: dict[str, list[int]] = {}
    unknown = ""
    try:
        gpus = job.gpus if job.placed else {}
    except FieldNotKnown as error:
        unknown = f"not known: {error.field}"
    if not gpus and not unknown:
        return {}
    return {
        "user": readable(lambda: job.user.name),
        "name": unknown or readable(lambda: job.name[:80]),
        "partition": readable(lambda: job.partition),
        "gpus": unknown or sum(len(places) for places in gpus.values()),
        "nodes": unknown or len(gpus),
        "since": readable(lambda: job.start),
        "until": readable(lambda: job.end),
        "on": gpus,
    }


def waiting_jobs(records: Sequence[JobRecord]) -> list[JobRecord]:
    """The jobs that wait for GPUs, in the order of Slurm's queue.

    A job whose request is not known is included. A job whose priority is not known comes last.
    """
    jobs = [job for job in records if _waits(job)]
    return sorted(jobs, key=lambda job: (-_priority(job), job.number))


def _waits(job: JobRecord) -> bool:
    try:
        return job.state == "PENDING" and bool(job.gpu_requests)
    except FieldNotKnown as error:
        return error.field != "JobState"  # it is listed among the running ones


def _priority(job: JobRecord) -> int:
    try:
        return job.priority
    except FieldNotKnown:
        return 0


def place_jobs(nodes: Mapping[str, dict[str, Any]], running: Mapping[str, dict[str, Any]]) -> None:
    """Write the job of each GPU into its node."""
    for number, job in running.items():
        for node, indices in job["on"].items():
            gpus = nodes[node]["gpus"] if node in nodes else []
            for index in indices:
                if index < len(gpus):
                    gpus[index][1] = number


def options_of(job: JobRecord) -> list[str]:
    """Return the options of a request like that of a waiting job. Raises FieldNotKnown."""
    words = [f"{option}={','.join(counts)}" for option, counts in job.gpu_requests.items()]
    for option, value in (
        ("--ntasks", job.tasks),
        ("--cpus-per-task", job.cpus_per_task),
        ("--partition", job.partition.partition(",")[0]),
        ("--nodes", job.min_nodes),
    ):
        if value:
            words.append(f"{option}={value}")
    return words
