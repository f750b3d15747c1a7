"""What a killed slurmctld leaves behind, as text for people and as data for JSON. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from podwright.ground.tables import table
from podwright.guests.slurm.setup._slurmctld_crash_repair import RecoveryPlan, StepResult


def plan_text(plan: RecoveryPlan, *, runs_now: bool) -> str:
    """Return what is left of a killed slurmctld. runs_now: whether the commands run now."""
    lines = []
    if plan.steps:
        rows = [(step.target, step.problem, shlex.join(step.command)) for step in plan.steps]
        lines.append(table(("What", "Problem", "Command"), rows))
    for target in plan.left_alone:
        lines.append(f"{target.target} is left alone: {target.reason}")
    if not plan.steps and not plan.left_alone:
        lines.append("No node and no job is left as a killed slurmctld leaves them.")
    elif plan.steps and not runs_now:
        lines.append("Nothing was changed. To run these commands: podwright slurm recover --yes")
    return "\n".join(lines)


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
