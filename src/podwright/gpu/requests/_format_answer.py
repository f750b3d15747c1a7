"""Shows a grant, a count or a refusal in words, as a picture, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podwright.gpu.requests._answer_by_counts import binding_of
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._site_answer_types import (
    CountedJob,
    Grant,
    NodeHardware,
    SlurmRefusal,
    TaskView,
)
from podwright.gpu.requests._units import MIB, plural

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
        return f"{sentence_text}; {_counting_words(request)}."
    tasks_text = plural(len(answer.tasks), "task")
    return (
        f"{sentence_text}, for {tasks_text}; {_counting_words(request)}. "
        f"{_task_views_text(request, answer)}"
    )


def _counting_words(request: SlurmRequest) -> str:
    counting_sentences = [
        option_sentence
        for field_name, option_sentence in _COUNTING_SENTENCES
        if getattr(request, field_name)
    ]
    if request.by_gres:
        counting_sentences = [
            option_sentence.replace("--gpus-per-node", "--gres")
            for option_sentence in counting_sentences
        ]
    return " and ".join(counting_sentences)


def _counted_sentence(request: SlurmRequest, counted_job: CountedJob) -> str:
    if not counted_job.gpus:
        gets_text = (
            f"{plural(counted_job.shares, 'share')} of GPUs" if counted_job.shares else "no GPUs"
        )
        sentence_text = (
            f"The job gets {gets_text}: {plural(counted_job.nodes, 'node')} for "
            f"{plural(counted_job.tasks, 'task')}."
        )
        return _with_start(sentence_text, counted_job)
    or_more = "" if counted_job.fixed else " or more"
    sentence_text = plural(counted_job.nodes, "node") + or_more
    if counted_job.gpus_per_node and (counted_job.nodes > 1 or or_more):
        sentence_text += f" with {plural(counted_job.gpus_per_node, 'GPU')} each"
    total_text = plural(counted_job.gpus, "GPU") + (or_more if counted_job.gpus_per_node else "")
    sentence_text += (
        f", {total_text} in all, for {plural(counted_job.tasks, 'task')}; "
        f"{_counting_words(request)}."
    )
    if counted_job.seen_by_task is not None:
        sentence_text += (
            f" Every task sees {plural(counted_job.seen_by_task, 'GPU')}: {counted_job.binding}."
        )
    else:
        sentence_text += f" How many GPUs a task sees is not known: {counted_job.binding}."
    return _with_start(sentence_text, counted_job)


def _with_start(sentence_text: str, counted_job: CountedJob) -> str:
    return (
        f"{sentence_text} Slurm would start it at {counted_job.starts}."
        if counted_job.starts
        else sentence_text
    )


def _gpuless_sentence(grant: Grant) -> str:
    nodes_text = plural(len(grant.nodes), "node")
    if grant.tasks:
        nodes_text += f" for {plural(len(grant.tasks), 'task')}"
    share_count = sum(sum(node_grant.shares.values()) for node_grant in grant.nodes)
    if not share_count:
        return f"The job gets no GPUs: {nodes_text}."
    return f"{nodes_text}, with {plural(share_count, 'share')} of GPUs."


def _task_views_text(request: SlurmRequest, grant: Grant) -> str:
    visible_counts = {len(task_view.sees) for task_view in grant.tasks}
    gpus_shared = any(
        set(first_task.sees) & set(second_task.sees)
        for task_index, first_task in enumerate(grant.tasks)
        for second_task in grant.tasks[task_index + 1 : task_index + 64]
        if first_task.node == second_task.node
    )
    if len(visible_counts) == 1:
        visible_count = visible_counts.pop()
        views_sentence = f"Every task sees {plural(visible_count, 'GPU')}"
        views_sentence += ", shared with others of its node" if gpus_shared else ", its own"
    else:
        views_sentence = f"Tasks see between {min(visible_counts)} and {max(visible_counts)} GPUs"
        views_sentence += ", shared with others of their node" if gpus_shared else ", of their own"
    tasks_bound = any(node_grant.shape.affinity for node_grant in grant.nodes)
    if binding_of(request)[0] == "closest" and tasks_bound:
        views_sentence += " (those beside its cores)"
    return views_sentence + "."


def advice(request: SlurmRequest, grant: Grant) -> tuple[str, ...]:
    """Return unintended effects of the options, read from the grant itself; without full stops."""
    node_count, task_views, requested_nodes = len(grant.nodes), grant.tasks, request.min_nodes or 0
    granted_gpus = {
        (node_index, gpu_number)
        for node_index, node_grant in enumerate(grant.nodes)
        for gpu_number in node_grant.gpus
    }
    visible_gpus = [
        (task_view.node, gpu_number) for task_view in task_views for gpu_number in task_view.sees
    ]
    blind_tasks = sum(not task_view.sees for task_view in task_views)
    binding_way = binding_of(request)[0]
    advice_sentences = []
    if node_count < requested_nodes:
        advice_sentences.append(
            f"Slurm gives {node_count} of the {requested_nodes} nodes, as it has no task for the "
            "others"
        )
    if request.exclusive and task_views and granted_gpus - set(visible_gpus):
        advice_sentences.append(
            "--exclusive: the job holds every GPU of its nodes, and its tasks get fewer"
        )
    if 0 < blind_tasks < len(task_views):
        advice_sentences.append(f"{blind_tasks} of the {len(task_views)} tasks get no GPU")
    if binding_way == "all" and len(set(visible_gpus)) < len(visible_gpus):
        advice_sentences.append(
            "programs that take the first GPU that they see will all take the same one: choose by "
            "SLURM_LOCALID, or add --gpu-bind=single:1"
        )
    if binding_way == "closest" and not any(
        node_grant.shape.affinity for node_grant in grant.nodes
    ):
        advice_sentences.append(
            "closest binds nothing unless tasks are bound to cores (task/affinity)"
        )
    if granted_gpus and any(
        task_view.variable and not _sees_granted_only(task_view, granted_gpus)
        for task_view in task_views
    ):
        advice_sentences.append(
            "CUDA_VISIBLE_DEVICES names GPUs of the node that are not the job's: leave out "
            "--gpu-bind, or set ConstrainDevices"
        )
    return tuple(advice_sentences)


def _sees_granted_only(task_view: TaskView, granted_gpus: set[tuple[int, int]]) -> bool:
    return {(task_view.node, gpu_number) for gpu_number in task_view.sees} <= granted_gpus


def counts_picture(counted_job: CountedJob) -> str:
    """Return the nodes with their tasks, as far as counts are known: a column for each GPU of a
    node.
    """
    if counted_job.gpus_per_node is None or counted_job.tasks_per_node is None:
        return ""
    gpu_columns = "[ ]" * counted_job.gpus_per_node
    nodes_label = "1 node" if counted_job.nodes == 1 else f"each of {counted_job.nodes} nodes"
    picture_lines = [f"{nodes_label:<18}GPU {gpu_columns}"]
    visible_text = (
        "all of them"
        if counted_job.seen_by_task == counted_job.gpus_per_node
        else plural(counted_job.seen_by_task or 0, "GPU")
    )
    if counted_job.seen_by_task is None:
        visible_text = "those that its placement decides"
    for local_rank in range(min(counted_job.tasks_per_node, _SHOWN_TASKS)):
        picture_lines.append(f"  local task {local_rank:<7}sees {visible_text}")
    if counted_job.tasks_per_node > _SHOWN_TASKS:
        picture_lines.append(f"  … {counted_job.tasks_per_node - _SHOWN_TASKS} more tasks alike")
    return "\n".join(picture_lines)


def picture(grant: Grant) -> str:
    """A picture of a grant: nodes and tasks are rows, GPUs are columns. # is visible to the task, .
    is not. Equal nodes are shown once."""
    node_groups: list[tuple[list[int], list[TaskView]]] = []
    group_by_appearance: dict[object, int] = {}
    tasks_by_node: dict[int, list[TaskView]] = {
        node_position: [] for node_position in range(len(grant.nodes))
    }
    for task in grant.tasks:
        tasks_by_node[task.node].append(task)
    for node_index, node_grant in enumerate(grant.nodes):
        appearance = (
            node_grant.gpus,
            node_grant.shape,
            tuple(
                (task_view.sees, task_view.variable, task_view.cpus)
                for task_view in tasks_by_node[node_index]
            ),
        )
        if appearance in group_by_appearance:
            node_groups[group_by_appearance[appearance]][0].append(node_index)
        else:
            group_by_appearance[appearance] = len(node_groups)
            node_groups.append(([node_index], tasks_by_node[node_index]))
    picture_lines: list[str] = []
    for node_indices, group_tasks in node_groups:
        first_node = grant.nodes[node_indices[0]]
        names_of_nodes = [grant.nodes[node_position].name for node_position in node_indices]
        picture_lines.append(_picture_header(names_of_nodes, first_node.shape, first_node.gpus))
        for task in group_tasks[:_SHOWN_TASKS]:
            picture_lines.append(_task_row(task, first_node.shape, len(node_indices) > 1))
        if len(group_tasks) > _SHOWN_TASKS:
            picture_lines.append(f"  … {len(group_tasks) - _SHOWN_TASKS} more tasks alike")
    if any(node_grant.shape.gpus for node_grant in grant.nodes):
        picture_lines.append(
            "GPU numbers with [ ] belong to the job; # a task sees it, . it does not."
        )
    if any(
        task_view.variable not in (None, ",".join(map(str, task_view.sees)))
        for task_view in grant.tasks
    ):
        picture_lines.append(
            "Devices are confined here: a program counts the GPUs that it sees from 0, and "
            "CUDA_VISIBLE_DEVICES says those numbers."
        )
    return "\n".join(picture_lines)


def _picture_header(
    node_names: list[str], node_hardware: NodeHardware, granted_gpus: tuple[int, ...]
) -> str:
    names_text = ",".join(node_names)
    gpu_columns = "".join(
        f"[{gpu_number}]" if gpu_number in granted_gpus else f" {gpu_number} "
        for gpu_number in range(node_hardware.gpus)
    )
    return f"{names_text:<14}GPU {gpu_columns}" if node_hardware.gpus else names_text


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


def _task_row(task_view: TaskView, node_hardware: NodeHardware, use_local_rank: bool) -> str:
    column_widths = [3 if gpu_number < 10 else 4 for gpu_number in range(node_hardware.gpus)]
    gpu_cells = "".join(
        ("#" if gpu_number in task_view.sees else ".").center(column_width)
        for gpu_number, column_width in enumerate(column_widths)
    )
    task_label = (
        f"local task {task_view.local_rank}" if use_local_rank else f"task {task_view.rank}"
    )
    variable_text = "is unset" if task_view.variable is None else f"= {task_view.variable}"
    cpus_text = f", CPUs {_number_ranges(task_view.cpus)}" if task_view.cpus else ""
    return f"  {task_label:<16}{gpu_cells}  CUDA_VISIBLE_DEVICES {variable_text}{cpus_text}"


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
        "sentence": sentence_text,
        "total_gpus": answer.total_gpus,
        "nodes": [
            {
                "name": node.name,
                "gpus": list(node.gpus),
                "tasks": node.tasks,
                "cpus": list(node.cpus),
                "memory_mib": node.memory // MIB,
                "shares": {
                    str(gpu_number): share_count
                    for gpu_number, share_count in node.shares.items()
                    if share_count
                },
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
