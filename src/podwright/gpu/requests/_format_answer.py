"""Shows a grant, a count or a refusal in words, as a picture, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._site_answer_types import (
    CountedJob,
    Grant,
    NodeHardware,
    SlurmRefusal,
)
from podwright.gpu.requests._units import plural
from podwright.slurm.twin import Task

_SHOWN_TASKS = 8
_COUNTING_SENTENCES = (
    ("per_job", "--gpus counts the whole job"),
    ("per_node", "--gpus-per-node counts each node"),
    ("per_socket", "--gpus-per-socket counts each socket"),
    ("per_task", "--gpus-per-task counts each task"),
    ("tasks_per_gpu", "--ntasks-per-gpu counts tasks for each GPU"),
)
_STAGE_SENTENCES = {
    "submit": "Slurm refuses this",
    "step": "The job starts, and its srun fails",
    "hangs": "The job starts, and its srun waits for ever",
    "unknown": "Not known",
}


def sentence(request: SlurmRequest, answer: Grant | CountedJob | SlurmRefusal) -> str:
    """Return what Slurm does, in one sentence or two."""
    if isinstance(answer, SlurmRefusal):
        waits_text = f"Slurm takes this job, and it waits {answer.until or 'for ever'}"
        return f"{_STAGE_SENTENCES.get(answer.stage, waits_text)}: {answer.reason}."
    if isinstance(answer, CountedJob):
        return _counted_sentence(request, answer)
    if not answer.total_gpus:
        return _gpuless_sentence(answer)
    gpus_per_node = [len(node.gpus) for node in answer.nodes]
    gpus_each = (
        f"{plural(gpus_per_node[0], 'GPU')} each"
        if len(set(gpus_per_node)) == 1 and len(gpus_per_node) > 1
        else ""
    )
    if len(gpus_per_node) > 1 and not gpus_each:
        gpus_each = " + ".join(map(str, gpus_per_node)) + " GPUs"
    sentence_text = plural(len(gpus_per_node), "node") + (f" with {gpus_each}" if gpus_each else "")
    sentence_text += f", {plural(answer.total_gpus, 'GPU')} in all"
    if not answer.tasks:
        return f"{sentence_text}{_counting_clause(request)}."
    tasks_text = plural(len(answer.tasks), "task")
    return (
        f"{sentence_text}, for {tasks_text}{_counting_clause(request)}. "
        f"{_task_views_text(request, answer)}"
    )


def _counting_clause(request: SlurmRequest) -> str:
    """What counts the GPUs; empty where no option asks for them, as with --exclusive alone."""
    counting_sentences = [
        option_sentence for name, option_sentence in _COUNTING_SENTENCES if getattr(request, name)
    ]
    if request.by_gres:
        counting_sentences = [
            option_sentence.replace("--gpus-per-node", "--gres")
            for option_sentence in counting_sentences
        ]
    return f"; {' and '.join(counting_sentences)}" if counting_sentences else ""


def _counted_sentence(request: SlurmRequest, counted_job: CountedJob) -> str:
    or_more = "" if counted_job.fixed else " or more"
    nodes_text = f"{plural(counted_job.nodes, 'node')}{or_more}"
    tasks_text = plural(counted_job.tasks, "task")
    if counted_job.gpus:
        each = request.per_node or request.per_socket
        gpus_text = plural(counted_job.gpus, "GPU") + or_more * bool(each)
        counts_text = f"{nodes_text}, {gpus_text}, for {tasks_text}{_counting_clause(request)}."
    else:
        shares_text = plural(counted_job.shares, "share") + " of GPUs"
        gets_text = shares_text if counted_job.shares else "no GPUs"
        counts_text = f"The job gets {gets_text}: {nodes_text} for {tasks_text}."
    if counted_job.starts:
        return f"{counts_text} Slurm would start it at {counted_job.starts}."
    return f"Whether it starts is not known. It asks for: {counts_text}"


def _gpuless_sentence(grant: Grant) -> str:
    text = plural(len(grant.nodes), "node")
    if grant.tasks:
        text += f" for {plural(len(grant.tasks), 'task')}"
    count = sum(sum(node.shares.values()) for node in grant.nodes)
    if not count:
        return f"The job gets no GPUs: {text}."
    return f"{text}, with {plural(count, 'share')} of GPUs."


def _binds_closest(request: SlurmRequest) -> bool:
    return request.bind.removeprefix("verbose,").startswith("closest")


def _sees_all(request: SlurmRequest) -> bool:
    """Whether each task sees all GPUs of its job on its node, because nothing binds it."""
    bind = request.bind.removeprefix("verbose,")
    return bind == "none" or not (bind or request.tasks_per_gpu or request.per_task)


def _task_views_text(request: SlurmRequest, grant: Grant) -> str:
    visible_counts = {len(task.gpus) for task in grant.tasks}
    gpus_shared = any(
        set(first.gpus) & set(second.gpus)
        for position, first in enumerate(grant.tasks)
        for second in grant.tasks[position + 1 : position + 64]
        if first.node == second.node
    )
    if len(visible_counts) == 1:
        views_sentence = f"Every task sees {plural(visible_counts.pop(), 'GPU')}"
        views_sentence += ", shared with others of its node" if gpus_shared else ", its own"
    else:
        views_sentence = f"Tasks see between {min(visible_counts)} and {max(visible_counts)} GPUs"
        views_sentence += ", shared with others of their node" if gpus_shared else ", of their own"
    tasks_bound = any(hardware.affinity for hardware in grant.hardware.values())
    if _binds_closest(request) and tasks_bound:
        views_sentence += " (those beside its cores)"
    return views_sentence + "."


def advice(request: SlurmRequest, grant: Grant) -> tuple[str, ...]:
    """Return unintended effects of the options, read from the grant itself; without full stops."""
    node_count, requested_nodes = len(grant.nodes), request.min_nodes or 0
    granted_gpus = {(node.name, gpu) for node in grant.nodes for gpu in node.gpus}
    visible_gpus = [(task.node, gpu) for task in grant.tasks for gpu in task.gpus]
    blind_tasks = sum(not task.gpus for task in grant.tasks)
    advice_sentences = []
    if node_count < requested_nodes:
        advice_sentences.append(
            f"Slurm gives {node_count} of the {requested_nodes} nodes, as it has no task for the "
            "others"
        )
    if request.exclusive and grant.tasks and granted_gpus - set(visible_gpus):
        advice_sentences.append(
            "--exclusive: the job holds every GPU of its nodes, and its tasks get fewer"
        )
    if 0 < blind_tasks < len(grant.tasks):
        advice_sentences.append(f"{blind_tasks} of the {len(grant.tasks)} tasks get no GPU")
    if _sees_all(request) and len(set(visible_gpus)) < len(visible_gpus):
        advice_sentences.append(
            "programs that take the first GPU that they see will all take the same one: choose by "
            "SLURM_LOCALID, or add --gpu-bind=single:1"
        )
    if _binds_closest(request) and not any(
        hardware.affinity for hardware in grant.hardware.values()
    ):
        advice_sentences.append(
            "closest binds nothing unless tasks are bound to cores (task/affinity)"
        )
    if granted_gpus and any(
        task.variable and not {(task.node, gpu) for gpu in task.gpus} <= granted_gpus
        for task in grant.tasks
    ):
        advice_sentences.append(
            "CUDA_VISIBLE_DEVICES names GPUs of the node that are not the job's: leave out "
            "--gpu-bind, or set ConstrainDevices"
        )
    return tuple(advice_sentences)


def picture(grant: Grant) -> str:
    """A picture of a grant: nodes and tasks are rows, GPUs are columns. # is visible to the task, .
    is not. Equal nodes are shown once."""
    groups: dict[object, list[str]] = {}
    for node in grant.nodes:
        seen = tuple((task.gpus, task.variable, task.cpus) for task in grant.tasks_on(node.name))
        appearance = (node.gpus, grant.hardware[node.name], seen)
        groups.setdefault(appearance, []).append(node.name)
    gpus_of = {node.name: node.gpus for node in grant.nodes}
    picture_lines: list[str] = []
    for names in groups.values():
        hardware, tasks = grant.hardware[names[0]], grant.tasks_on(names[0])
        picture_lines.append(_picture_header(names, hardware, gpus_of[names[0]]))
        for rank, task in enumerate(tasks[:_SHOWN_TASKS]):
            label = f"local task {rank}" if len(names) > 1 else f"task {task.rank}"
            picture_lines.append(_task_row(label, task, hardware))
        if len(tasks) > _SHOWN_TASKS:
            picture_lines.append(f"  … {len(tasks) - _SHOWN_TASKS} more tasks alike")
    if any(hardware.gpus for hardware in grant.hardware.values()):
        picture_lines.append(
            "GPU numbers with [ ] belong to the job; # a task sees it, . it does not."
        )
    if any(task.variable not in (None, ",".join(map(str, task.gpus))) for task in grant.tasks):
        picture_lines.append(
            "Devices are confined here: a program counts the GPUs that it sees from 0, and "
            "CUDA_VISIBLE_DEVICES says those numbers."
        )
    return "\n".join(picture_lines)


def _picture_header(
    node_names: list[str], node_hardware: NodeHardware, granted_gpus: tuple[int, ...]
) -> str:
    text = ",".join(node_names)
    columns = "".join(
        f"[{number}]" if number in granted_gpus else f" {number} "
        for number in range(node_hardware.gpus)
    )
    return f"{text:<14}GPU {columns}" if node_hardware.gpus else text


def _number_ranges(numbers: Iterable[int]) -> str:
    """`0-3,8,9`."""
    consecutive_runs: list[list[int]] = []
    for number in sorted(numbers):
        if consecutive_runs and consecutive_runs[-1][-1] == number - 1:
            consecutive_runs[-1].append(number)
        else:
            consecutive_runs.append([number])
    return ",".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run))
        for run in consecutive_runs
    )


def _task_row(label: str, task: Task, node_hardware: NodeHardware) -> str:
    cells = "".join(
        ("#" if gpu in task.gpus else ".").center(3 if gpu < 10 else 4)
        for gpu in range(node_hardware.gpus)
    )
    variable_text = "is unset" if task.variable is None else f"= {task.variable}"
    cpus_text = f", CPUs {_number_ranges(task.cpus)}" if task.cpus else ""
    return f"  {label:<16}{cells}  CUDA_VISIBLE_DEVICES {variable_text}{cpus_text}"


def as_json(request: SlurmRequest, answer: Grant | CountedJob | SlurmRefusal) -> dict[str, Any]:
    """Return the whole answer for programs. granted: null if only counts are known, or
    nothing is.
    """
    sentence_text = sentence(request, answer)
    if isinstance(answer, SlurmRefusal):
        return {
            "granted": None if answer.stage == "unknown" else False,
            "stage": answer.stage,
            "reason": answer.reason,
            "would_work": answer.would_work,
            "until": answer.until,
            "sentence": sentence_text,
        }
    if isinstance(answer, CountedJob):
        return {
            "granted": True if answer.starts else None,
            "stage": "counted",
            "sentence": sentence_text,
            "total_gpus": answer.gpus,
            "counts": {
                "nodes": answer.nodes,
                "nodes_are_the_fewest": not answer.fixed,
                "tasks": answer.tasks,
                "shares": answer.shares,
            },
            "starts": answer.starts or None,
        }
    positions = {node.name: position for position, node in enumerate(answer.nodes)}
    return {
        "granted": True,
        "sentence": sentence_text,
        "total_gpus": answer.total_gpus,
        "nodes": [
            {
                "name": node.name,
                "gpus": list(node.gpus),
                "tasks": len(answer.tasks_on(node.name)),
                "cpus": list(node.cpus),
                "memory_mib": node.memory,
                "shares": {str(gpu): count for gpu, count in node.shares.items() if count},
            }
            for node in answer.nodes
        ],
        "tasks": [
            {
                "rank": task.rank,
                "node": positions[task.node],
                "local_rank": answer.tasks_on(task.node).index(task),
                "gpus": list(task.gpus),
                "cuda_visible_devices": task.variable,
                "cpus": list(task.cpus),
            }
            for task in answer.tasks
        ],
        "notes": [*answer.notes, *advice(request, answer)],
    }
