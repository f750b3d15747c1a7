"""Judges what the tasks of a job got: own or shared GPUs, near or far cores, as requested or not.
Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from podwright.gpu.requests import SlurmRequest, is_number
from podwright.hosts import read_list

#: The prefix of a task's line, which tells it apart from everything else that a job prints.
TASK_LINE_PREFIX = "podwright-binding "


class TaskSeen(NamedTuple):
    """One GPU of a task as the machine reports it. Only `number` is set if no library reports more.

    memory: bytes.
    """

    number: int
    uuid: str = ""
    bus: str = ""
    type: str = ""
    memory: int = 0
    numa: int = -1
    near: str = ""


class ProbedTask(NamedTuple):
    """One task and what it was given. variable: CUDA_VISIBLE_DEVICES or its like; None if it is
    unset.

    on_node: the GPUs of the step on this node.
    """

    rank: int
    local_rank: int
    node: str
    variable: str | None
    on_node: str
    cpus: str
    all_cpus: int
    gpus: tuple[TaskSeen, ...]
    simulated: bool = False
    notes: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """The verdict on one task.

    own: `distinct`, `shared` or `none`. where: `near`, `far`, `partly`, `unbound` or `unknown`.
    asked: `as asked`, or what was requested instead. bad: whether this is a fault.
    """

    own: str
    where: str
    asked: str
    bad: bool

    def __str__(self) -> str:
        if self.own == "none":
            return f"none{', ' + self.asked if self.bad else ''}"
        return ", ".join((self.own, self.where, self.asked))


def read_tasks(job_output: str) -> list[ProbedTask]:
    """Read the tasks from the output of a job, in the order of their ranks."""
    tasks = []
    for output_line in job_output.splitlines():
        _, mark, task_json = output_line.partition(TASK_LINE_PREFIX)
        if mark:
            fields = json.loads(task_json)
            gpus = tuple(TaskSeen(**gpu) for gpu in fields.pop("gpus")) or _gpus_from_variable(
                fields["variable"]
            )
            notes = tuple(fields.pop("notes"))
            tasks.append(ProbedTask(**fields, gpus=gpus, notes=notes))
    return sorted(tasks)


def _gpus_from_variable(visible_devices: str | None) -> tuple[TaskSeen, ...]:
    """Return the GPUs that the variable lists, for a task without a library that knows them."""
    gpu_numbers = (visible_devices or "").split(",")
    return tuple(TaskSeen(int(gpu_number)) for gpu_number in gpu_numbers if is_number(gpu_number))


def judge(tasks: Iterable[ProbedTask], request: SlurmRequest) -> dict[int, Verdict]:
    """Judge each task against the request. Returns a verdict by rank."""
    tasks = list(tasks)
    counts: dict[tuple[str, str], int] = {}
    for task in tasks:
        for gpu in task.gpus:
            gpu_key = (task.node, gpu.uuid or str(gpu.number))
            counts[gpu_key] = counts.get(gpu_key, 0) + 1
    verdicts = {}
    for task in tasks:
        gpu_keys = [(task.node, gpu.uuid or str(gpu.number)) for gpu in task.gpus]
        shared = any(counts[key] > 1 for key in gpu_keys)
        sharing = "none" if not gpu_keys else "shared" if shared else "distinct"
        comparison, is_fault = _compare_with_request(task, request, shared)
        verdicts[task.rank] = Verdict(sharing, _core_nearness(task), comparison, is_fault)
    return verdicts


def _compare_with_request(
    task: ProbedTask, request: SlurmRequest, shared: bool
) -> tuple[str, bool]:
    """Compare the GPUs of a task with the request. Returns (words, whether this is a fault)."""
    if not request.asks_for_gpus:
        return ("none were asked for", True) if task.gpus else ("as asked", False)
    count, wants_own = _requested_gpus(task, request)
    if count is not None and len(task.gpus) != count:
        return f"asked for {count}", True
    if wants_own and shared:
        return "asked for its own", True
    gpu_type = request.kind()
    if gpu_type and any(gpu.type and gpu_type not in gpu.type for gpu in task.gpus):
        return f"asked for {gpu_type}", True
    return ("as asked", False) if task.gpus else ("asked for GPUs", True)


def _requested_gpus(task: ProbedTask, request: SlurmRequest) -> tuple[int | None, bool]:
    """Return (GPUs of a task, whether for itself alone) by the options; None where they do
    not say.
    """
    kind, _, argument = request.bind.removeprefix("verbose,").partition(":")
    if kind == "single":
        return 1, argument == "1"
    if request.per_task:
        return request.per_task.count, True
    if request.tasks_per_gpu:
        return 1, request.tasks_per_gpu == 1
    if kind == "per_task" and is_number(argument):
        return int(argument), True
    if kind in ("closest", "map_gpu", "mask_gpu"):
        return None, False
    return (int(task.on_node) if is_number(task.on_node) else None), False


def _core_nearness(task: ProbedTask) -> str:
    """Where the cores of a task lie relative to its GPUs: `near_cpu_sets` means that every core is
    local to one of the GPUs, and that every GPU has a local core.
    """
    task_cpus = set(read_list(task.cpus))
    near_cpu_sets = [set(read_list(gpu.near)) for gpu in task.gpus if gpu.near]
    if not near_cpu_sets or len(near_cpu_sets) < len(task.gpus):
        return "unknown"
    near_cpus = set().union(*near_cpu_sets)
    if task_cpus <= near_cpus and all(task_cpus & gpu_cpus for gpu_cpus in near_cpu_sets):
        return "near"
    if len(task_cpus) >= task.all_cpus:
        return "unbound"
    return "partly" if task_cpus & near_cpus else "far"
