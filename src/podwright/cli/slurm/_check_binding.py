"""`podwright slurm check-binding`: shows which GPU each task of a real job gets."""

from __future__ import annotations

from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt

_EXAMPLES = """\
all options of sbatch may follow; the job runs one small program in each task and ends.

examples:
  podwright slurm check-binding --nodes=2 --ntasks-per-node=4 --gpus-per-task=1
  podwright slurm check-binding --gres=gpu:4 -n4 --gpu-bind=closest -c8

a verdict has three parts:
  distinct, shared, none   whether another task of the node sees the same GPU
  near, partly, far        all, some or none of the task's cores are beside its
                           GPUs; unbound: it may run on all cores; unknown:
                           nothing tells
  as asked                 or what was asked instead
exit code 1 where a task did not get what was asked."""


class _CheckBindingOptions(opt.OptionTable):
    json = opt.JSON


def _run(arguments: _CheckBindingOptions) -> int:
    from podwright.cli.shared._arguments import complain
    from podwright.gpu import binding, requests

    request = requests.parse_request(arguments.words, "sbatch")
    options, left = binding.job_options(arguments.words)
    if left:
        complain(f"left out, since they change nothing here: {' '.join(left)}")
    tasks = binding.probe(options)
    if any(task.simulated for task in tasks):
        complain("SIMULATED: these GPUs exist only in software.")
    for note in dict.fromkeys(f"{task.node}: {note}" for task in tasks for note in task.notes):
        complain(note)
    verdicts = binding.judge(tasks, request)
    rows = binding.as_rows(tasks, verdicts)
    show_result(arguments.json, rows, lambda: binding.as_text(tasks, verdicts))
    return 1 if any(verdict.bad for verdict in verdicts.values()) else 0


VERBS = (
    Verb(
        "check-binding",
        _CheckBindingOptions,
        _run,
        help="run a job with these options, and show which GPU each task gets",
        description="Runs a real job with these options of sbatch, and prints node, GPU, bus, "
        "NUMA node, cores and a verdict for each task.",
        epilog=_EXAMPLES,
        passing=True,
    ),
)
