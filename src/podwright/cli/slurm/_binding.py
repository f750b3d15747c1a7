"""`podwright slurm check-binding`: shows which GPU each task of a real job gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._verb import Verb

if TYPE_CHECKING:
    from podwright.gpu.binding import Task, Verdict

_EXAMPLES = """\
all options of sbatch may follow; the job runs one small program in each task and ends.

examples:
  podwright slurm check-binding --nodes=2 --ntasks-per-node=4 --gpus-per-task=1
  podwright slurm check-binding --gres=gpu:4 --ntasks=4 --gpu-bind=closest --cpus-per-task=8

a verdict has three parts:
  distinct, shared or none   whether another task of the node sees the same GPU
  near, partly or far        the task's cores are beside its GPUs, some of them, or none are;
                             unbound: it may run on all cores; unknown: nothing tells
  as asked                   or what was asked instead
exit code 1 where a task did not get what was asked."""


class CheckBindingOptions(opt.OptionTable):
    """The options of `check-binding`."""

    json = opt.JSON


def _run(arguments: CheckBindingOptions) -> int:
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
    if arguments.json:
        import json

        print(json.dumps([_json(task, verdicts[task.rank]) for task in tasks], indent=2))
    else:
        _show(tasks, verdicts)
    return 1 if any(verdict.bad for verdict in verdicts.values()) else 0


def _json(task: Task, verdict: Verdict) -> dict[str, Any]:
    gpus = [gpu._asdict() for gpu in task.gpus]
    return {**task._asdict(), "gpus": gpus, "verdict": verdict._asdict()}


def _show(tasks: Sequence[Task], verdicts: dict[int, Verdict]) -> None:
    from podwright.cli.shared._tables import table

    rows: list[tuple[object, ...]] = []
    for task in tasks:
        verdict = verdicts[task.rank]
        for n, gpu in enumerate(task.gpus):
            head = (task.rank, task.node) if n == 0 else ("", "")
            tail = (task.cpus, verdict) if n == 0 else ("", "")
            numa = gpu.numa if gpu.numa >= 0 else ""
            rows.append((*head, gpu.number, gpu.uuid, gpu.bus, numa, *tail))
        if not task.gpus:
            rows.append((task.rank, task.node, "", "", "", "", task.cpus, verdict))
    print(table(("Task", "Node", "GPU", "UUID", "Bus", "NUMA", "Cores", "Verdict"), rows))
    print(_summary(list(verdicts.values())))


def _summary(verdicts: list[Verdict]) -> str:
    count = len(verdicts)
    bad = sum(verdict.bad for verdict in verdicts)
    if bad:
        return f"{bad} of {count} tasks did not get what was asked."
    words = {
        "distinct": "have GPUs of their own",
        "shared": "share GPUs with others",
        "none": "have no GPU",
    }
    parts = [
        f"{as_asked} {text}"
        for own, text in words.items()
        if (as_asked := sum(verdict.own == own for verdict in verdicts))
    ]
    far = sum(verdict.where in ("far", "partly") for verdict in verdicts)
    away = f"; {far} run on cores away from them" if far else ""
    return f"Of {count} tasks {', '.join(parts)}{away}: as asked."


VERBS = (
    Verb(
        "check-binding",
        CheckBindingOptions,
        _run,
        help="run a job with these options, and show which GPU each task gets",
        description="Runs a real job with these options of sbatch, and prints node, GPU, bus, "
        "NUMA node, cores and a verdict for each task.",
        epilog=_EXAMPLES,
        passing=True,
    ),
)
