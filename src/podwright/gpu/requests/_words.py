"""Shows a grant, a count or a refusal in words, as a picture, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podwright.gpu.requests._count_request import binding_of
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._units import MIB, plural
from podwright.gpu.requests._values import (
    CountedJob,
    Grant,
    NodeHardware,
    SlurmRefusal,
    TaskView,
)

_SHOWN_TASKS = 8
_COUNTS_BY = (
    ("per_job", "--gpus counts the whole job"),
    ("per_node", "--gpus-per-node counts each node"),
    ("per_socket", "--gpus-per-socket counts each socket"),
    ("per_task", "--gpus-per-task counts each task"),
    ("tasks_per_gpu", "--ntasks-per-gpu counts tasks for each GPU"),
)
_STAGES = {
    "submit": "Slurm refuses this",
    "step": "The job starts, and its srun fails",
    "hangs": "The job starts, and its srun waits for ever",
    "unknown": "Not known",
}


def sentence(request: SlurmRequest, answer: Grant | CountedJob | SlurmRefusal) -> str:
    """Return what Slurm does, in one sentence or two."""
    if isinstance(answer, SlurmRefusal):
        waits = f"Slurm takes this job, and it waits {answer.until or 'for ever'}"
        return f"{_STAGES.get(answer.stage, waits)}: {answer.reason}."
    if isinstance(answer, CountedJob):
        return _counted_sentence(request, answer)
    if not answer.total_gpus:
        return _without_gpus(answer)
    granted = [len(node.gpus) for node in answer.nodes]
    each = (
        f"{plural(granted[0], 'GPU')} each" if len(set(granted)) == 1 and len(granted) > 1 else ""
    )
    if len(granted) > 1 and not each:
        each = " + ".join(map(str, granted)) + " GPUs"
    text = plural(len(granted), "node") + (f" with {each}" if each else "")
    text += f", {plural(answer.total_gpus, 'GPU')} in all"
    if not answer.tasks:
        return f"{text}; {_counted_by(request)}."
    tasks = plural(len(answer.tasks), "task")
    return f"{text}, for {tasks}; {_counted_by(request)}. {_views(request, answer)}"


def _counted_by(request: SlurmRequest) -> str:
    counted = [text for name, text in _COUNTS_BY if getattr(request, name)]
    if request.by_gres:
        counted = [text.replace("--gpus-per-node", "--gres") for text in counted]
    return " and ".join(counted)


def _counted_sentence(request: SlurmRequest, job: CountedJob) -> str:
    if not job.gpus:
        gets = f"{plural(job.shares, 'share')} of GPUs" if job.shares else "no GPUs"
        text = f"The job gets {gets}: {plural(job.nodes, 'node')} for {plural(job.tasks, 'task')}."
        return _with_start(text, job)
    more = "" if job.fixed else " or more"
    text = plural(job.nodes, "node") + more
    if job.gpus_per_node and (job.nodes > 1 or more):
        text += f" with {plural(job.gpus_per_node, 'GPU')} each"
    total = plural(job.gpus, "GPU") + (more if job.gpus_per_node else "")
    text += f", {total} in all, for {plural(job.tasks, 'task')}; {_counted_by(request)}."
    if job.seen_by_task is not None:
        text += f" Every task sees {plural(job.seen_by_task, 'GPU')}: {job.binding}."
    else:
        text += f" How many GPUs a task sees is not known: {job.binding}."
    return _with_start(text, job)


def _with_start(text: str, job: CountedJob) -> str:
    return f"{text} Slurm would start it at {job.starts}." if job.starts else text


def _without_gpus(answer: Grant) -> str:
    nodes = plural(len(answer.nodes), "node")
    if answer.tasks:
        nodes += f" for {plural(len(answer.tasks), 'task')}"
    shares = sum(sum(node.shares.values()) for node in answer.nodes)
    if not shares:
        return f"The job gets no GPUs: {nodes}."
    return f"{nodes}, with {plural(shares, 'share')} of GPUs."


def _views(request: SlurmRequest, answer: Grant) -> str:
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
    bound = any(node.shape.affinity for node in answer.nodes)
    if binding_of(request)[0] == "closest" and bound:
        text += " (those beside its cores)"
    return text + "."


def advice(request: SlurmRequest, answer: Grant) -> tuple[str, ...]:
    """Return unintended effects of the options, read from the grant itself; without full stops."""
    nodes, tasks, least = len(answer.nodes), answer.tasks, request.min_nodes or 0
    granted = {(index, gpu) for index, node in enumerate(answer.nodes) for gpu in node.gpus}
    visible = [(task.node, gpu) for task in tasks for gpu in task.sees]
    blind = sum(not task.sees for task in tasks)
    binding = binding_of(request)[0]
    texts = []
    if nodes < least:
        texts.append(f"Slurm gives {nodes} of the {least} nodes, as it has no task for the others")
    if request.exclusive and tasks and granted - set(visible):
        texts.append("--exclusive: the job holds every GPU of its nodes, and its tasks get fewer")
    if 0 < blind < len(tasks):
        texts.append(f"{blind} of the {len(tasks)} tasks get no GPU")
    if binding == "all" and len(set(visible)) < len(visible):
        texts.append(
            "programs that take the first GPU that they see will all take the same one: choose by "
            "SLURM_LOCALID, or add --gpu-bind=single:1"
        )
    if binding == "closest" and not any(node.shape.affinity for node in answer.nodes):
        texts.append("closest binds nothing unless tasks are bound to cores (task/affinity)")
    if granted and any(task.variable and not _own(task, granted) for task in tasks):
        texts.append(
            "CUDA_VISIBLE_DEVICES names GPUs of the node that are not the job's: leave out "
            "--gpu-bind, or set ConstrainDevices"
        )
    return tuple(texts)


def _own(task: TaskView, granted: set[tuple[int, int]]) -> bool:
    return {(task.node, gpu) for gpu in task.sees} <= granted


def counts_picture(job: CountedJob) -> str:
    """Return the nodes with their tasks, as far as counts are known: a column for each GPU of a
    node.
    """
    if job.gpus_per_node is None or job.tasks_per_node is None:
        return ""
    gpus = "[ ]" * job.gpus_per_node
    nodes = "1 node" if job.nodes == 1 else f"each of {job.nodes} nodes"
    lines = [f"{nodes:<18}GPU {gpus}"]
    sees = (
        "all of them"
        if job.seen_by_task == job.gpus_per_node
        else plural(job.seen_by_task or 0, "GPU")
    )
    if job.seen_by_task is None:
        sees = "those that its placement decides"
    for local in range(min(job.tasks_per_node, _SHOWN_TASKS)):
        lines.append(f"  local task {local:<7}sees {sees}")
    if job.tasks_per_node > _SHOWN_TASKS:
        lines.append(f"  … {job.tasks_per_node - _SHOWN_TASKS} more tasks alike")
    return "\n".join(lines)


def picture(answer: Grant) -> str:
    """A picture of a grant: nodes and tasks are rows, GPUs are columns. # is visible to the task, .
    is not. Equal nodes are shown once."""
    groups: list[tuple[list[int], list[TaskView]]] = []
    group_of: dict[object, int] = {}
    by_node: dict[int, list[TaskView]] = {n: [] for n in range(len(answer.nodes))}
    for task in answer.tasks:
        by_node[task.node].append(task)
    for number, node in enumerate(answer.nodes):
        appearance = (
            node.gpus,
            node.shape,
            tuple((t.sees, t.variable, t.cpus) for t in by_node[number]),
        )
        if appearance in group_of:
            groups[group_of[appearance]][0].append(number)
        else:
            group_of[appearance] = len(groups)
            groups.append(([number], by_node[number]))
    lines: list[str] = []
    for numbers, tasks in groups:
        first = answer.nodes[numbers[0]]
        names_of_nodes = [answer.nodes[n].name for n in numbers]
        lines.append(_header(names_of_nodes, first.shape, first.gpus))
        for task in tasks[:_SHOWN_TASKS]:
            lines.append(_row(task, first.shape, len(numbers) > 1))
        if len(tasks) > _SHOWN_TASKS:
            lines.append(f"  … {len(tasks) - _SHOWN_TASKS} more tasks alike")
    if any(node.shape.gpus for node in answer.nodes):
        lines.append("GPU numbers with [ ] belong to the job; # a task sees it, . it does not.")
    if any(t.variable not in (None, ",".join(map(str, t.sees))) for t in answer.tasks):
        lines.append(
            "Devices are confined here: a program counts the GPUs that it sees from 0, and "
            "CUDA_VISIBLE_DEVICES says those numbers."
        )
    return "\n".join(lines)


def _header(names: list[str], shape: NodeHardware, granted: tuple[int, ...]) -> str:
    names_of_nodes = ",".join(names)
    columns = "".join(f"[{g}]" if g in granted else f" {g} " for g in range(shape.gpus))
    return f"{names_of_nodes:<14}GPU {columns}" if shape.gpus else names_of_nodes


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
    cells = "".join(
        ("#" if g in task.sees else ".").center(column_width)
        for g, column_width in enumerate(width)
    )
    name = f"local task {task.local_rank}" if local else f"task {task.rank}"
    value = "is unset" if task.variable is None else f"= {task.variable}"
    bound = f", CPUs {_ranges(task.cpus)}" if task.cpus else ""
    return f"  {name:<16}{cells}  CUDA_VISIBLE_DEVICES {value}{bound}"


def as_json(request: SlurmRequest, answer: Grant | CountedJob | SlurmRefusal) -> dict[str, Any]:
    """Return the whole answer for programs. granted: null if only counts are known, or
    nothing is.
    """
    text = sentence(request, answer)
    if isinstance(answer, SlurmRefusal):
        return {
            "granted": None if answer.stage == "unknown" else False,
            "stage": answer.stage,
            "reason": answer.reason,
            "would_work": answer.would_work,
            "until": answer.until,
            "sentence": text,
        }
    if isinstance(answer, CountedJob):
        return {
            "granted": True if answer.starts else None,
            "stage": "counted",
            "sentence": text,
            "total_gpus": answer.gpus,
            "counts": {
                "nodes": answer.nodes,
                "nodes_are_the_fewest": not answer.fixed,
                "tasks": answer.tasks,
                "tasks_per_node": answer.tasks_per_node,
                "gpus_per_node": answer.gpus_per_node,
                "gpus_seen_by_task": answer.seen_by_task,
                "shares": answer.shares,
            },
            "starts": answer.starts or None,
            "notes": list(answer.notes),
        }
    return {
        "granted": True,
        "sentence": text,
        "total_gpus": answer.total_gpus,
        "nodes": [
            {
                "name": node.name,
                "gpus": list(node.gpus),
                "tasks": node.tasks,
                "cpus": list(node.cpus),
                "memory_mib": node.memory // MIB,
                "shares": {str(gpu): count for gpu, count in node.shares.items() if count},
            }
            for node in answer.nodes
        ],
        "tasks": [
            {
                "rank": task.rank,
                "node": task.node,
                "local_rank": task.local_rank,
                "gpus": list(task.sees),
                "cuda_visible_devices": task.variable,
                "cpus": list(task.cpus),
            }
            for task in answer.tasks
        ],
        "notes": [*answer.notes, *advice(request, answer)],
    }
