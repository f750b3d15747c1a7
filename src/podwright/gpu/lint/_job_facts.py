"""The numbers that a script's #SBATCH lines fix: nodes, tasks and GPUs of the job. None means that
the script leaves a number open."""

from __future__ import annotations

from typing import NamedTuple

from podwright.gpu.lint._script import Script


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
    if script.option("nodes") and not nodes_given:
        nodes_given, nodes = True, None
    tasks, tasks_per_node = request.tasks, request.tasks_per_node
    if (
        not nodes_given
        and (tasks or 1) == 1
        and not request.per_job
        and not script.option("nodelist")
    ):
        nodes = 1
    if tasks and nodes and tasks_per_node and tasks < nodes * tasks_per_node:
        # --ntasks is what starts; --ntasks-per-node is then the most that a node may have.
        tasks_per_node = tasks // nodes if tasks % nodes == 0 else None
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
