"""The numbers that a script fixes: nodes, tasks and GPUs of the job and of each srun. None means
that the script leaves a number open."""

from __future__ import annotations

import re
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.lint._launchers import Launch
from podwright.gpu.lint._script import Script
from podwright.gpu.lint._shell import HOLE_CLOSE, HOLE_OPEN
from podwright.gpu.requests import Gpus, is_number, read_request


class JobFacts(NamedTuple):
    """The counts of a job. `nodes` is 1 if the script neither requests nodes nor anything that may
    need several.
    """

    nodes: int | None
    nodes_specified: bool
    tasks: int | None
    tasks_specified: bool
    tasks_per_node: int | None
    gpus_per_node: int | None
    gpus: int | None
    asks_gpus: bool
    whole_nodes: bool

    @property
    def several(self) -> bool:
        """Return whether the job certainly has several nodes."""
        return self.nodes_specified and (self.nodes or 0) > 1


def job_facts(script: Script) -> JobFacts:
    """The numbers of the job, from its directives."""
    request = script.request
    if not script.settled:
        return JobFacts(None, False, None, False, None, None, None, request.asks_for_gpus, False)
    nodes_given = request.min_nodes is not None
    nodes = request.min_nodes if request.min_nodes == request.max_nodes else None
    nodes_option = script.option("nodes")
    if nodes_option and not nodes_given:
        nodes_given, nodes = True, None
    tasks, tasks_per_node = request.tasks, request.tasks_per_node
    if (
        not nodes_given
        and (tasks or 1) == 1
        and not request.per_job
        and not script.option("nodelist")
    ):
        nodes = 1
    if not tasks_per_node and tasks and nodes and tasks % nodes == 0:
        tasks_per_node = tasks // nodes
    if not tasks and nodes:
        tasks = (tasks_per_node or 1) * nodes
    tasks_unspecified = not (request.tasks_per_gpu or request.per_task or request.tasks)
    if not tasks_per_node and nodes and tasks_unspecified:
        tasks_per_node = 1
    exclusive_option = script.option("exclusive")
    return JobFacts(
        nodes=nodes,
        nodes_specified=nodes_given,
        tasks=tasks if tasks_unspecified or request.tasks or request.tasks_per_node else None,
        tasks_specified=bool(request.tasks or request.tasks_per_node),
        tasks_per_node=tasks_per_node,
        gpus_per_node=_gpus_per_node(script, nodes, tasks_per_node),
        gpus=request.per_job.count if request.per_job else None,
        asks_gpus=request.asks_for_gpus or "gpu" in str(request.other.get("tres-per-task", "")),
        whole_nodes=bool(exclusive_option and exclusive_option.value in ("", "exclusive")),
    )


def _gpus_per_node(script: Script, nodes: int | None, tasks_per_node: int | None) -> int | None:
    request = script.request
    gpu_requests = [request.per_node, request.per_task, request.per_job, request.per_socket]
    if sum(bool(gpu_request) for gpu_request in gpu_requests) != 1 or request.tasks_per_gpu:
        return request.per_node.count if request.per_node and not request.per_task else None
    if request.per_node:
        return request.per_node.count
    if request.per_task and tasks_per_node:
        return request.per_task.count * tasks_per_node
    return request.per_job.count if request.per_job and nodes == 1 else None


class StepFacts(NamedTuple):
    """The nodes and tasks of one launch, with its tasks and GPUs per node."""

    nodes: int | None
    tasks: int | None
    tasks_per_node: int | None
    gpus_per_node: int | None


def step_facts(launch: Launch, facts: JobFacts) -> StepFacts:
    """The numbers of the srun around a launch, with the job's numbers where srun gives none."""
    if launch.by != "srun":
        return StepFacts(1, 1, 1, facts.gpus_per_node)
    if elsewhere(launch):
        return StepFacts(*_step_nodes_and_tasks(launch), None, None)
    nodes, tasks = _step_nodes_and_tasks(launch)
    tasks_per_node = _option_number(launch, "ntasks-per-node", "tasks-per-node")
    option_names = {option.name for option in launch.step}
    if "nodes" not in option_names:
        nodes = facts.nodes
    if "ntasks" not in option_names and "ntasks-per-node" not in option_names:
        tasks = facts.tasks if "nodes" not in option_names else None
        tasks_per_node = facts.tasks_per_node
    elif "ntasks" in option_names and tasks is not None and nodes and tasks <= nodes:
        nodes = tasks
        tasks_per_node = 1
    elif (
        "ntasks" in option_names
        and tasks_per_node is None
        and tasks
        and nodes
        and tasks % nodes == 0
    ):
        tasks_per_node = tasks // nodes
    if tasks is None and tasks_per_node and nodes:
        tasks = tasks_per_node * nodes
    gpus_per_node = facts.gpus_per_node
    if option_names & {"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}:
        gpus_per_node = _step_gpus(launch)
    return StepFacts(nodes, tasks, tasks_per_node, gpus_per_node)


def elsewhere(launch: Launch) -> bool:
    """Return whether srun runs in another job, or in one part of a job."""
    jobid_option = launch.option("jobid")
    other_job = jobid_option is not None and not re.search(r"SLURM_JOB_?ID", jobid_option.value)
    return other_job or launch.option("het-group", "pack-group") is not None


def _step_nodes_and_tasks(launch: Launch) -> tuple[int | None, int | None]:
    return _option_number(launch, "nodes"), _option_number(launch, "ntasks")


def _option_number(launch: Launch, *option_names: str) -> int | None:
    option = launch.option(*option_names)
    return int(option.value) if option and is_number(option.value) else None


def _step_gpus(launch: Launch) -> int | None:
    gpu_options = [option for option in launch.step if option.name in ("gres", "gpus-per-node")]
    try:
        request = read_request(gpu_options, "srun")
    except InvalidRequest:
        return None
    job_gpus: Gpus | None = request.per_node
    other_options = launch.option("gpus", "gpus-per-task", "gpus-per-socket")
    return job_gpus.count if job_gpus and not other_options else None


def number(word: str | None, facts: JobFacts) -> int | None:
    """Return the whole number that a word stands for, if the script or Slurm fixes it."""
    if word is None:
        return None
    if is_number(word):
        return int(word)
    match = re.fullmatch(f"(?:{HOLE_OPEN}(\\w+){HOLE_CLOSE}|\\$\\{{?(\\w+)\\}}?)", word.strip())
    if not match:
        return None
    slurm_variables = {
        "SLURM_NNODES": facts.nodes,
        "SLURM_JOB_NUM_NODES": facts.nodes,
        "SLURM_NTASKS": facts.tasks if facts.tasks_specified else None,
        "SLURM_NTASKS_PER_NODE": facts.tasks_per_node if facts.tasks_specified else None,
        "SLURM_GPUS_ON_NODE": facts.gpus_per_node,
    }
    return slurm_variables.get(match[1] or match[2])
