"""Slurm's answer, as the value that is shown.

Slurm determines which nodes, GPUs, CPUs and memory a job gets. Podwright adds the numbers by which
programs see GPUs when devices are confined, and says "not known" where a twin is known to differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from podwright.gpu.requests._count_job import count_request, option_steps
from podwright.gpu.requests._format_answer import sentence
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._site_answer_types import (
    CountedJob,
    Grant,
    SlurmCluster,
    SlurmRefusal,
)
from podwright.gpu.requests._submitted_options import LeftOut, left_out_texts
from podwright.ground.judgement import Judgement, Says
from podwright.slurm.site.releases import SlurmVersion, release_of
from podwright.slurm.twin import Granted, GrantedNode, Refused, Submission, Task, Waits
from podwright.slurm.twin_service import TwinAnswer

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
#: Slurm's words and reasons that are about what nodes have.
_ABOUT_NODES = re.compile(
    r"node configuration is not available|processors requested|CPU count|Node count"
    r"|partition configuration not available|^(?:Resources|BadConstraints|PartitionConfig)$"
)


@dataclass(frozen=True)
class RequestAnswer:
    """The answer to a request. judgement: whether the job starts, who says so, and what was left
    out, in words; left_out has the same as values. steps: how it was found, a line each.

    warnings: sources that were asked first and did not answer, without full stops.
    """

    judgement: Judgement
    answer: Grant | CountedJob | SlurmRefusal
    steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class SlurmQuestion(NamedTuple):
    """A request, what was submitted for it, what was left out, and the site that was asked."""

    request: SlurmRequest
    submission: Submission
    left_out: tuple[LeftOut, ...]
    site: SlurmCluster
    version: SlurmVersion


def judged(
    request: SlurmRequest,
    answer: Grant | CountedJob | SlurmRefusal,
    source: str,
    left_out: tuple[LeftOut, ...] = (),
) -> Judgement:
    """Return whether the job starts. A count alone tells neither yes nor no."""
    verdict = Says.YES
    if isinstance(answer, SlurmRefusal):
        verdict = Says.NOT_KNOWN if answer.stage == "unknown" else Says.NO
    elif isinstance(answer, CountedJob) and not answer.starts:
        verdict = Says.NOT_KNOWN
    because = sentence(request, answer).rstrip(".")
    return Judgement(
        says=verdict, because=because, source=source, left_out=left_out_texts(left_out)
    )


def request_answer(
    question: SlurmQuestion,
    reply: TwinAnswer,
    source: str,
    *,
    on_larger: Granted | Waits | Refused | None = None,
) -> RequestAnswer:
    """Return the answer to a request, with its steps. on_larger: what Slurm said of the same on
    assumed nodes with plenty of each size that nobody gave."""
    answer: Grant | SlurmRefusal
    if not isinstance(reply.answer, Granted):
        answer = _refusal(question, reply.answer, on_larger)
    elif reply.step_problem:
        waits = "no step starts" in reply.step_problem
        answer = SlurmRefusal("hangs" if waits else "step", reply.step_problem)
    else:
        answer = _grant(question, reply.answer, reply)
    steps = (*option_steps(question.request), *_steps(question, reply))
    judgement = judged(question.request, answer, source, question.left_out)
    return RequestAnswer(judgement, answer, steps, left_out=question.left_out)


def _reserves_cores(question: SlurmQuestion) -> bool:
    """Whether the twin is known to differ: on 22.05 it gives cores of CoreSpecCount to jobs, and
    was seen to refuse whole nodes that reserve cores."""
    return not release_of(question.version).twin_keeps_reserved_cores and any(
        hardware.reserved for hardware in question.site.shapes
    )


def _grant(question: SlurmQuestion, answer: Granted, reply: TwinAnswer) -> Grant | SlurmRefusal:
    site = question.site
    notes = [f"what each task sees is not known: {reply.tasks_problem}"] * bool(reply.tasks_problem)
    notes += [
        caution for caution in site.cautions if not (reply.accounts and "accounts" in caution)
    ]
    hardware = {node.name: site.shape_of(node.name) for node in answer.nodes}
    by_name = {node.name: node for node in answer.nodes}
    names = dict.fromkeys([task.node for task in reply.tasks if task.node in by_name])
    nodes = [by_name[name] for name in dict.fromkeys([*names, *by_name])]
    if any(node.name in site.unplaced and node.gpus for node in nodes):
        notes.append(
            "which GPUs these are is not known, only how many: no gres.conf says where each is "
            "(the numbers are those of GPUs in the order of sockets)"
        )
    tasks = tuple(_seen_task(task, by_name[task.node], site) for task in reply.tasks)
    grant = Grant(tuple(nodes), tasks, hardware, tuple(notes))
    return _without_reserved(grant) if _reserves_cores(question) else grant


def _seen_task(task: Task, node: GrantedNode, site: SlurmCluster) -> Task:
    """Return the task with the GPUs that it sees, and the variable as a program sees it."""
    hardware = site.shape_of(task.node)
    if task.variable is None:
        gpus = node.gpus if hardware.confined else tuple(range(hardware.gpus))
        return replace(task, gpus=gpus)
    gpus = tuple(int(number) for number in task.variable.split(",") if number.isdecimal())
    own_numbers = ",".join(map(str, range(len(gpus))))
    variable = own_numbers if task.variable and hardware.confined else task.variable
    return replace(task, gpus=gpus, variable=variable)


def _without_reserved(grant: Grant) -> Grant | SlurmRefusal:
    """Return a twin's grant without the numbers of CPUs on nodes that reserve cores.

    If the grant needs reserved cores, the answer is not known at all.
    """
    reserving = {name for name, hardware in grant.hardware.items() if hardware.reserved}
    if not reserving:
        return grant
    for node in grant.nodes:
        hardware = grant.hardware[node.name]
        free = hardware.cores * hardware.threads - hardware.reserved
        if hardware.reserved and len(node.cpus) > free:
            return SlurmRefusal(
                "unknown",
                f"the job needs cores of {node.name} that CoreSpecCount reserves, and a twin of "
                "this release does not keep them free",
            )
    reserved_note = (
        "which CPUs the job gets is not known on nodes that reserve cores (CoreSpecCount), and "
        "Slurm may choose another node there"
    )
    return replace(
        grant,
        nodes=tuple(
            replace(node, cpus=()) if node.name in reserving else node for node in grant.nodes
        ),
        tasks=tuple(
            replace(task, cpus=()) if task.node in reserving else task for task in grant.tasks
        ),
        notes=(*grant.notes, reserved_note),
    )


def _refusal(
    question: SlurmQuestion,
    answer: Refused | Waits,
    on_larger: Granted | Waits | Refused | None,
) -> SlurmRefusal:
    """Return Slurm's reason, and the documented one beside it if there is one."""
    slurm_words, reason = _slurm_words(answer)
    stage: Literal["submit", "waits"] = "submit" if isinstance(answer, Refused) else "waits"
    documented = count_request(question.request, question.version)
    if isinstance(documented, SlurmRefusal) and documented.stage == stage:
        return documented.after(slurm_words)
    if isinstance(on_larger, Granted):
        return SlurmRefusal(
            "unknown",
            f"the nodes as assumed do not hold it, and larger ones do ({slurm_words})",
            "Describe the nodes: --node-gpus, --node-cores, --node-sockets, --cluster-nodes",
        )
    if _ABOUT_NODES.search(reason) and _reserves_cores(question):
        return SlurmRefusal(
            "unknown",
            "nodes here reserve cores (CoreSpecCount), and a twin of this release is known to "
            f"count them otherwise than the site's Slurm ({slurm_words})",
        )
    return SlurmRefusal(stage, slurm_words, until=_WAIT_ENDS.get(reason, ""))


