"""What a killed slurmctld leaves behind, as text for people and as data for JSON. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from podwright.guests.slurm.setup._crash_remnants import RecoveryPlan, StepResult
from podwright.tables import table


def plan_text(plan: RecoveryPlan, *, acts: bool) -> str:
    """Return what is left of a killed slurmctld. acts: whether the commands run now."""
    lines = []
    if plan.steps:
        rows = [(step.target, step.problem, shlex.join(step.command)) for step in plan.steps]
        lines.append(table(("What", "Problem", "Command"), rows))
    for job in plan.left_alone:
        lines.append(f"{job.target} is left alone: {job.reason}")
    if not plan.steps and not plan.left_alone:
        lines.append("No node and no job is left as a killed slurmctld leaves them.")
    elif plan.steps and not acts:
        lines.append("Nothing was changed. To run these commands: podwright slurm recover --yes")
    return "\n".join(lines)


def plan_values(plan: RecoveryPlan, results: Sequence[StepResult]) -> dict[str, object]:
    """Return the plan, and how each of its steps went, as data for JSON."""
    errors = {result.step.target: result.error for result in results}
    steps = [
        {**step._asdict(), "done": errors.get(step.target) == "", "error": errors.get(step.target)}
        for step in plan.steps
    ]
    left = [job._asdict() for job in plan.left_alone]
    return {"steps": steps, "left_alone": left}
