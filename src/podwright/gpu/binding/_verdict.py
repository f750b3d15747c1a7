"""Judges what the tasks of a job got: own or shared GPUs, near or far cores, as requested or not.
Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from podwright.gpu.requests import SlurmRequest, is_number
from podwright.hosts import read_list

#: The prefix of a task's line, which tells it apart from everything else that a job prints.
MARK = "podwright-binding "


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


class Task(NamedTuple):
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


def read_tasks(text: str) -> list[Task]:
    """Read the tasks from the output of a job, in the order of their ranks."""
    tasks = []
    for line in text.splitlines():
        _, mark, body = line.partition(MARK)
        if mark:
            data = json.loads(body)
            gpus = tuple(TaskSeen(**gpu) for gpu in data.pop("gpus")) or _numbered(data["variable"])
            notes = tuple(data.pop("notes"))
            tasks.append(Task(**data, gpus=gpus, notes=notes))
    return sorted(tasks)


def _numbered(variable: str | None) -> tuple[TaskSeen, ...]:
    """Return the GPUs that the variable lists, for a task without a library that knows them."""
    words = (variable or "").split(",")
    return tuple(TaskSeen(int(word)) for word in words if is_number(word))


def judge(tasks: Iterable[Task], request: SlurmRequest) -> dict[int, Verdict]:
    """Judge each task against the request. Returns a verdict by rank."""
    tasks = list(tasks)
    users: dict[tuple[str, str], int] = {}
    for task in tasks:
        for gpu in task.gpus:
            key = (task.node, gpu.uuid or str(gpu.number))
            users[key] = users.get(key, 0) + 1
    out = {}
    for task in tasks:
        keys = [(task.node, gpu.uuid or str(gpu.number)) for gpu in task.gpus]
        shared = any(users[key] > 1 for key in keys)
        own = "none" if not keys else "shared" if shared else "distinct"
        comparison, wrong = _compare_with_request(task, request, shared)
        out[task.rank] = Verdict(own, _nearness(task), comparison, wrong)
    return out


def _compare_with_request(task: Task, request: SlurmRequest, shared: bool) -> tuple[str, bool]:
    """Compare the GPUs of a task with the request. Returns (words, whether this is a fault)."""
    if not request.asks_for_gpus:
        return ("none were asked for", True) if task.gpus else ("as asked", False)
    wanted, own = _wanted(task, request)
    if wanted is not None and len(task.gpus) != wanted:
        return f"asked for {wanted}", True
    if own and shared:
        return "asked for its own", True
    kind = request.kind()
    if kind and any(gpu.type and kind not in gpu.type for gpu in task.gpus):
        return f"asked for {kind}", True
    return ("as asked", False) if task.gpus else ("asked for GPUs", True)


def _wanted(task: Task, request: SlurmRequest) -> tuple[int | None, bool]:
    """Return (GPUs of a task, whether for itself alone) by the options; None where they do
    not say.
    """
    bind_kind, _, argument = request.bind.removeprefix("verbose,").partition(":")
    if bind_kind == "single":
        return 1, argument == "1"
    if request.per_task:
        return request.per_task.count, True
    if request.tasks_per_gpu:
        return 1, request.tasks_per_gpu == 1
    if bind_kind == "per_task" and is_number(argument):
        return int(argument), True
    if bind_kind in ("closest", "map_gpu", "mask_gpu"):
        return None, False
    return (int(task.on_node) if is_number(task.on_node) else None), False


def _nearness(task: Task) -> str:
    """Where the cores of a task lie relative to its GPUs: `near` means that every core is local to
    one of the GPUs, and that every GPU has a local core."""
    task_cpus = set(read_list(task.cpus))
    near = [set(read_list(gpu.near)) for gpu in task.gpus if gpu.near]
    if not near or len(near) < len(task.gpus):
        return "unknown"
    near_cpus = set().union(*near)
    if task_cpus <= near_cpus and all(task_cpus & cpus for cpus in near):
        return "near"
    if len(task_cpus) >= task.all_cpus:
        return "unbound"
    return "partly" if task_cpus & near_cpus else "far"
