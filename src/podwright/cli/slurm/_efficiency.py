"""`podwright slurm efficiency` and `sample`: how well a job used its GPUs."""

from __future__ import annotations

from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import positive, seconds

_EXAMPLES = """\
examples:
  podwright slurm efficiency 4711                    use of each GPU, cores, memory; what to ask for
  podwright slurm efficiency 4711 --svg job.svg      the load of each GPU over time
  podwright slurm efficiency $SLURM_JOB_ID --line    at the end of a job script: one line"""
_SAMPLE = """\
examples:
  srun podwright slurm sample -- python train.py     beside this command, on each node
  setsid podwright slurm sample --below=$PPID &      in a task prolog: ends with the step"""


class _EfficiencyOptions(opt.OptionTable):
    job = opt.argument("a job, running or ended", "JOB")
    samples = opt.text("where samples are (slurm-JOB.gpus beside it)", "DIR")
    svg = opt.optional("plot the load of each GPU; - prints it", "FILE")
    json = opt.flag("print JSON", rivals="shape")
    line = opt.flag("print one line alone", rivals="shape")


class _SampleOptions(opt.OptionTable):
    interval = opt.value("10", "SECONDS", seconds, 10.0, name="--every")
    below = opt.value("in a task prolog, $PPID: the step whose end ends this", "PID", positive, 0)
    command = opt.arguments("what to run beside it", "COMMAND", "...")


def _run(arguments: _EfficiencyOptions) -> int:
    import os
    from pathlib import Path

    from podwright.gpu import efficiency

    ask = efficiency.asker(os.environ)
    job_report = efficiency.job_report(ask, arguments.job, arguments.samples)
    if arguments.svg == "-":
        print(efficiency.plot(job_report), end="")
        return 0
    if arguments.svg:
        Path(arguments.svg).write_text(efficiency.plot(job_report))
    as_text = efficiency.line if arguments.line else efficiency.text
    tree = efficiency.tree(job_report)
    show_result(arguments.json, tree, lambda: as_text(job_report), indent=None)
    return 0


def _sample(arguments: _SampleOptions) -> int:
    import os

    from podwright.gpu.efficiency import _sampler as sampler

    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        return sampler.run(os.environ, arguments.interval, arguments.below or os.getpid())
    return sampler.run_beside(os.environ, arguments.interval, command)


VERBS = (
    Verb(
        "efficiency",
        _EfficiencyOptions,
        _run,
        help="report what a job made of its GPUs, cores and memory",
        description="Says how much of what a job had was used, and what to ask for next time. "
        "Reads Slurm's accounting, and samples of the GPUs where the job's steps took some.",
        epilog=_EXAMPLES,
    ),
    Verb(
        "sample",
        _SampleOptions,
        _sample,
        help="sample this job's GPUs while a step runs",
        description="Writes what this job's GPUs on this node do into slurm-JOB.gpus, every few "
        "seconds, and ends with the step.",
        epilog=_SAMPLE,
    ),
)
