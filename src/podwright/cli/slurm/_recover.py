"""`podwright slurm recover`: lists and repairs what a killed slurmctld leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt

if TYPE_CHECKING:
    from podwright.guests.slurm.setup import StepResult

_EXAMPLES = """\
examples:
  podwright slurm recover                 list what is left, and change nothing
  podwright slurm recover --yes           mend it
  podwright slurm recover --json          the same list for programs

exit code 0: nothing is left; 1: something is left, or a command failed."""


class _RecoverOptions(opt.OptionTable):
    yes = opt.flag("run the commands of the plan")
    json = opt.JSON


def _run(arguments: _RecoverOptions) -> int:
    import asyncio

    return asyncio.run(_recover(arguments))


async def _recover(arguments: _RecoverOptions) -> int:
    from podwright.guests.slurm.setup import ask_for_plan, carry_out, plan_text, plan_values
    from podwright.slurm.site.commands import SlurmCommands

    slurm = SlurmCommands()
    plan = await ask_for_plan(slurm)
    results: list[StepResult] = []

    def report(result: StepResult) -> None:
        results.append(result)
        if not arguments.json:
            outcome = f"failed: {result.error}" if result.error else "mended"
            print(f"{result.step.target}: {outcome}", flush=True)

    if not arguments.json:
        print(plan_text(plan, runs_now=arguments.yes), flush=True)
    succeeded = await carry_out(plan, slurm, report) if arguments.yes else not plan.steps
    if arguments.json:
        import json

        print(json.dumps(plan_values(plan, results), indent=2))
    return 0 if succeeded and not plan.left_alone else 1


VERBS = (
    Verb(
        "recover",
        _RecoverOptions,
        _run,
        help="mend what a killed slurmctld leaves: drained nodes, held jobs",
        description="Lists what kill -9 of slurmctld leaves: nodes drained with 'Duplicate jobid', "
        "and jobs held with 'launch failed requeued held'. With --yes it resumes those nodes and "
        "releases those jobs, as root or SlurmUser. It touches no node that is drained for "
        "another reason and no job that somebody holds.",
        epilog=_EXAMPLES,
    ),
)
