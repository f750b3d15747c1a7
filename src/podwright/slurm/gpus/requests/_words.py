"""A grant or a refusal in words, as a picture, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podwright.slurm.gpus.requests._gpu_bind import binding
from podwright.slurm.gpus.requests._request import SlurmRequest
from podwright.slurm.gpus.requests._units import MIB
from podwright.slurm.gpus.requests._values import Grant, NodeHardware, SlurmRefusal, TaskView

_SHOWN_TASKS = 8
_COUNTS_BY = (
    ("per_job", "--gpus counts the whole job"),
    ("per_node", "--gpus-per-node counts each node"),
    ("per_socket", "--gpus-per-socket counts each socket"),
    ("per_task", "--gpus-per-task counts each task"),
    ("tasks_per_gpu", "--ntasks-per-gpu counts tasks for each GPU"),
)


def plural(count: int, thing: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def sentence(request: SlurmRequest, answer: Grant | SlurmRefusal, shape: NodeHardware) -> str:
    """What Slurm does, in one sentence or two."""
    if isinstance(answer, SlurmRefusal):
        how = {
            "submit": "Slurm refuses this",
            "waits": f"Slurm takes this job, and it waits {answer.until or 'for ever'}",
            "step": "The job starts, and its srun fails",
            "hangs": "The job starts, and its srun waits for ever",
            "nothing": "The job gets no GPUs",
            "unknown": "Not known",
        }[answer.stage]
        return f"{how}: {answer.reason}."
    counted = [text for name, text in _COUNTS_BY if getattr(request, name)]
    if request.by_gres:
        counted = [c.replace("--gpus-per-node", "--gres") for c in counted]
    if not answer.total_gpus:
        return _without(answer)
    held = [len(node.gpus) for node in answer.nodes]
    each = f"{plural(held[0], 'GPU')} each" if len(set(held)) == 1 and len(held) > 1 else ""
    if len(held) > 1 and not each:
        each = " + ".join(map(str, held)) + " GPUs"
    head = plural(len(held), "node") + (f" with {each}" if each else "")
    return (
        f"{head}, {plural(answer.total_gpus, 'GPU')} in all, for "
        f"{plural(len(answer.tasks), 'task')}; {' and '.join(counted)}. "
        f"{_views(request, answer, shape)}"
    )


def _without(answer: Grant) -> str:
    head = f"{plural(len(answer.nodes), 'node')} for {plural(len(answer.tasks), 'task')}"
    shares = sum(sum(node.shards) for node in answer.nodes)
    if not shares:
        return f"The job gets no GPUs: {head}."
    return f"{head}, with {plural(shares, 'share')} of GPUs."


def _views(request: SlurmRequest, answer: Grant, shape: NodeHardware) -> str:
    counts = {len(task.sees) for task in answer.tasks}
    shared = any(
        set(a.sees) & set(b.sees)
        for index, a in enumerate(answer.tasks)
        for b in answer.tasks[index + 1 : index + 64]
        if a.node == b.node
    )
    if len(counts) == 1:
        count = counts.pop()
        text = f"Every task sees {plural(count, 'GPU')}"
        text += ", shared with others of its node" if shared else ", its own"
    else:
        text = f"Tasks see between {min(counts)} and {max(counts)} GPUs"
        text += ", shared with others of their node" if shared else ", of their own"
    if binding(request)[0] == "closest" and shape.affinity:
        text += " (those beside its cores)"
    return text + "."


def picture(answer: Grant, shape: NodeHardware) -> str:
    """Nodes and tasks as rows, GPUs as columns: # is seen, . is not; equal nodes stand once."""
    groups: list[tuple[list[int], list[TaskView]]] = []
    looks: dict[object, int] = {}
    by_node: dict[int, list[TaskView]] = {n: [] for n in range(len(answer.nodes))}
    for task in answer.tasks:
        by_node[task.node].append(task)
    for number, node in enumerate(answer.nodes):
        look = (node.gpus, node.shape, tuple((t.sees, t.variable, t.cpus) for t in by_node[number]))
        if look in looks:
            groups[looks[look]][0].append(number)
        else:
            looks[look] = len(groups)
            groups.append(([number], by_node[number]))
    lines: list[str] = []
    for numbers, tasks in groups:
        first = answer.nodes[numbers[0]]
        mine = first.shape or shape
        which = [answer.nodes[n].name for n in numbers]
        lines.append(_header(numbers, which, mine, first.gpus))
        for task in tasks[:_SHOWN_TASKS]:
            lines.append(_row(task, mine, len(numbers) > 1))
        if len(tasks) > _SHOWN_TASKS:
            lines.append(f"  … {len(tasks) - _SHOWN_TASKS} more tasks alike")
    if any(node.shape is None or node.shape.gpus for node in answer.nodes):
        lines.append("GPU numbers with [ ] belong to the job; # a task sees it, . it does not.")
    lines += _legend(answer, shape)
    return "\n".join(lines)


