"""`podwright slurm check-fabric`: shows which transport NCCL really used, and what to set."""

from __future__ import annotations

from collections.abc import Iterator

from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt


class _CheckFabricOptions(opt.OptionTable):
    logs = opt.arguments("the job's output; - reads stdin", "LOG", "+")
    json = opt.JSON


def _run(arguments: _CheckFabricOptions) -> int:
    from podwright.gpu import fabriclog

    report = fabriclog.read_log(_lines(arguments.logs))
    findings = fabriclog.judge(report)
    unknown = fabriclog.not_known(report)
    judgement = fabriclog.judged(report, findings, unknown)
    value = fabriclog.as_json(report, findings, unknown, judgement)
    show_result(arguments.json, value, lambda: fabriclog.as_text(report, findings, unknown))
    return {"yes": 0, "no": 1, "not known": 3}[judgement.says]


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
        help="read from an NCCL log why a job failed, and which transport each pair of ranks used",
        description="Read the output of a job that ran with NCCL_DEBUG=INFO: its first failure and "
        "the cause, which transport each pair of ranks used, whether GPUDirect RDMA was on, and "
        "what would help. Exit code 1 where the job failed or something should be set, 3 where "
        "the log does not tell.",
    ),
)
