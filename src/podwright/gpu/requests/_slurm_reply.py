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
from podwright.gpu.requests._count_request import count_request, option_steps
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._units import MIB
from podwright.gpu.requests._values import (
    CountedJob,
    Grant,
    NodeGrant,
    SlurmCluster,
    SlurmRefusal,
    TaskView,
)
from podwright.slurm.site.releases import Version, release_of
from podwright.slurm.twin import Granted, GrantedNode, Refused, Submission, TaskOutcome, Waits

_REASONS = {
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
_UNTIL = {
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
    question: SlurmQuestion, reply: SlurmReply, source: str, site: SlurmCluster, version: Version
) -> RequestAnswer:
    """Return the answer to a request, with its steps. source: its origin."""
    steps = (*option_steps(question.request), *_steps(question, reply))
    if not isinstance(reply.answer, Granted):
        refusal = _refusal(question.request, reply.answer, site, version)
        return RequestAnswer(refusal, source, steps)
    if reply.step_problem:
        stage: Literal["hangs", "step"] = "step"
        if "no step starts" in reply.step_problem:
            stage = "hangs"
        return RequestAnswer(SlurmRefusal(stage, reply.step_problem), source, steps)
    notes = [f"--{name} is not looked at" for name in dict.fromkeys(question.left_out)]
    if reply.tasks_problem:
        notes.append(f"what each task sees is not known: {reply.tasks_problem}")
    notes += [text for text in site.cautions if not (reply.accounts and "accounts" in text)]
    grant: Grant | SlurmRefusal = _grant(reply.answer, reply.tasks, site, tuple(notes))
    if isinstance(grant, Grant) and not release_of(version).twin_keeps_reserved_cores:
        grant = _without_reserved(grant)
    return RequestAnswer(grant, source, steps)


def _without_reserved(grant: Grant) -> Grant | SlurmRefusal:
    """Return a twin's grant without the numbers of CPUs on nodes that reserve cores.

    A twin of 22.05 was observed to give the cores of CoreSpecCount to jobs. So it is not known
    which CPUs the job gets there. If the grant needs reserved cores, the answer is not known at
    all.
    """
    reserving = [node for node in grant.nodes if node.shape.reserved]
    if not reserving:
        return grant
    for node in reserving:
        if len(node.cpus) > node.shape.cores * node.shape.threads - node.shape.reserved:
            return SlurmRefusal(
                "unknown",
                f"the job needs cores of {node.name} that CoreSpecCount reserves, and a twin of "
                "this release does not keep them free",
            )
    names = {node.name for node in reserving}
    nodes = tuple(replace(node, cpus=()) if node.name in names else node for node in grant.nodes)
    tasks = tuple(
        replace(task, cpus=()) if nodes[task.node].name in names else task for task in grant.tasks
    )
    note = (
        "which CPUs the job gets is not known on nodes that reserve cores (CoreSpecCount), and "
        "Slurm may choose another node there"
    )
    return replace(grant, nodes=nodes, tasks=tasks, notes=(*grant.notes, note))


def _grant(
    answer: Granted, tasks: tuple[TaskOutcome, ...], site: SlurmCluster, notes: tuple[str, ...]
) -> Grant:
    order = list(dict.fromkeys(task.node for task in tasks))
    by_name = {node.name: node for node in answer.nodes}
    names = [*order, *(name for name in by_name if name not in order)]
    counted = Counter(task.node for task in tasks)
    nodes = tuple(_node(by_name[name], counted[name], site) for name in names if name in by_name)
    local: Counter[str] = Counter()
    views = []
    for task in tasks:
        shape = site.shape_of(task.node)
        sees = _numbers(task.variable or "")
        if task.variable is None:
            sees = by_name[task.node].gpus if shape.confined else tuple(range(shape.gpus))
        variable = task.variable
        if variable and shape.confined:
            variable = ",".join(map(str, range(len(sees))))
        index = names.index(task.node)
        views.append(TaskView(task.rank, index, local[task.node], sees, variable, task.cpus))
        local[task.node] += 1
    if any(node.name in site.unplaced and node.gpus for node in nodes):
        notes += (
            "which GPUs these are is not known, only how many: no gres.conf says where each is "
            "(the numbers are those of GPUs in the order of sockets)",
        )
    return Grant(nodes, tuple(views), notes)


def _node(node: GrantedNode, tasks: int, site: SlurmCluster) -> NodeGrant:
    return NodeGrant(
        name=node.name,
        gpus=node.gpus,
        tasks=tasks,
        cpus=node.cpus,
        shares=node.shares,
        memory=node.memory * MIB,
        shape=site.shape_of(node.name),
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word.isdecimal())


def _refusal(
    request: SlurmRequest, answer: Refused | Waits, site: SlurmCluster, version: Version
) -> SlurmRefusal:
    """Return Slurm's reason, and the reason by counts if both have the same result."""
    reason = ""
    if isinstance(answer, Refused):
        words = re.sub(r"^\w+: (?:error: )?", "", answer.message)
    else:
        reason = answer.reason.rstrip(",")
        words = _REASONS.get(reason, "")
        words = f"{words} ({reason})" if words else reason
    stage: Literal["submit", "waits"] = "submit" if isinstance(answer, Refused) else "waits"
    until = _UNTIL.get(reason, "")
    try:
        counted = count_request(request, site, version).answer
    except PodwrightError as error:
        counted = SlurmRefusal("submit", error.problem, error.would_work)
    if isinstance(counted, SlurmRefusal) and counted.stage == stage:
        return replace(counted.after(words), until=until or counted.until)
    return SlurmRefusal(stage, words, until=until)


def _steps(question: SlurmQuestion, reply: SlurmReply) -> tuple[str, ...]:
    """Return what was submitted, Slurm's answer word for word, and what each task printed."""
    submission, answer = question.submission, reply.answer
    lines = [f"Submitted: {submission.command} {' '.join(submission.options)}"]
    lines += [f"Left out: --{name}" for name in question.left_out]
    lines += [f"{submission.command} printed: {line}" for line in answer.messages.splitlines()]
    if isinstance(answer, Granted | Waits):
        lines.append(f"scontrol shows: {answer.record.strip()}")
    if reply.step_problem:
        lines.append(f"The step: {reply.step_problem}")
    for task in reply.tasks:
        cpus = f", CPUs {','.join(map(str, task.cpus))}" if task.cpus else ""
        variable_text = "unset" if task.variable is None else task.variable
        lines.append(f"Task {task.rank} on {task.node}: CUDA_VISIBLE_DEVICES {variable_text}{cpus}")
    return tuple(lines)
