"""`podwright slurm retry`: a command of a job, and another start without nodes at fault."""

from __future__ import annotations

from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import positive

_EXAMPLES = """\
at the end of a script for sbatch that has #SBATCH --requeue:
  exec podwright slurm retry --max 3 -- srun torchrun train.py

examples:
  podwright slurm retry --history 4711           attempts, nodes, causes and evidence
  podwright slurm retry --history 4711 --json    the same as JSON

exit code: the command's; 75: it was not started."""


class _RetryOptions(opt.OptionTable):
    limit = opt.value("how often the job may start again (3)", "N", positive, 3, name="--max")
    history = opt.optional("show the attempts of a job instead", "JOB")
    folder = opt.text("with --history: where the job was submitted", "DIR", ".")
    json = opt.flag("with --history: print JSON")
    command = opt.arguments("what to run", "COMMAND", "...")


def _run(arguments: _RetryOptions) -> int:
    import os

    from podwright.errors import InvalidRequest
    from podwright.gpu import retry

    if arguments.history:
        return _history(arguments)
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise InvalidRequest(
            "there is no command",
            operation="podwright slurm retry",
            would_work="exec podwright slurm retry --max 3 -- srun torchrun train.py",
        )
    return retry.retry(command, arguments.limit, os.environ)


def _history(arguments: _RetryOptions) -> int:
    import msgspec

    from podwright.cli.shared._print_result import show_result
    from podwright.gpu import retry

    attempts = retry.read_history(retry.history_path(arguments.history or "", arguments.folder))
    tree = [msgspec.to_builtins(attempt) for attempt in attempts]
    show_result(arguments.json, tree, lambda: retry.table_of_attempts(attempts))
    return 0


VERBS = (
    Verb(
        "retry",
        _RetryOptions,
        _run,
        help="start a job again without the nodes that failed it",
        description="Runs a command of a batch job and passes everything through. If it fails, the "
        "job's nodes are asked for their health. Where a node was at fault, the job is requeued "
        "without it. Where the program was, it is not. Where the cause is not known, the job is "
        "requeued for other nodes, if there are any.",
        epilog=_EXAMPLES,
    ),
)
