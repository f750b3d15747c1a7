"""`podwright node bench`: compares the speed of nodes."""

from __future__ import annotations

from podwright import option_rows as opt
from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb
from podwright.option_rows import positive, seconds

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
    import shlex

    from podwright.errors import InvalidRequest
    from podwright.gpu import nodebench
    from podwright.hosts import job_hosts

    inside = job_hosts(os.environ)
    if not inside or arguments.dry_run:
        if not (arguments.nodes or arguments.nodelist or inside):
            raise InvalidRequest(
                "no nodes are named",
                would_work="add --nodes=8 or --nodelist=n[1-8], or run it in a job",
            )
        if not arguments.dry_run:
            nodebench.become_job(arguments)
        command = nodebench.bench_command if inside else nodebench.job_command
        print(shlex.join(command(arguments)))
        print(nodebench.extent(arguments, inside))
        return 0
    if len(inside) < 1:
        raise InvalidRequest("the job has no nodes")
    interface = {"auto": nodebench.ways()[0], "none": ""}.get(
        arguments.transport, arguments.transport
    )
    bench = nodebench.bench(
        inside,
        nodebench.srun_step(os.environ),
        transport=interface,
        duration_s=arguments.seconds,
        expected_rate=arguments.expect,
        report_progress=_report_progress,
    )
    changed = nodebench.record(arguments.keep, bench, os.environ)
    value = nodebench.as_json(bench, changed)
    show_result(arguments.json, value, lambda: nodebench.as_text(bench, changed), indent=None)
    return 1 if bench.slow else 0


def _report_progress(text: str) -> None:
    import sys

    print(f"podwright node bench: {text}", file=sys.stderr, flush=True)


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
