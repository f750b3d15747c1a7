"""`podwright slurm efficiency` and `sample`: how well a job used its GPUs."""

from __future__ import annotations

from podwright import option_rows as opt
from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb
from podwright.option_rows import positive, seconds

_EXAMPLES = """\
examples:
  podwright slurm efficiency 4711                    use of each GPU, cores, memory; what to ask for
  podwright slurm efficiency 4711 --svg job.svg      the load of each GPU over time
  podwright slurm efficiency 4711 --comment          keep the summary in the job's AdminComment
  podwright slurm efficiency --since 2026-11-01      all jobs since, by partition, without names
  podwright slurm efficiency --since now-7days --user alice"""
_SAMPLE = """\
examples:
  srun podwright slurm sample -- python train.py     beside this command, on each node
  setsid podwright slurm sample --below=$PPID &      in a task prolog: ends with the step"""


class _EfficiencyOptions(opt.OptionTable):
    job = opt.optional_argument("a job, running or ended", "JOB", None)
    user = opt.optional("all jobs of this user", "USER")
    since = opt.optional("all jobs since, as sacct takes times", "TIME")
    until = opt.optional("and before", "TIME")
    names = opt.flag("a row for each user")
    samples = opt.text("where samples are (slurm-JOB.gpus beside it)", "DIR")
    comment = opt.flag("write the summary into the job's AdminComment")
    ended_folder = opt.optional(
        "in an Epilog: of all jobs whose numbers are files there", "DIR", name="--ended"
    )
    write = opt.choice(
        "with --ended, where to: AdminComment, or the end of standard output (comment)",
        ("comment", "output", "both"),
        "comment",
    )
    svg = opt.optional("plot the load of each GPU; - prints it", "FILE")
    json = opt.flag("print JSON", rivals="shape")
    line = opt.flag("print the summary alone", rivals="shape")


class _SampleOptions(opt.OptionTable):
    interval = opt.value("10", "SECONDS", seconds, 10.0, name="--every")
    below = opt.value("in a task prolog, $PPID: the step whose end ends this", "PID", positive, 0)
    command = opt.arguments("what to run beside it", "COMMAND", "...")


def _run(arguments: _EfficiencyOptions) -> int:
    from podwright.errors import InvalidRequest

    if arguments.ended_folder:
        return _end_time(arguments.ended_folder, arguments.write)
    many = arguments.user or arguments.since or arguments.until
    if bool(arguments.job) == bool(many):
        raise InvalidRequest(
            "it takes one job, or many",
            would_work="podwright slurm efficiency JOB, or --since TIME, or --user USER",
        )
    return _many(arguments) if many else _of_job(arguments)


def _of_job(arguments: _EfficiencyOptions) -> int:
    import os
    from pathlib import Path

    from podwright.gpu import efficiency

    ask = efficiency.asker(os.environ)
    job_report = efficiency.job_report(ask, arguments.job or "", arguments.samples)
    if arguments.comment:
        efficiency.keep(ask, job_report.job, efficiency.line(job_report))
    if arguments.svg == "-":
        print(efficiency.plot(job_report), end="")
        return 0
    if arguments.svg:
        Path(arguments.svg).write_text(efficiency.plot(job_report))
    as_text = efficiency.line if arguments.line else efficiency.text
    tree = efficiency.tree(job_report)
    show_result(arguments.json, tree, lambda: as_text(job_report), indent=None)
    return 0


def _many(arguments: _EfficiencyOptions) -> int:
    import os

    from podwright.gpu import efficiency

    words = [f"--user={arguments.user}"] if arguments.user else ["--allusers"]
    words += [f"--starttime={arguments.since}"] if arguments.since else []
    words += [f"--endtime={arguments.until}"] if arguments.until else []
    jobs = efficiency.sacct(efficiency.asker(os.environ), words)
    rows = efficiency.month(jobs, "user" if arguments.names else "partition")
    heading = "User" if arguments.names else "Partition"
    values = [row._asdict() for row in rows]
    show_result(arguments.json, values, lambda: efficiency.month_text(rows, heading), indent=None)
    return 0


def _end_time(name: str, written: str) -> int:
    """Write the summaries of the jobs that are noted in a folder. A node's Epilog starts this."""
    import syslog
    from pathlib import Path

    from podwright.gpu import efficiency

    places = efficiency.Destinations(written != "output", written != "comment")
    for problem in efficiency.summarise_ended(Path(name), places):
        syslog.syslog(syslog.LOG_WARNING, f"podwright: no summary of {problem}")
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
