"""`podwright node bench`: compares the speed of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._arguments import positive, seconds
from podwright.cli.shared._verb import Verb

if TYPE_CHECKING:
    from podwright.gpu.nodebench import Bench, Change

_EXAMPLES = """\
examples:
  podwright node bench --nodes=8                   a job of its own on eight free nodes
  podwright node bench --nodelist=n[1-8] --time=10 on these
  podwright node bench --dry-run --nodes=64        what would run, and how many rounds
  srun/salloc:  inside a job it measures that job's nodes

a node is slow below 70 % of what most nodes do, or of --expect.
exit code 0: nobody is slow; 1: somebody is; 2: bad usage."""


_WHERE = opt.OptionGroup("the job")


class BenchOptions(opt.OptionTable):
    """The options of `bench`."""

    nodes = opt.value("so many nodes", "N", positive, None, group=_WHERE)
    nodelist = opt.text("these nodes", "LIST", group=_WHERE)
    partition = opt.text("of this partition", "NAME", group=_WHERE)
    gpus_per_node = opt.value("with so many GPUs each", "N", positive, None, group=_WHERE)
    time = opt.value("its time limit (15)", "MINUTES", positive, 15, group=_WHERE)
    way = opt.choice(
        "between nodes (auto); none: each node by itself alone",
        ("auto", "tcp", "torch", "none"),
        "auto",
    )
    expect = opt.value("Gb/s that a pair should have (default: what most do)", "GBPS", seconds, 0.0)
    seconds = opt.value("of each measurement (2)", "S", seconds, 2.0)
    keep = opt.text(
        "the table that is kept, to see changes (~/.local/state/podwright/bench.jsonl)", "FILE"
    )
    dry_run = opt.flag("say what would run")
    json = opt.JSON


def _run(arguments: BenchOptions) -> int:
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
    interface = {"auto": nodebench.ways()[0], "none": ""}.get(arguments.way, arguments.way)
    bench = nodebench.bench(
        inside,
        nodebench.srun_step(os.environ),
        transport=interface,
        seconds=arguments.seconds,
        expected=arguments.expect,
        report=_report_progress,
    )
    changed = _keep(arguments.keep, bench)
    _show(arguments, bench, changed)
    return 1 if bench.slow else 0


def _report_progress(text: str) -> None:
    import sys

    print(f"podwright node bench: {text}", file=sys.stderr, flush=True)


def _submit(arguments: BenchOptions, inside: tuple[str, ...]) -> int:
    """Submit a job that runs the same command inside."""
    import os
    import shlex
    import sys

    from podwright.errors import Unavailable
    from podwright.gpu import nodebench
    from podwright.hosts import expand

    own = [sys.executable, "-P", "-m", "podwright.cli.podwright", "node", "bench"]
    own += [f"--way={arguments.way}", f"--seconds={arguments.seconds:g}"]
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
        rounds = "" if arguments.way == "none" else f", then at most {most} rounds of pairs"
        print(f"{count} nodes: each by itself{rounds}.")
        return 0
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise Unavailable(
            f"salloc: {error.strerror}", operation="run a job", would_work="install Slurm's client"
        ) from None


def _keep(name: str, bench: Bench) -> list[Change]:
    import os
    import time
    from pathlib import Path

    from podwright.errors import Unavailable
    from podwright.gpu import nodebench

    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(name or os.path.join(state, "podwright", "bench.jsonl"))
    now = nodebench.rates(bench)
    changed = nodebench.changes(path, now)
    try:
        nodebench.keep(path, now, time.time())
    except OSError as error:
        if name:
            raise Unavailable(
                f"{path}: {error.strerror}", operation="keep the table", would_work="--keep FILE"
            ) from None
    return changed


def _show(arguments: BenchOptions, bench: Bench, changed: list[Change]) -> None:
    from podwright.cli.shared._tables import table
    from podwright.gpu import nodebench

    now = nodebench.rates(bench)
    if arguments.json:
        import json

        tree = {
            **bench._asdict(),
            "rates": now,
            "rounds": [
                [{"pair": list(pair), "gbps": rate} for pair, rate in round_result.items()]
                for round_result in bench.rounds
            ],
            "verdict": bench.verdict._asdict(),
            "slow": [round_result._asdict() for round_result in bench.slow],
            "changes": [round_result._asdict() for round_result in changed],
        }
        print(json.dumps(tree))
        return
    print(_head(bench))
    for slow in bench.slow:
        print(f"SLOW  {slow.part}, {slow.what}: {slow.rate:.2f} Gb/s, not {slow.reference:.2f}")
    for change in changed:
        print(
            f"CHANGED  {change.node}, {change.what}: {change.now:.2f}, before {change.before:.2f}"
        )
    for node, error in bench.errors.items():
        print(f"ERROR  {node}: {error}")
    kinds = list(dict.fromkeys(kind for rates in now.values() for kind in rates))
    rows = [
        (node, *(f"{rates[k]:.2f}" if k in rates else "" for k in kinds))
        for node, rates in now.items()
    ]
    print(f"\n{table(('Gb/s', *kinds), rows)}")


def _head(bench: Bench) -> str:
    count, rounds = len(bench.nodes), len(bench.rounds)
    by = f"{rounds} rounds of pairs by {bench.way}" if bench.way else "each by itself"
    extent = f"({count} nodes, {by})"
    if bench.slow:
        parts = ", ".join(dict.fromkeys(slow.part for slow in bench.slow))
        return f"Slow: {parts} {extent}."
    if bench.verdict.unsure:
        names = ", ".join(bench.verdict.unsure)
        return f"Nobody can be told from others, but below what is expected: {names} {extent}."
    return f"All are as fast as each other {extent}."


VERBS = (
    Verb(
        "bench",
        BenchOptions,
        _run,
        help="is each node as fast as the others?",
        description="Measures nodes: copies and all-reduce inside each (nccl-tests or torch where "
        "they are), then between nodes in rounds of pairs, so that one slow node or cable is named "
        "after at most 2*log2(n) rounds. Outside a job it runs one of its own.",
        epilog=_EXAMPLES,
    ),
)
