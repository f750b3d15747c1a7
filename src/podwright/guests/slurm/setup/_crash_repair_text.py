"""What a killed slurmctld leaves behind, as text for people and as data for JSON. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from podwright.ground.tables import table
from podwright.guests.slurm.setup._slurmctld_crash_repair import RecoveryPlan, StepResult


def plan_text(plan: RecoveryPlan, *, runs_now: bool) -> str:
    """Return what is left of a killed slurmctld. runs_now: whether the commands run now."""
    text_lines = []
    if plan.steps:
        step_rows = [(step.target, step.problem, shlex.join(step.command)) for step in plan.steps]
        text_lines.append(table(("What", "Problem", "Command"), step_rows))
    for unrepaired_target in plan.left_alone:
        text_lines.append(f"{unrepaired_target.target} is left alone: {unrepaired_target.reason}")
    if not plan.steps and not plan.left_alone:
        text_lines.append("No node and no job is left as a killed slurmctld leaves them.")
    elif plan.steps and not runs_now:
        text_lines.append(
            "Nothing was changed. To run these commands: podwright slurm recover --yes"
        )
    return "\n".join(text_lines)


def plan_values(plan: RecoveryPlan, step_results: Sequence[StepResult]) -> dict[str, object]:
    """Return the plan, and how each of its steps went, as data for JSON."""
    errors_by_target = {result.step.target: result.error for result in step_results}
    steps = [
        {
            **step._asdict(),
            "done": errors_by_target.get(step.target) == "",
            "error": errors_by_target.get(step.target),
        }
        for step in plan.steps
    ]
    unrepaired = [unrepaired_target._asdict() for unrepaired_target in plan.left_alone]
    return {"steps": steps, "left_alone": unrepaired}
