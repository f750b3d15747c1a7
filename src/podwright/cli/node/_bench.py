"""`podwright node bench`: compares the speed of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright import option_rows as opt
from podwright.cli.shared._verb import Verb
from podwright.option_rows import positive, seconds

if TYPE_CHECKING:
    pass

_EXAMPLES = """\
examples:
  podwright node bench --nodes=8                   a job of its own on eight free nodes
  podwright node bench --nodelist=n[1-8] --time=10 on these
  podwright node bench --dry-run --nodes=64        what would run, and how many rounds
  srun/salloc:  inside a job it measures that job's nodes

a node is slow below 70 % of what most nodes do, or of --expect.
exit code 0: nobody is slow; 1: somebody is; 2: bad usage."""


_WHERE = opt.OptionGroup("the job")


class _BenchOptions(opt.OptionTable):
    nodes = opt.value("so many nodes", "N", positive, None, group=_WHERE)
    nodelist = opt.text("these nodes", "LIST", group=_WHERE)
    partition = opt.text("of this partition", "NAME", group=_WHERE)
    gpus_per_node = opt.value("with so many GPUs each", "N", positive, None, group=_WHERE)
    time = opt.value("its time limit (15)", "MINUTES", positive, 15, group=_WHERE)
    transport = opt.choice(
        "between nodes (auto); none: each node by itself alone",
        ("auto", "tcp", "torch", "none"),
        "auto",
        name="--way",
        dest="way",
    )
    expect = opt.value("Gb/s that a pair should have (default: what most do)", "GBPS", seconds, 0.0)
    seconds = opt.value("of each measurement (2)", "S", seconds, 2.0)
    keep = opt.text(
        "the table that is kept, to see changes (~/.local/state/podwright/bench.jsonl)", "FILE"
    )
    dry_run = opt.flag("say what would run")
    json = opt.JSON


def _run(arguments: _BenchOptions) -> int:
    import os

    from podwright.errors import InvalidRequest
    from podwright.gpu import nodebench
    from podwright.hosts import job_hosts

    inside = job_hosts(os.environ)
    if not inside or arguments.dry_run:
        if not (arguments.nodes or arguments.nodelist or inside):
            raise InvalidRequest(
                "which nodes?", would_work="--nodes=8, or --nodelist=n[1-8], or inside a job"
            )
        return _submit(arguments, inside)
    if len(inside) < 1:
        raise InvalidRequest("the job has no nodes")
    interface = {"auto": nodebench.ways()[0], "none": ""}.get(
        arguments.transport, arguments.transport
    )
    bench = nodebench.bench(
        inside,
        nodebench.srun_step(os.environ),
        transport=interface,
        seconds=arguments.seconds,
        expected=arguments.expect,
        report=_report_progress,
    )
    changed = nodebench.record(arguments.keep, bench, os.environ)
    if arguments.json:
        import json

        print(json.dumps(nodebench.as_json(bench, changed)))
    else:
        print(nodebench.as_text(bench, changed))
    return 1 if bench.slow else 0


def _report_progress(text: str) -> None:
    import sys

    print(f"podwright node bench: {text}", file=sys.stderr, flush=True)


def _submit(arguments: _BenchOptions, inside: tuple[str, ...]) -> int:
    """Submit a job that runs the same command inside."""
    import os
    import shlex
    import sys

    from podwright.errors import Unavailable
    from podwright.gpu import nodebench
    from podwright.hosts import expand

    own = [sys.executable, "-P", "-m", "podwright.cli.podwright", "node", "bench"]
    own += [f"--way={arguments.transport}", f"--seconds={arguments.seconds:g}"]
    own += [f"--expect={arguments.expect:g}"] if arguments.expect else []
    own += [f"--keep={os.path.abspath(arguments.keep)}"] if arguments.keep else []
    own += ["--json"] if arguments.json else []
    words = ["salloc", "--exclusive", f"--time={arguments.time}", "--job-name=podwright-bench"]
    for option in ("nodes", "nodelist", "partition", "gpus_per_node"):
        value = getattr(arguments, option)
        words += [f"--{option.replace('_', '-')}={value}"] if value else []
    command = [*words, "--quiet", *own]
    if arguments.dry_run:
        count = len(inside) or arguments.nodes or len(expand(arguments.nodelist))
        print(shlex.join(own if inside else command))
        most = nodebench.most_rounds(count)
        rounds = "" if arguments.transport == "none" else f", then at most {most} rounds of pairs"
        print(f"{count} nodes: each by itself{rounds}.")
        return 0
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise Unavailable(
            f"salloc: {error.strerror}", operation="run a job", would_work="install Slurm's client"
        ) from None


VERBS = (
    Verb(
        "bench",
        _BenchOptions,
        _run,
        help="is each node as fast as the others?",
        description="Measures nodes: copies and all-reduce inside each (nccl-tests or torch where "
        "they are), then between nodes in rounds of pairs, so that one slow node or cable is named "
        "after at most 2*log2(n) rounds. Outside a job it runs one of its own.",
        epilog=_EXAMPLES,
    ),
)