def _legend(answer: Grant, shape: NodeHardware) -> list[str]:
    """What else a reader needs to read the picture."""
    lines = []
    for shape in dict.fromkeys(node.shape or shape for node in answer.nodes):
        if len(set(shape.types)) <= 1:
            continue
        kinds = dict.fromkeys(shape.types)
        lines.append(
            "Types: "
            + "; ".join(f"{_ranges(shape.gpus_of(kind))} {kind or 'of no type'}" for kind in kinds)
            + "."
        )
    if any(t.variable not in (None, ",".join(map(str, t.sees))) for t in answer.tasks):
        lines.append(
            "Devices are confined here: a program counts the GPUs that it sees from 0, and "
            "CUDA_VISIBLE_DEVICES says those numbers."
        )
    return lines


def _header(
    numbers: list[int], names: list[str], shape: NodeHardware, held: tuple[int, ...]
) -> str:
    if all(names):
        which = ",".join(names)
    else:
        which = f"node {numbers[0]}" if len(numbers) == 1 else f"nodes {_ranges(numbers)}"
    columns = "".join(f"[{g}]" if g in held else f" {g} " for g in range(shape.gpus))
    return f"{which:<14}GPU {columns}" if shape.gpus else which


def _ranges(numbers: Iterable[int]) -> str:
    """`0-3,8,9`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs
    )


def _row(task: TaskView, shape: NodeHardware, local: bool) -> str:
    width = [3 if g < 10 else 4 for g in range(shape.gpus)]
    cells = "".join(("#" if g in task.sees else ".").center(w) for g, w in enumerate(width))
    name = f"local task {task.local_rank}" if local else f"task {task.rank}"
    value = "is unset" if task.variable is None else f"= {task.variable}"
    bound = f", CPUs {_ranges(task.cpus)}" if task.cpus else ""
    return f"  {name:<16}{cells}  CUDA_VISIBLE_DEVICES {value}{bound}"


def as_json(
    request: SlurmRequest, answer: Grant | SlurmRefusal, shape: NodeHardware
) -> dict[str, Any]:
    """All of it, for programs."""
    said = sentence(request, answer, shape)
    if isinstance(answer, SlurmRefusal):
        return {
            "granted": None if answer.stage == "unknown" else False,
            "stage": answer.stage,
            "reason": answer.reason,
            "would_work": answer.would_work,
            "until": answer.until,
            "sentence": said,
        }
    return {
        "granted": True,
        "sentence": said,
        "total_gpus": answer.total_gpus,
        "nodes": [
            {
                "name": n.name or None,
                "gpus": list(n.gpus),
                "tasks": n.tasks,
                "cpus": list(n.cpus),
                "memory_mib": n.memory // MIB,
                "shares": {str(gpu): count for gpu, count in enumerate(n.shards) if count},
            }
            for n in answer.nodes
        ],
        "tasks": [
            {
                "rank": t.rank,
                "node": t.node,
                "local_rank": t.local_rank,
                "gpus": list(t.sees),
                "cuda_visible_devices": t.variable,
                "cpus": list(t.cpus),
            }
            for t in answer.tasks
        ],
        "notes": list(answer.notes),
    }
