"""Counts the nodes, tasks and GPUs of a request, where no slurmctld can be asked.

The rules are those of sbatch's manual page. They say neither which nodes, GPUs and CPUs the job
gets nor whether it starts: Slurm documents no rule for that.
"""

from __future__ import annotations

from podwright.errors import InvalidRequest
from podwright.gpu.requests._consistent_counts import job_counts
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._site_answer_types import CountedJob, SlurmRefusal
from podwright.slurm.site.releases import SlurmVersion, release_of
from podwright.slurm.site.submit_options import known

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


def option_steps(request: SlurmRequest) -> tuple[str, ...]:
    """Return the meaning of the options, as one sentence each."""
    return tuple(
        f"{_OPTION_MEANINGS[given.name].format(given.value)}."
        for given in request.given
        if given.name in _OPTION_MEANINGS
    )


def count_request(request: SlurmRequest, version: SlurmVersion) -> CountedJob | SlurmRefusal:
    """Return the job's counts, or the documented reason why Slurm refuses it on any nodes."""
    try:
        return _count(request, version)
    except InvalidRequest as error:
        return SlurmRefusal("submit", error.problem, error.would_work)


def _count(request: SlurmRequest, version: SlurmVersion) -> CountedJob | SlurmRefusal:
    missing = _missing_option(request, version)
    if missing:
        return missing
    counts = job_counts(request, version)
    if isinstance(counts, SlurmRefusal):
        return counts
    whole_gpus = [gpus for gpus in counts.gpus if not gpus.shared]
    tasks, nodes = counts.tasks or 0, counts.min_nodes or 1
    if counts.tasks_per_node and tasks:
        nodes = max(nodes, -(-tasks // counts.tasks_per_node))
    per_node = sum(
        gpus.per_node or gpus.per_socket * (counts.sockets_per_node or 0) for gpus in whole_gpus
    )
    gpus_of_tasks = sum(gpus.per_task for gpus in whole_gpus) * (tasks or nodes)
    total = max(sum(gpus.total for gpus in whole_gpus), gpus_of_tasks, per_node * nodes)
    spreads = total > per_node * nodes  # counted for the job or its tasks, on any number of nodes
    return CountedJob(
        nodes=nodes,
        tasks=tasks or (counts.tasks_per_node or 1) * nodes,
        gpus=total,
        fixed=counts.max_nodes == nodes
        or (request.min_nodes is None and tasks <= 1 and not spreads),
        shares=sum(gpus.total for gpus in counts.gpus if gpus.shared),
    )


def _missing_option(request: SlurmRequest, version: SlurmVersion) -> SlurmRefusal | None:
    options_by_name = known(request.command)
    for given in request.given:
        option = options_by_name.get(given.name)
        if option and not option.since <= version < option.until:
            return SlurmRefusal(
                "submit", f"{request.command} of Slurm {release_of(version)} has no --{given.name}"
            )
    return None