def _slurm_words(answer: Refused | Waits) -> tuple[str, str]:
    """Return Slurm's reason in words, and Slurm's own word or line."""
    if isinstance(answer, Refused):
        line = re.sub(r"^\w+: (?:error: |fatal: )?", "", answer.message)
        return line, line
    reason = answer.reason.rstrip(",")
    words = _WAIT_REASONS.get(reason, "")
    return (f"{words} ({reason})" if words else reason), reason


def _steps(question: SlurmQuestion, reply: TwinAnswer) -> tuple[str, ...]:
    """Return what was submitted, Slurm's answer word for word, and what each task printed."""
    submission, answer = question.submission, reply.answer
    step_lines = [f"Submitted: {submission.command} {' '.join(submission.options)}"]
    step_lines += [f"{submission.command} printed: {line}" for line in answer.messages.splitlines()]
    if isinstance(answer, Granted | Waits):
        step_lines.append(f"scontrol shows: {answer.record.strip()}")
    if reply.step_problem:
        step_lines.append(f"The step: {reply.step_problem}")
    for task in reply.tasks:
        cpus_text = f", CPUs {','.join(map(str, task.cpus))}" if task.cpus else ""
        variable_text = "unset" if task.variable is None else task.variable
        step_lines.append(
            f"Task {task.rank} on {task.node}: CUDA_VISIBLE_DEVICES {variable_text}{cpus_text}"
        )
    return tuple(step_lines)
