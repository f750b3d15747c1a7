"""`podwright node bench`: is each node as fast as the others?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from podwright.cli._arguments import positive, seconds

if TYPE_CHECKING:
    from podwright.slurm.gpus.nodebench import Bench, Change

_EXAMPLES = """\
examples:
  podwright node bench --nodes=8                   a job of its own on eight free nodes
  podwright node bench --nodelist=n[1-8] --time=10 on these
  podwright node bench --dry-run --nodes=64        what would run, and how many rounds
  srun/salloc:  inside a job it measures that job's nodes

a node is slow below 70 % of what most nodes do, or of --expect.
exit code 0: nobody is slow; 1: somebody is; 2: bad usage."""


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "bench",
        help="is each node as fast as the others?",
        description="Measures nodes: copies and all-reduce inside each (nccl-tests or torch where "
        "they are), then between nodes in rounds of pairs, so that one slow node or cable is named "
        "after at most 2*log2(n) rounds. Outside a job it runs one of its own.",
        epilog=_EXAMPLES,
    )
    where = parser.add_argument_group("the job")
    where.add_argument("--nodes", metavar="N", type=positive, help="so many nodes")
    where.add_argument("--nodelist", metavar="LIST", default="", help="these nodes")
    where.add_argument("--partition", metavar="NAME", default="", help="of this partition")
    where.add_argument("--gpus-per-node", metavar="N", type=positive, help="with so many GPUs each")
    where.add_argument(
        "--time", metavar="MINUTES", type=positive, default=15, help="its time limit (15)"
    )
    parser.add_argument(
        "--way",
        choices=("auto", "tcp", "torch", "none"),
        default="auto",
        help="between nodes (auto); none: each node by itself alone",
    )
    parser.add_argument(
        "--expect",
        metavar="GBPS",
        type=seconds,
        default=0.0,
        help="Gb/s that a pair should have (default: what most do)",
    )
    parser.add_argument(
        "--seconds", metavar="S", type=seconds, default=2.0, help="of each measurement (2)"
    )
    parser.add_argument(
        "--keep",
        metavar="FILE",
        default="",
        help="the table that is kept, to see changes (~/.local/state/podwright/bench.jsonl)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run_node=_run)


def _run(arguments: argparse.Namespace) -> int:
    import os

    from podwright.errors import InvalidRequest
    from podwright.hosts import job_hosts
    from podwright.slurm.gpus import nodebench

    inside = job_hosts(os.environ)
    if not inside or arguments.dry_run:
        if not (arguments.nodes or arguments.nodelist or inside):
            raise InvalidRequest(
                "which nodes?", would_work="--nodes=8, or --nodelist=n[1-8], or inside a job"
            )
        return _submit(arguments, inside)
    if len(inside) < 1:
        raise InvalidRequest("the job has no nodes")
    way = {"auto": nodebench.ways()[0], "none": ""}.get(arguments.way, arguments.way)
    found = nodebench.bench(
        inside,
        nodebench.srun_step(os.environ),
        way=way,
        seconds=arguments.seconds,
        expected=arguments.expect,
        say=_say,
    )
    changed = _keep(arguments.keep, found)
    _show(arguments, found, changed)
    return 1 if found.slow else 0


def _say(text: str) -> None:
    import sys

    print(f"podwright node bench: {text}", file=sys.stderr, flush=True)


def _submit(arguments: argparse.Namespace, inside: tuple[str, ...]) -> int:
    """A job of its own, which runs the same command inside."""
    import os
    import shlex
    import sys

    from podwright.errors import Unavailable
    from podwright.hosts import expand
    from podwright.slurm.gpus import nodebench

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
            f"salloc: {error.strerror}", asked="run a job", would_work="install Slurm's client"
        ) from None


def _keep(name: str, found: Bench) -> list[Change]:
    import os
    import time
    from pathlib import Path

    from podwright.errors import Unavailable
    from podwright.slurm.gpus import nodebench

    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(name or os.path.join(state, "podwright", "bench.jsonl"))
    now = nodebench.rates(found)
    changed = nodebench.changes(path, now)
    try:
        nodebench.keep(path, now, time.time())
    except OSError as error:
        if name:
            raise Unavailable(
                f"{path}: {error.strerror}", asked="keep the table", would_work="--keep FILE"
            ) from None
    return changed


def _show(arguments: argparse.Namespace, found: Bench, changed: list[Change]) -> None:
    from podwright.cli._tables import table
    from podwright.slurm.gpus import nodebench

    now = nodebench.rates(found)
    if arguments.json:
        import json

        tree = {
            **found._asdict(),
            "rates": now,
            "rounds": [
                [{"pair": list(pair), "gbps": rate} for pair, rate in one.items()]
                for one in found.rounds
            ],
            "verdict": found.verdict._asdict(),
            "slow": [one._asdict() for one in found.slow],
            "changes": [one._asdict() for one in changed],
        }
        print(json.dumps(tree))
        return
    print(_head(found))
    for slow in found.slow:
        print(f"SLOW  {slow.part}, {slow.what}: {slow.rate:.2f} Gb/s, not {slow.reference:.2f}")
    for change in changed:
        print(
            f"CHANGED  {change.node}, {change.what}: {change.now:.2f}, before {change.before:.2f}"
        )
    for node, error in found.errors.items():
        print(f"ERROR  {node}: {error}")
    kinds = list(dict.fromkeys(kind for rates in now.values() for kind in rates))
    rows = [
        (node, *(f"{rates[k]:.2f}" if k in rates else "" for k in kinds))
        for node, rates in now.items()
    ]
    print(f"\n{table(('Gb/s', *kinds), rows)}")


def _head(found: Bench) -> str:
    count, rounds = len(found.nodes), len(found.rounds)
    by = f"{rounds} rounds of pairs by {found.way}" if found.way else "each by itself"
    took = f"({count} nodes, {by})"
    if found.slow:
        parts = ", ".join(dict.fromkeys(slow.part for slow in found.slow))
        return f"Slow: {parts} {took}."
    if found.verdict.unsure:
        names = ", ".join(found.verdict.unsure)
        return f"Nobody can be told from others, but below what is expected: {names} {took}."
    return f"All are as fast as each other {took}."
