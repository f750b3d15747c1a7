"""`podwright node health`: checks whether this node is fit for jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt

if TYPE_CHECKING:
    from podwright.gpu.health import NodeReport

_EXAMPLES = """\
examples:
  podwright node health                        look at this node, now
  podwright node health --json                 the same as JSON, one line
  podwright node health --list                 all checks, and their bounds
  podwright node health --prometheus /var/lib/node_exporter/podwright.prom
  podwright node health --forget               a repair mended what the log names

as HealthCheckProgram, Prolog and Epilog (podwright slurm configure --gpus … --health):
  podwright node health --slurm --act=warn     say it in slurmd's log
  podwright node health --slurm --act=drain    drain this node, or give it back

exit code 0: fit for jobs; 1: unfit; 2: bad usage; 3: not known."""


_SLURM = opt.OptionGroup("Slurm")


class _HealthOptions(opt.OptionTable):
    config = opt.text(
        "which checks run, and their bounds (/etc/podwright/node-health.toml)", "FILE"
    )
    skip = opt.several("leave it out", "CHECK", str)
    slurm = opt.flag("tell Slurm: drain this node, or give it back", group=_SLURM)
    act = opt.choice(
        "warn: change nothing; drain: never more than a share of a partition's nodes "
        "(default: act in the settings, or warn)",
        ("warn", "drain"),
        None,
        group=_SLURM,
    )
    state = opt.text(
        "where a node remembers why it was drained (/var/lib/podwright/node-health)",
        "DIR",
        group=_SLURM,
    )
    json = opt.flag("print JSON, one line", rivals="shape")
    prometheus = opt.optional(
        "write it for node_exporter's textfile collector; - prints it", "FILE", rivals="shape"
    )
    list = opt.flag("print the table of checks", rivals="shape")
    forget = opt.flag("after a repair: lines of the kernel until now count no more", rivals="shape")


def _run(arguments: _HealthOptions) -> int:
    import os
    from pathlib import Path

    from podwright.cli.shared._arguments import complain
    from podwright.gpu import health

    if arguments.list:
        return _list()
    folder = Path(arguments.state) if arguments.state else health.FOLDER
    if arguments.forget:
        print(f"The kernel's lines until now count no more: {health.forget(folder)}.")
        return 0
    _known(arguments.skip)
    settings = health.read_settings(arguments.config, frozenset(health.all_checks()))
    if arguments.act:
        import msgspec

        settings = msgspec.structs.replace(settings, act=arguments.act)
    if arguments.slurm:
        checked = health.check(settings, os.environ, folder=folder)
        _show(arguments, checked.report)
        print(f"Slurm: {' '.join(filter(None, (checked.outcome.action, checked.outcome.reason)))}")
        return checked.code
    report = health.run(settings, os.environ, since=health.forgotten(folder), skip=arguments.skip)
    if report.simulated:
        complain("SIMULATED: these GPUs exist only in software.")
    _show(arguments, report)
    return {True: 0, False: 1, None: 3}[report.fit]


def _show(arguments: _HealthOptions, report: NodeReport) -> None:
    import time

    from podwright.gpu import health
    from podwright.ground.durable_files import write_whole

    if arguments.json:
        import msgspec

        judgement = report.judgement.as_json()
        tree = {**msgspec.to_builtins(report), "fit": report.fit, "judgement": judgement}
        print(msgspec.json.encode(tree).decode())
    elif arguments.prometheus == "-":
        print(health.prometheus(report, time.time()), end="")
    elif arguments.prometheus:
        write_whole(arguments.prometheus, health.prometheus(report, time.time()), 0o644)
    else:
        print(health.text(report))


def _list() -> int:
    from podwright.gpu import health
    from podwright.ground.tables import table

    print(table(("Check", "Bound", "What it asks for"), health.checks()))
    print(f"Settings: {health.PLACE}, or --config FILE.")
    return 0


def _known(names: list[str]) -> None:
    from podwright.cli.shared._arguments import nearest
    from podwright.errors import InvalidRequest
    from podwright.gpu import health

    for name in names:
        if name not in health.all_checks():
            raise InvalidRequest(
                f"there is no check {name!r}{nearest(name, health.all_checks())}",
                operation=f"--skip {name}",
                would_work="podwright node health --list names them",
            )


VERBS = (
    Verb(
        "health",
        _HealthOptions,
        _run,
        help="is this node fit for jobs?",
        description="Looks at GPUs, their links and network adapters, and says whether the node is "
        "fit for jobs, sick or not known, with the evidence. The driver's own request, PCI and the "
        "words of the kernel's log decide; only root may read that log.",
        epilog=_EXAMPLES,
    ),
)
