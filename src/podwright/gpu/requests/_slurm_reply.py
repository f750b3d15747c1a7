"""Slurm's answer, as the value that is shown.

Slurm determines which nodes, GPUs, CPUs and memory a job gets. Podwright adds the numbers by which
programs see GPUs when devices are confined, and leaves out what a twin is known to answer wrongly.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from podwright.errors import PodwrightError
from podwright.gpu.requests._answer_by_counts import count_request, option_steps
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._site_answer_types import (
    CountedJob,
    Grant,
    NodeGrant,
    SlurmCluster,
    SlurmRefusal,
    TaskView,
)
from podwright.gpu.requests._units import MIB
from podwright.slurm.site.releases import SlurmVersion, release_of
from podwright.slurm.twin import Granted, GrantedNode, Refused, Submission, TaskOutcome, Waits

_WAIT_REASONS = {
    "Resources": "the nodes that it needs are in use",
    "Priority": "jobs of a higher priority are before it",
    "PartitionTimeLimit": "its time limit is not within the partition's",
    "PartitionNodeLimit": "it needs more or fewer nodes than the partition lets a job have",
    "PartitionConfig": "the partition cannot hold it",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "BeginTime": "its --begin is not reached",
    "ReqNodeNotAvail": "a node that it names is down, drained or reserved",
    "Reservation": "its reservation has not begun",
    "Dependency": "a job that it depends on has not ended",
    "JobHeldUser": "it is held",
    "BadConstraints": "no node has what it asks for",
}
#: The event that ends each reason to wait. The other reasons end at an unforeseeable time.
_WAIT_ENDS = {
    "Resources": "until they are free",
    "Priority": "until those have started",
    "PartitionDown": "until it is up again",
    "PartitionInactive": "until it is up again",
    "BeginTime": "until then",
    "ReqNodeNotAvail": "until that node takes jobs again",
    "Reservation": "until then",
    "Dependency": "until then",
    "JobHeldUser": "until `scontrol release JOB`",
}


@dataclass(frozen=True)
class RequestAnswer:
    """The answer to a request. source: a sentence about its origin. steps: how it was found, a line
    each.

    warnings: sources that were asked first and did not answer, without full stops.
    """

    answer: Grant | CountedJob | SlurmRefusal
    source: str
    steps: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class SlurmReply(NamedTuple):
    """Slurm's reply.

    step_problem: the job starts and its step does not; srun's line. tasks_problem: why it is not
    known what each task sees. accounts: whether limits of accounts were examined.
    """

    answer: Granted | Waits | Refused
    tasks: tuple[TaskOutcome, ...] = ()
    step_problem: str = ""
    tasks_problem: str = ""
    accounts: bool = False


class SlurmQuestion(NamedTuple):
    """A request, what was submitted for it, and the options that were left out."""

    request: SlurmRequest
    submission: Submission
    left_out: tuple[str, ...]


def request_answer(
    question: SlurmQuestion,
    reply: SlurmReply,
    source_sentence: str,
    site: SlurmCluster,
    version: SlurmVersion,
) -> RequestAnswer:
    """Return the answer to a request, with its steps. source_sentence: its origin."""
    steps = (*option_steps(question.request), *_steps(question, reply))
    if not isinstance(reply.answer, Granted):
        refusal = _slurm_refusal(question.request, reply.answer, site, version)
        return RequestAnswer(refusal, source_sentence, steps)
    if reply.step_problem:
        refusal_stage: Literal["hangs", "step"] = "step"
        if "no step starts" in reply.step_problem:
            refusal_stage = "hangs"
        return RequestAnswer(
            SlurmRefusal(refusal_stage, reply.step_problem), source_sentence, steps
        )
    notes = [
        f"--{option_name} is not looked at" for option_name in dict.fromkeys(question.left_out)
    ]
    if reply.tasks_problem:
        notes.append(f"what each task sees is not known: {reply.tasks_problem}")
    notes += [
        caution for caution in site.cautions if not (reply.accounts and "accounts" in caution)
    ]
    grant: Grant | SlurmRefusal = _twin_grant(reply.answer, reply.tasks, site, tuple(notes))
    if isinstance(grant, Grant) and not release_of(version).twin_keeps_reserved_cores:
        grant = _without_reserved(grant)
    return RequestAnswer(grant, source_sentence, steps)


def _without_reserved(grant: Grant) -> Grant | SlurmRefusal:
    """Return a twin's grant without the numbers of CPUs on nodes that reserve cores.

    A twin of 22.05 was observed to give the cores of CoreSpecCount to jobs. So it is not known
    which CPUs the job gets there. If the grant needs reserved cores, the answer is not known at
    all.
    """
    reserving_nodes = [node for node in grant.nodes if node.shape.reserved]
    if not reserving_nodes:
        return grant
    for node in reserving_nodes:
        if len(node.cpus) > node.shape.cores * node.shape.threads - node.shape.reserved:
            return SlurmRefusal(
                "unknown",
                f"the job needs cores of {node.name} that CoreSpecCount reserves, and a twin of "
                "this release does not keep them free",
            )
    reserving_names = {node.name for node in reserving_nodes}
    nodes = tuple(
        replace(node, cpus=()) if node.name in reserving_names else node for node in grant.nodes
    )
    tasks = tuple(
        replace(task, cpus=()) if nodes[task.node].name in reserving_names else task
        for task in grant.tasks
    )
    reserved_note = (
        "which CPUs the job gets is not known on nodes that reserve cores (CoreSpecCount), and "
        "Slurm may choose another node there"
    )
    return replace(grant, nodes=nodes, tasks=tasks, notes=(*grant.notes, reserved_note))


def _twin_grant(
    answer: Granted,
    task_outcomes: tuple[TaskOutcome, ...],
    site: SlurmCluster,
    notes: tuple[str, ...],
) -> Grant:
    node_order = list(dict.fromkeys(task_outcome.node for task_outcome in task_outcomes))
    nodes_by_name = {granted_node.name: granted_node for granted_node in answer.nodes}
    node_names = [
        *node_order,
        *(node_name for node_name in nodes_by_name if node_name not in node_order),
    ]
    tasks_by_node = Counter(task_outcome.node for task_outcome in task_outcomes)
    node_grants = tuple(
        _node_grant(nodes_by_name[node_name], tasks_by_node[node_name], site)
        for node_name in node_names
        if node_name in nodes_by_name
    )
    next_local_rank: Counter[str] = Counter()
    task_views = []
    for task_outcome in task_outcomes:
        node_hardware = site.shape_of(task_outcome.node)
        visible_gpus = _read_numbers(task_outcome.variable or "")
        if task_outcome.variable is None:
            visible_gpus = (
                nodes_by_name[task_outcome.node].gpus
                if node_hardware.confined
                else tuple(range(node_hardware.gpus))
            )
        visible_devices = task_outcome.variable
        if visible_devices and node_hardware.confined:
            visible_devices = ",".join(map(str, range(len(visible_gpus))))
        node_index = node_names.index(task_outcome.node)
        task_views.append(
            TaskView(
                task_outcome.rank,
                node_index,
                next_local_rank[task_outcome.node],
                visible_gpus,
                visible_devices,
                task_outcome.cpus,
            )
        )
        next_local_rank[task_outcome.node] += 1
    if any(
        granted_node.name in site.unplaced and granted_node.gpus for granted_node in node_grants
    ):
        notes += (
            "which GPUs these are is not known, only how many: no gres.conf says where each is "
            "(the numbers are those of GPUs in the order of sockets)",
        )
    return Grant(node_grants, tuple(task_views), notes)


def _node_grant(granted_node: GrantedNode, task_count: int, site: SlurmCluster) -> NodeGrant:
    return NodeGrant(
        name=granted_node.name,
        gpus=granted_node.gpus,
        tasks=task_count,
        cpus=granted_node.cpus,
        shares=granted_node.shares,
        memory=granted_node.memory * MIB,
        shape=site.shape_of(granted_node.name),
    )


def _read_numbers(number_list: str) -> tuple[int, ...]:
    return tuple(
        int(number_text) for number_text in number_list.split(",") if number_text.isdecimal()
    )


def _slurm_refusal(
    request: SlurmRequest, answer: Refused | Waits, site: SlurmCluster, version: SlurmVersion
) -> SlurmRefusal:
    """Return Slurm's reason, and the reason by counts if both have the same result."""
    wait_reason = ""
    if isinstance(answer, Refused):
        slurm_words = re.sub(r"^\w+: (?:error: )?", "", answer.message)
    else:
        wait_reason = answer.reason.rstrip(",")
        slurm_words = _WAIT_REASONS.get(wait_reason, "")
        slurm_words = f"{slurm_words} ({wait_reason})" if slurm_words else wait_reason
    refusal_stage: Literal["submit", "waits"] = "submit" if isinstance(answer, Refused) else "waits"
    wait_end = _WAIT_ENDS.get(wait_reason, "")
    try:
        counted_answer = count_request(request, site, version).answer
    except PodwrightError as error:
        counted_answer = SlurmRefusal("submit", error.problem, error.would_work)
    if isinstance(counted_answer, SlurmRefusal) and counted_answer.stage == refusal_stage:
        return replace(counted_answer.after(slurm_words), until=wait_end or counted_answer.until)
    return SlurmRefusal(refusal_stage, slurm_words, until=wait_end)


def _steps(question: SlurmQuestion, reply: SlurmReply) -> tuple[str, ...]:
    """Return what was submitted, Slurm's answer word for word, and what each task printed."""
    submission, answer = question.submission, reply.answer
    step_lines = [f"Submitted: {submission.command} {' '.join(submission.options)}"]
    step_lines += [f"Left out: --{option_name}" for option_name in question.left_out]
    step_lines += [
        f"{submission.command} printed: {message_line}"
        for message_line in answer.messages.splitlines()
    ]
    if isinstance(answer, Granted | Waits):
        step_lines.append(f"scontrol shows: {answer.record.strip()}")
    if reply.step_problem:
        step_lines.append(f"The step: {reply.step_problem}")
    for task_outcome in reply.tasks:
        cpus_text = f", CPUs {','.join(map(str, task_outcome.cpus))}" if task_outcome.cpus else ""
        variable_text = "unset" if task_outcome.variable is None else task_outcome.variable
        step_lines.append(
            f"Task {task_outcome.rank} on {task_outcome.node}: CUDA_VISIBLE_DEVICES "
            f"{variable_text}{cpus_text}"
        )
    return tuple(step_lines)
