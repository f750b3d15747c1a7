"""The numbers that a script fixes: nodes, tasks and GPUs of the job and of each srun. None means
that the script leaves a number open."""

from __future__ import annotations

import re
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.lint._launchers import Launch
from podwright.gpu.lint._script import Script
from podwright.gpu.lint._shell import CLOSE, OPEN
from podwright.gpu.requests import Gpus, is_number, read_request


class Facts(NamedTuple):
    """The counts of a job. `nodes` is 1 if the script neither requests nodes nor anything that may
    need several.
    """

    nodes: int | None
    nodes_said: bool
    tasks: int | None
    tasks_said: bool
    tasks_per_node: int | None
    gpus_per_node: int | None
    gpus: int | None
    asks_gpus: bool
    whole_nodes: bool

    @property
    def several(self) -> bool:
        """Return whether the job certainly has several nodes."""
        return self.nodes_said and (self.nodes or 0) > 1


def facts_of(script: Script) -> Facts:
    """The numbers of the job, from its directives."""
    request = script.request
    if not script.settled:
        return Facts(None, False, None, False, None, None, None, request.asks_for_gpus, False)
    nodes_given = request.min_nodes is not None
    nodes = request.min_nodes if request.min_nodes == request.max_nodes else None
    sizes = script.option("nodes")
    if sizes and not nodes_given:
        nodes_given, nodes = True, None
    tasks, each = request.tasks, request.tasks_per_node
    if (
        not nodes_given
        and (tasks or 1) == 1
        and not request.per_job
        and not script.option("nodelist")
    ):
        nodes = 1
    if not each and tasks and nodes and tasks % nodes == 0:
        each = tasks // nodes
    if not tasks and nodes:
        tasks = (each or 1) * nodes
    plain = not (request.tasks_per_gpu or request.per_task or request.tasks)
    if not each and nodes and plain:
        each = 1
    exclusive = script.option("exclusive")
    return Facts(
        nodes=nodes,
        nodes_said=nodes_given,
        tasks=tasks if plain or request.tasks or request.tasks_per_node else None,
        tasks_said=bool(request.tasks or request.tasks_per_node),
        tasks_per_node=each,
        gpus_per_node=_gpus_per_node(script, nodes, each),
        gpus=request.per_job.count if request.per_job else None,
        asks_gpus=request.asks_for_gpus or "gpu" in str(request.other.get("tres-per-task", "")),
        whole_nodes=bool(exclusive and exclusive.value in ("", "exclusive")),
    )


def _gpus_per_node(script: Script, nodes: int | None, each: int | None) -> int | None:
    request = script.request
    ways = [request.per_node, request.per_task, request.per_job, request.per_socket]
    if sum(bool(source) for source in ways) != 1 or request.tasks_per_gpu:
        return request.per_node.count if request.per_node and not request.per_task else None
    if request.per_node:
        return request.per_node.count
    if request.per_task and each:
        return request.per_task.count * each
    return request.per_job.count if request.per_job and nodes == 1 else None


class StepFacts(NamedTuple):
    """The nodes and tasks of one launch, with its tasks and GPUs per node."""

    nodes: int | None
    tasks: int | None
    tasks_per_node: int | None
    gpus_per_node: int | None


def step_of(launch: Launch, facts: Facts) -> StepFacts:
    """The numbers of the srun around a launch, with the job's numbers where srun gives none."""
    if launch.by != "srun":
        return StepFacts(1, 1, 1, facts.gpus_per_node)
    if elsewhere(launch):
        return StepFacts(*_own(launch), None, None)
    nodes, tasks = _own(launch)
    per_node = _number_of(launch, "ntasks-per-node", "tasks-per-node")
    names = {option.name for option in launch.step}
    if "nodes" not in names:
        nodes = facts.nodes
    if "ntasks" not in names and "ntasks-per-node" not in names:
        tasks = facts.tasks if "nodes" not in names else None
        per_node = facts.tasks_per_node
    elif "ntasks" in names and tasks is not None and nodes and tasks <= nodes:
        nodes = tasks
        per_node = 1
    elif "ntasks" in names and per_node is None and tasks and nodes and tasks % nodes == 0:
        per_node = tasks // nodes
    if tasks is None and per_node and nodes:
        tasks = per_node * nodes
    gpus = facts.gpus_per_node
    if names & {"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}:
        gpus = _step_gpus(launch)
    return StepFacts(nodes, tasks, per_node, gpus)


def elsewhere(launch: Launch) -> bool:
    """Return whether srun runs in another job, or in one part of a job."""
    job = launch.option("jobid")
    other_job = job is not None and not re.search(r"SLURM_JOB_?ID", job.value)
    return other_job or launch.option("het-group", "pack-group") is not None


def _own(launch: Launch) -> tuple[int | None, int | None]:
    return _number_of(launch, "nodes"), _number_of(launch, "ntasks")


def _number_of(launch: Launch, *names: str) -> int | None:
    given = launch.option(*names)
    return int(given.value) if given and is_number(given.value) else None


def _step_gpus(launch: Launch) -> int | None:
    named = [option for option in launch.step if option.name in ("gres", "gpus-per-node")]
    try:
        request = read_request(named, "srun")
    except InvalidRequest:
        return None
    job_gpus: Gpus | None = request.per_node
    other_options = launch.option("gpus", "gpus-per-task", "gpus-per-socket")
    return job_gpus.count if job_gpus and not other_options else None


def number(word: str | None, facts: Facts) -> int | None:
    """Return the whole number that a word stands for, if the script or Slurm fixes it."""
    if word is None:
        return None
    if is_number(word):
        return int(word)
    match = re.fullmatch(f"(?:{OPEN}(\\w+){CLOSE}|\\$\\{{?(\\w+)\\}}?)", word.strip())
    if not match:
        return None
    known = {
        "SLURM_NNODES": facts.nodes,
        "SLURM_JOB_NUM_NODES": facts.nodes,
        "SLURM_NTASKS": facts.tasks if facts.tasks_said else None,
        "SLURM_NTASKS_PER_NODE": facts.tasks_per_node if facts.tasks_said else None,
        "SLURM_GPUS_ON_NODE": facts.gpus_per_node,
    }
    return known.get(match[1] or match[2])
