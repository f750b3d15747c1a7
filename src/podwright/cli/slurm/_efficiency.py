"""`podwright slurm efficiency` and `sample`: how well a job used its GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._arguments import positive, seconds
from podwright.cli.shared._verb import Verb

if TYPE_CHECKING:
    from podwright.gpu.efficiency import Efficiency, MonthRow

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


class EfficiencyOptions(opt.OptionTable):
    """The options of `efficiency`."""

    job = opt.optional_argument("a job, running or ended", "JOB", None)
    user = opt.optional("all jobs of this user", "USER")
    since = opt.optional("all jobs since, as sacct takes times", "TIME")
    until = opt.optional("and before", "TIME")
    names = opt.flag("a row for each user")
    samples = opt.text("where samples are (slurm-JOB.gpus beside it)", "DIR")
    comment = opt.flag("write the summary into the job's AdminComment")
    ended = opt.optional("in an Epilog: of all jobs whose numbers are files there", "DIR")
    write = opt.choice(
        "with --ended, where to: AdminComment, or the end of standard output (comment)",
        ("comment", "output", "both"),
        "comment",
    )
    svg = opt.optional("plot the load of each GPU; - prints it", "FILE")
    json = opt.flag("print JSON", rivals="shape")
    line = opt.flag("print the summary alone", rivals="shape")


class SampleOptions(opt.OptionTable):
    """The options of `sample`."""

    every = opt.value("10", "SECONDS", seconds, 10.0)
    below = opt.value("in a task prolog, $PPID: the step whose end ends this", "PID", positive, 0)
    command = opt.arguments("what to run beside it", "COMMAND", "...")


def _run(arguments: EfficiencyOptions) -> int:
    from podwright.errors import InvalidRequest

    if arguments.ended:
        return _end_time(arguments.ended, arguments.write)
    many = arguments.user or arguments.since or arguments.until
    if bool(arguments.job) == bool(many):
        raise InvalidRequest(
            "it takes one job, or many",
            would_work="podwright slurm efficiency JOB, or --since TIME, or --user USER",
        )
    return _many(arguments) if many else _of_job(arguments)


def _of_job(arguments: EfficiencyOptions) -> int:
    import os
    from pathlib import Path

    from podwright.errors import Unavailable
    from podwright.gpu import efficiency

    ask = _asker(dict(os.environ))
    number = arguments.job or ""
    try:
        job = efficiency.one_job(ask, number)
    except Unavailable:
        # A site without slurmdbd has no accounting, but a job may have sampled its GPUs itself.
        sampled = efficiency.read_samples(Path(arguments.samples or f"slurm-{number}.gpus"))
        if sampled is None or not sampled.uses:
            raise
        job_report = efficiency.report(efficiency.job_of_samples(number, sampled), sampled)
    else:
        folder = Path(arguments.samples or Path(job.folder) / f"slurm-{job.raw}.gpus")
        job_report = efficiency.report(job, efficiency.read_samples(folder))
    if arguments.comment:
        efficiency.keep(ask, job_report.job, efficiency.line(job_report))
    if arguments.svg == "-":
        print(efficiency.plot(job_report), end="")
        return 0
    if arguments.svg:
        Path(arguments.svg).write_text(efficiency.plot(job_report))
    _show(arguments, job_report)
    return 0


def _show(arguments: EfficiencyOptions, job_report: Efficiency) -> None:
    from podwright.cli.shared._tables import card, table
    from podwright.gpu import efficiency

    if arguments.json:
        import json

        print(json.dumps(efficiency.tree(job_report)))
    elif arguments.line:
        print(efficiency.line(job_report))
    else:
        print(card(efficiency.facts(job_report)))
        if job_report.uses:
            header = ("Node", "GPU", "Load", "Highest", "Time busy", "Memory", "Most", "Has")
            rows = efficiency.gpu_rows(job_report)
            print(f"\n{table((*header, 'Samples'), rows)}")
        print(f"\nNext time:\n{efficiency.advice(job_report)}")


def _many(arguments: EfficiencyOptions) -> int:
    import os

    from podwright.gpu import efficiency

    words = [f"--user={arguments.user}"] if arguments.user else ["--allusers"]
    words += [f"--starttime={arguments.since}"] if arguments.since else []
    words += [f"--endtime={arguments.until}"] if arguments.until else []
    jobs = efficiency.sacct(_asker(dict(os.environ)), words)
    rows = efficiency.month(jobs, "user" if arguments.names else "partition")
    if arguments.json:
        import json

        print(json.dumps([row._asdict() for row in rows]))
        return 0
    _table(rows, "User" if arguments.names else "Partition")
    return 0


def _table(rows: list[MonthRow], name: str) -> None:
    from podwright.cli.shared._tables import table
    from podwright.gpu.efficiency._job_report import span

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.0f} %"

    header = (name, "Jobs", "Waiting", "GPU hours", "Waited", "95 % below", "GPUs", "Cores")
    lines = [
        (
            row.name + (" *" if row.starves else ""),
            row.jobs,
            row.waiting,
            f"{row.gpu_hours:.1f}",
            span(row.waited),
            span(row.waited_95),
            *map(share, (row.gpus, row.cores, row.memory, row.time)),
        )
        for row in rows
    ]
    print(table((*header, "Memory", "Time"), lines))
    print("GPUs, Cores, Memory, Time: the share that was used of what jobs had.")
    if any(row.starves for row in rows):
        print("* starves: half of its jobs waited for longer than half of them ran.")


def _asker(environ: dict[str, str], seconds: float | None = None) -> Any:
    """Return a function that runs Slurm's commands with a time limit. Times are seconds since
    1970.
    """
    import subprocess
    from collections.abc import Sequence

    environ |= {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}

    def ask(words: Sequence[str]) -> str | None:
        try:
            done = subprocess.run(
                words, env=environ, capture_output=True, text=True, check=False, timeout=seconds
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    return ask


def _end_time(ended: str, written: str) -> int:
    """Write the summaries of the jobs that are noted in a folder. A node's Epilog starts this."""
    import os
    import sys
    import syslog
    from pathlib import Path

    from podwright.gpu import efficiency

    places = efficiency.Destinations(written != "output", written != "comment")
    own = [sys.executable, "-P", "-m", "podwright.cli.podwright", "slurm", "efficiency", "--line"]

    def summarise(job: efficiency.AccountedJob) -> str:
        return efficiency.as_user(job.user, [*own, job.id], "", 120.0)

    folder = Path(ended)
    ask = _asker(dict(os.environ), 120.0)
    for wrong in efficiency.work(folder, ask, places, summarise, efficiency.append_as_user):
        syslog.syslog(syslog.LOG_WARNING, f"podwright: no summary of {wrong}")
    return 0


def _sample(arguments: SampleOptions) -> int:
    import os

    from podwright.gpu.efficiency import _sampler as sampler

    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        return sampler.run(os.environ, arguments.every, arguments.below or os.getpid())
    own = os.getpid()
    if os.environ.get("SLURM_LOCALID", "0") == "0" and os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os._exit(sampler.run(os.environ, arguments.every, own, own))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        from podwright.errors import InvalidRequest

        raise InvalidRequest(str(error.strerror), operation=f"run {command[0]}") from None


VERBS = (
    Verb(
        "efficiency",
        EfficiencyOptions,
        _run,
        help="report what a job made of its GPUs, cores and memory",
        description="Says how much of what a job had was used, and what to ask for next time. "
        "Reads Slurm's accounting, and samples of the GPUs where the job's steps took some.",
        epilog=_EXAMPLES,
    ),
    Verb(
        "sample",
        SampleOptions,
        _sample,
        help="sample this job's GPUs while a step runs",
        description="Writes what this job's GPUs on this node do into slurm-JOB.gpus, every few "
        "seconds, and ends with the step.",
        epilog=_SAMPLE,
    ),
)
