"""What the tasks of a job got, judged: own or shared GPUs, near or far, as asked or not. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from podwright.hosts import read_list
from podwright.slurm.gpus.binding._task_probe import MARK
from podwright.slurm.gpus.requests import SlurmRequest, is_number


class TaskSeen(NamedTuple):
    """One GPU of a task, as the machine knows it; only a number, where nothing tells more.
    memory: bytes."""

    number: int
    uuid: str = ""
    bus: str = ""
    type: str = ""
    memory: int = 0
    numa: int = -1
    near: str = ""


class Task(NamedTuple):
    """One task: what it was given. variable: None where it is unset. on_node: GPUs of the step."""

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
    """own: `distinct`, `shared` or `none`. where: `near`, `far`, `partly`, `unbound`, `unknown`.

    asked: `as asked`, or what was asked instead. bad: whether this is a fault.
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
    """The tasks in what a job printed, in the order of their ranks."""
    found = []
    for line in text.splitlines():
        _, mark, body = line.partition(MARK)
        if mark:
            data = json.loads(body)
            gpus = tuple(TaskSeen(**gpu) for gpu in data.pop("gpus")) or _numbered(data["variable"])
            notes = tuple(data.pop("notes"))
            found.append(Task(**data, gpus=gpus, notes=notes))
    return sorted(found)


def _numbered(variable: str | None) -> tuple[TaskSeen, ...]:
    """Without a library that knows them, GPUs are what the variable counts."""
    words = (variable or "").split(",")
    return tuple(TaskSeen(int(word)) for word in words if is_number(word))


def judge(tasks: Iterable[Task], request: SlurmRequest) -> dict[int, Verdict]:
    """A verdict for each rank."""
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
        said, wrong = _asked(task, request, shared)
        out[task.rank] = Verdict(own, _nearness(task), said, wrong)
    return out


def _asked(task: Task, request: SlurmRequest, shared: bool) -> tuple[str, bool]:
    """Whether the number of GPUs is what the options say for a task."""
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
    """(GPUs of a task, whether for itself alone) by the options; None where they do not say."""
    way, _, argument = request.bind.removeprefix("verbose,").partition(":")
    if way == "single":
        return 1, argument == "1"
    if request.per_task:
        return request.per_task.count, True
    if request.tasks_per_gpu:
        return 1, request.tasks_per_gpu == 1
    if way == "per_task" and is_number(argument):
        return int(argument), True
    if way in ("closest", "map_gpu", "mask_gpu"):
        return None, False
    return (int(task.on_node) if is_number(task.on_node) else None), False


def _nearness(task: Task) -> str:
    """How the cores lie to the GPUs: near means all are beside one of them."""
    mine = set(read_list(task.cpus))
    near = [set(read_list(gpu.near)) for gpu in task.gpus if gpu.near]
    if not near or len(near) < len(task.gpus):
        return "unknown"
    beside = set().union(*near)
    if mine <= beside and all(mine & one for one in near):
        return "near"
    if len(mine) >= task.all_cpus:
        return "unbound"
    return "partly" if mine & beside else "far"
