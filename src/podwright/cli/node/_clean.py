"""`podwright node clean`: are this node's GPUs free of ended jobs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt

if TYPE_CHECKING:
    from podwright.gpu.clean import CleanReport

_EXAMPLES = """\
examples:
  podwright node clean                      who holds which GPU, and for which job
  podwright node clean --json               the same as JSON, one line
  podwright node clean --end                end what provably belongs to ended jobs

as Prolog, Epilog and HealthCheckProgram (podwright slurm configure --gpus … --clean):
  podwright node clean --slurm              drain this node, or give it back
  podwright node clean --slurm --end        first end what may be ended

exit code 0: free; 1: held by an ended job; 2: bad usage; 3: not known."""
_SLURM = opt.OptionGroup("Slurm")


class _CleanOptions(opt.OptionTable):
    end = opt.flag("end processes that provably belong to ended jobs")
    json = opt.flag("print JSON, one line")
    slurm = opt.flag("tell Slurm: drain this node, or give it back", group=_SLURM)
    act = opt.choice(
        "warn: change nothing in Slurm; drain: never more than a share of a partition's nodes "
        "(drain)",
        ("warn", "drain"),
        "drain",
        group=_SLURM,
    )
    config = opt.text(
        "the share of nodes (cap in /etc/podwright/node-health.toml)", "FILE", group=_SLURM
    )
    state = opt.text(
        "where a node remembers why it was drained (/var/lib/podwright/node-clean)",
        "DIR",
        group=_SLURM,
    )


def _run(arguments: _CleanOptions) -> int:
    import os
    from pathlib import Path

    import msgspec

    from podwright.errors import InvalidRequest
    from podwright.gpu import clean, health
    from podwright.ground.judgement import Says

    if (arguments.end or arguments.slurm) and os.geteuid() != 0:
        raise InvalidRequest(
            "only root may read and end processes of all users",
            operation="podwright node clean --end or --slurm",
            would_work="run it as root, or podwright node clean, which only looks",
        )
    if not arguments.slurm:
        report = clean.look(os.environ, end_leftovers=arguments.end)
        _show(arguments, report)
        return {Says.YES: 0, Says.NO: 1, Says.NOT_KNOWN: 3}[report.judgement.says]
    settings = health.read_settings(arguments.config, frozenset(health.all_checks()))
    hook = clean.hook(
        msgspec.structs.replace(settings, act=arguments.act),
        os.environ,
        end_leftovers=arguments.end,
        folder=Path(arguments.state) if arguments.state else health.CLEAN_FOLDER,
    )
    _show(arguments, hook.report)
    print(f"Slurm: {' '.join(filter(None, hook.outcome))}")
    return hook.code


def _show(arguments: _CleanOptions, report: CleanReport) -> None:
    import msgspec

    from podwright.gpu import clean

    if arguments.json:
        tree = {**msgspec.to_builtins(report), "judgement": report.judgement.as_json()}
        print(msgspec.json.encode(tree).decode())
    else:
        print(clean.text(report))


VERBS = (
    Verb(
        "clean",
        _CleanOptions,
        _run,
        help="are its GPUs free of ended jobs?",
        description="Finds the processes that hold this node's GPUs, says which job each belongs "
        "to, and whether that job is over. A process belongs to a job by its cgroup and the "
        "environment of its start, never by its parents. Only processes that provably belong to "
        "ended jobs are ever ended, and only with --end.",
        epilog=_EXAMPLES,
    ),
)
