"""`podwright slurm check-fabric`: shows which transport NCCL really used, and what to set."""

from __future__ import annotations

from collections.abc import Iterator

from podwright import option_rows as opt
from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb


class _CheckFabricOptions(opt.OptionTable):
    logs = opt.arguments("the job's output; - reads stdin", "LOG", "+")
    json = opt.JSON


def _run(arguments: _CheckFabricOptions) -> int:
    from podwright.gpu import fabriclog

    report = fabriclog.read_log(_lines(arguments.logs))
    findings = fabriclog.judge(report)
    unknown = fabriclog.not_known(report)
    verdict = "mend" if findings else "not known" if unknown else "good"
    value = fabriclog.as_json(report, findings, unknown, verdict)
    show_result(arguments.json, value, lambda: fabriclog.as_text(report, findings, unknown))
    return {"good": 0, "mend": 1, "not known": 3}[verdict]


def _lines(paths: list[str]) -> Iterator[str]:
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


VERBS = (
    Verb(
        "check-fabric",
        _CheckFabricOptions,
        _run,
        help="read from an NCCL log which transport each pair of ranks used",
        description="Read the output of a job that ran with NCCL_DEBUG=INFO: which transport "
        "each pair of ranks used, whether GPUDirect RDMA was on, and what to set when not. "
        "Exit code 1 where something should be set, 3 where the log does not tell.",
    ),
)
