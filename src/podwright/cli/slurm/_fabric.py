"""`podwright slurm check-fabric`: shows which transport NCCL really used, and what to set."""

from __future__ import annotations

from typing import Any

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._verb import Verb


class CheckFabricOptions(opt.OptionTable):
    """The options of `check-fabric`."""

    logs = opt.arguments("the job's output; - reads stdin", "LOG", "+")
    json = opt.JSON


def _run(arguments: CheckFabricOptions) -> int:
    from podwright.gpu import fabriclog

    report = fabriclog.read_log(_lines(arguments.logs))
    findings = fabriclog.judge(report)
    unknown = fabriclog.not_known(report)
    verdict = "mend" if findings else "not known" if unknown else "good"
    if arguments.json:
        import json
        from dataclasses import asdict

        body = asdict(report) | {"verdict": verdict, "not_known": unknown}
        body["findings"] = [asdict(f) for f in findings]
        body |= {"one_name": sorted(report.one_name), "names": sorted(report.names)}
        body["sends"] = {h: {r: sorted(d) for r, d in s.items()} for h, s in report.sends.items()}
        for pair, pair_json in zip(report.pairs, body["pairs"], strict=True):
            pair_json["between_hosts"] = report.between_hosts(pair)
        print(json.dumps(body, indent=2))
    else:
        _show(report, findings, unknown)
    return {"good": 0, "mend": 1, "not known": 3}[verdict]


def _lines(paths: list[str]) -> Any:
    import sys

    for path in paths:
        if path == "-":
            yield from sys.stdin
            continue
        try:
            with open(path, encoding="utf-8", errors="replace") as log:
                yield from log
        except OSError as error:
            from podwright.errors import NotFound

            raise NotFound(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error


def _show(report: Any, findings: Any, unknown: list[str]) -> None:
    from podwright.cli.shared._tables import table

    head = f"{report.library} {report.version or '(version not in the log)'}, {report.ranks} ranks"
    hosts = len(set(report.hosts.values()))
    where = f"{hosts} host{'s' * (hosts != 1)}"
    complete = len(report.hosts) >= report.ranks
    print(
        f"{head} on {where}" if hosts and complete else f"{head}; {where} wrote" if hosts else head
    )
    if report.adapters:
        print(f"Adapters: {', '.join(report.adapters)}")
    if report.several_groups:
        print("Several communicators: each counts its ranks from 0")
    rows = [
        (
            f"{p.a} - {p.b}",
            "other hosts" if report.between_hosts(p) else "same host",
            p.transport,
            "yes" if p.gpudirect else ("no" if p.transport.startswith("NET/") else "-"),
            p.channels,
        )
        for p in report.pairs
    ]
    if rows:
        print(table(("Ranks", "On", "Transport", "GPUDirect", "Channels"), rows))
    for finding in findings:
        pairs = f"{finding.pairs} pair{'s' * (finding.pairs != 1)}"
        print(f"{finding.id}: {finding.problem} ({pairs}).")
        print(f"  Set: {finding.remedy}.")
    for reason in unknown:
        print(f"Not known: {reason}.")
    if not findings and not unknown:
        print("Nothing to set: every pair uses the fabric as it should.")


VERBS = (
    Verb(
        "check-fabric",
        CheckFabricOptions,
        _run,
        help="read from an NCCL log which transport each pair of ranks used",
        description="Read the output of a job that ran with NCCL_DEBUG=INFO: which transport "
        "each pair of ranks used, whether GPUDirect RDMA was on, and what to set when not. "
        "Exit code 1 where something should be set, 3 where the log does not tell.",
    ),
)
