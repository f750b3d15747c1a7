"""What a killed slurmctld leaves behind, and the Slurm commands that repair it.

slurmctld saves its state every few seconds. When it is killed with -9, it forgets what it had not
saved. A job that had just started is then started a second time, while its node still runs it. The
node refuses. Slurm drains the node ("Duplicate jobid") and holds the job ("launch failed requeued
held"). Neither ends by itself. `recovery_plan` is pure: it makes a plan out of Slurm's output.
`carry_out` runs the plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from podwright.errors import FieldNotKnown, Unavailable
from podwright.slurm.reader import (
    SHOW_JOBS,
    SHOW_NODES,
    JobRecord,
    SlurmNode,
    known,
    read_jobs,
    read_nodes,
)
from podwright.slurm.site.commands import Slurm

T = TypeVar("T")

#: A node's reason ends with who set it and when: `Duplicate jobid [slurm@2026-11-24T10:00:00]`.
_REASON_AUTHOR_SUFFIX: Final = re.compile(r"\s*\[[^\[\]]*\]$")
_DUPLICATE_REASON: Final = "Duplicate jobid"
_LAUNCH_FAILED_REASON: Final = "launch_failed_requeued_held"
_DRAIN_STATES: Final = frozenset({"DRAIN", "DRAINED", "DRAINING"})
#: States in which `state=resume` would hide another fault, or would be refused by Slurm.
_FAULTY_STATES: Final = frozenset(
    {"DOWN", "ERROR", "FAIL", "FAILING", "FUTURE", "INVAL", "INVALID", "INVALID_REG", "UNKNOWN"}
    | {"NOT_RESPONDING", "POWER_DRAIN"}
)


class RecoveryStep(NamedTuple):
    """One repair. target: `node n1` or `job 7`. problem: what Slurm shows of it. command: repairs
    it.
    """

    target: str
    problem: str
    command: tuple[str, ...]


class LeftAlone(NamedTuple):
    """A target that looks like a remnant and is not repaired. reason: why, and what to do
    instead.
    """

    target: str
    reason: str


class RecoveryPlan(NamedTuple):
    """The steps in their order, nodes before the jobs that need them, and the targets that are left
    alone.
    """

    steps: tuple[RecoveryStep, ...]
    left_alone: tuple[LeftAlone, ...]


class StepResult(NamedTuple):
    """The result of a step. error: Slurm's message; empty: it succeeded."""

    step: RecoveryStep
    error: str


def recovery_plan(nodes_output: str, jobs_output: str) -> RecoveryPlan:
    """Return the plan. nodes, jobs_output: what SHOW_NODES and SHOW_JOBS print.

    A node or a job for which Slurm does not show what the decision needs is left alone, by name.
    Raises FieldNotKnown where the output consists of other records.
    """
    decisions_by_target: dict[str, RecoveryStep | LeftAlone] = {}
    for node_record in read_nodes(nodes_output):
        _add_decision(
            decisions_by_target, node_record, lambda record: f"node {record.name}", _decide_node
        )
    for job_record in read_jobs(jobs_output):
        _add_decision(
            decisions_by_target, job_record, lambda record: f"job {record.number}", _decide_job
        )
    decisions = decisions_by_target.values()
    return RecoveryPlan(
        tuple(decision for decision in decisions if isinstance(decision, RecoveryStep)),
        tuple(decision for decision in decisions if isinstance(decision, LeftAlone)),
    )


def _add_decision(
    decisions_by_target: dict[str, RecoveryStep | LeftAlone],
    record: T,
    name_target: Callable[[T], str],
    decide: Callable[[T], RecoveryStep | LeftAlone | None],
) -> None:
    """Decide about a record. The components of a heterogeneous job have the same target, so they
    lead to one step.
    """
    try:
        decision = decide(record)
    except FieldNotKnown as error:
        target = known(lambda: name_target(record), "a record without a name")
        decision = LeftAlone(target, str(error))
    if decision:
        decisions_by_target.setdefault(decision.target, decision)


def _decide_node(node: SlurmNode) -> RecoveryStep | LeftAlone | None:
    problem = _REASON_AUTHOR_SUFFIX.sub("", node.reason)
    if problem != _DUPLICATE_REASON or not node.state.words & _DRAIN_STATES:
        return None
    target = f"node {node.name}"
    if states := sorted(node.state.words & _FAULTY_STATES):
        text = f"{problem}, but it is also {', '.join(states)}: run this again once it responds"
        return LeftAlone(target, text)
    command = ("scontrol", "update", f"NodeName={node.name}", "State=RESUME")
    return RecoveryStep(target, f"{node.state.text}, {problem}", command)


def _decide_job(job: JobRecord) -> RecoveryStep | LeftAlone | None:
    """Return the step that releases a held job, by its own number.

    A task of an array is released by the array's number and its own. The array's number alone would
    also release tasks that their user holds.
    """
    if (
        job.state != "PENDING"
        or job.reason.replace(" ", "_") != _LAUNCH_FAILED_REASON
        or job.priority
    ):
        return None
    job_id = str(job.het_job or job.number)
    if job.array_job:
        if not job.array_tasks.isdecimal():
            reason_text = (
                f"it stands for tasks {job.array_tasks} of array {job.array_job}: release them"
            )
            return LeftAlone(f"job {job.number}", reason_text)
        job_id = f"{job.array_job}_{job.array_tasks}"
    return RecoveryStep(f"job {job_id}", "launch failed, held", ("scontrol", "release", job_id))


async def ask_for_plan(slurm: Slurm) -> RecoveryPlan:
    """Return the plan for a live Slurm. Raises Unavailable where it does not answer."""
    outputs = []
    for show_command in (SHOW_NODES, SHOW_JOBS):
        command_result = await slurm.run(*show_command)
        if command_result.code:
            raise Unavailable(
                f"{' '.join(show_command)} failed: {command_result.err.strip()}",
                would_work="start slurmctld first",
            )
        outputs.append(command_result.out)
    return recovery_plan(*outputs)


async def carry_out(
    plan: RecoveryPlan, slurm: Slurm, report_result: Callable[[StepResult], None]
) -> bool:
    """Run the steps in order; `report_result` receives each result. Returns whether all succeeded.

    A step that fails does not stop the others: they concern other nodes and jobs.
    """
    succeeded = True
    for step in plan.steps:
        try:
            command_result = await slurm.run(*step.command)
            error_text = (
                ""
                if command_result.code == 0
                else (command_result.err.strip() or f"exit code {command_result.code}")
            )
        except Unavailable as failure:
            error_text = str(failure)
        succeeded &= not error_text
        report_result(StepResult(step, error_text))
    return succeeded
